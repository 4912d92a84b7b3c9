"""Means, intervals and pairs."""

import math
from random import Random

import pytest
from hypothesis import given, strategies as st
from scipy import optimize, stats

from benchmarks.coverage import POPULATIONS, RUNS, TRIES, coverage, decided_by_chance
from carrycast.analysis.reports.tables import csv_text, distinct_texts, interval_texts, mean_text, number_text
from carrycast.analysis.spark.statistics import (
    DIFFERENCE_OF_SHARES,
    SHARE,
    Interval,
    average,
    confidence_interval,
    hall_transform,
    paired_differences,
    ratio_confidence_interval,
    t_quantile,
)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 9, 19, 29, 100, 999, 50_000])
def test_students_t_is_scipys(degrees: int) -> None:
    assert t_quantile(degrees) == pytest.approx(float(stats.t.ppf(0.975, degrees)), rel=1e-9)


def test_the_interval_covers_the_mean_nineteen_times_in_twenty() -> None:
    rng = Random(5)
    covered = 0
    for _ in range(2000):
        found = confidence_interval(rng.gauss(3.0, 2.0) for _ in range(6))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 3.0 <= found.high
    # Five standard deviations of a binomial count.
    assert abs(covered - 1900) < 5 * math.sqrt(2000 * 0.95 * 0.05)


def test_values_that_do_not_exist_are_left_out() -> None:
    assert confidence_interval([None, 2.0, None, 4.0]).n == 2
    assert confidence_interval([None]) == Interval(0, None, None, None)
    assert confidence_interval([7.0]) == Interval(1, 7.0, None, None)
    assert confidence_interval([0.1, 0.1, 0.1], exact=True) == Interval(3, 0.1, 0.1, 0.1)
    assert confidence_interval([1.0, 3.0]) == Interval(2, 2.0, None, None)


def test_what_arithmetic_leaves_is_no_spread() -> None:
    assert confidence_interval([0.1 + 0.2, 0.3, 0.3]).low is None
    assert paired_differences({1: 0.1 + 0.2, 2: 0.4}, {1: 0.3, 2: 0.3}) == [0.0, pytest.approx(0.1)]


def test_tiny_spreads_are_spreads() -> None:
    found, wide = confidence_interval([0.0, 0.0, 1e-155]), confidence_interval([0.0, 0.0, 1.0])
    assert found.low == pytest.approx(1e-155 * (wide.low or 0.0), rel=1e-9)
    assert found.skew == pytest.approx(wide.skew)


def test_no_share_is_more_than_one() -> None:
    values = [1.0, 1.0, 0.98, 0.99, 1.0]
    found, bare = confidence_interval(values, SHARE), confidence_interval(values)
    assert bare.high is not None
    assert bare.high > 1.0
    assert (found.low, found.high) == (bare.low, 1.0)


def test_a_metric_that_only_sounds_like_a_share_has_no_bounds() -> None:
    values = [0.9, 3.2, 4.1, 2.7]
    assert confidence_interval(values, SHARE) == confidence_interval(values)
    assert confidence_interval([2.0] * 5, SHARE) == confidence_interval([2.0] * 5)
    assert confidence_interval([-0.1, 0.5, 0.7], SHARE) == confidence_interval([-0.1, 0.5, 0.7])


@given(st.lists(st.floats(0, 1), min_size=3, max_size=12))
def test_the_interval_of_a_share_is_one_of_shares(values: list[float]) -> None:
    found = confidence_interval(values, SHARE)
    assert found.mean is not None
    if found.low is not None and found.high is not None:
        assert 0 <= found.low <= found.mean * (1 + 1e-12)
        assert found.mean * (1 - 1e-12) <= found.high <= 1


@given(st.floats(-1, 1), st.floats(1e-7, 1), st.floats(1e-7, 1))
def test_what_differs_looks_different(mean: float, below: float, above: float) -> None:
    values = [mean, mean - below, mean + above]
    texts = distinct_texts(values, 2)
    read = [float(text.replace(",", "")) for text in texts]
    little = (below + above) / 1000
    for value, shown in zip(values, read, strict=True):
        assert abs(value - shown) <= max(below, above)
        assert shown or abs(value) <= little
    assert (texts[0] != texts[1]) or below <= little
    assert (texts[0] != texts[2]) or above <= little


def test_a_run_without_an_end_leaves_no_interval() -> None:
    assert confidence_interval([1.0, 2.0, math.inf]) == Interval(3, math.inf, None, None)
    assert confidence_interval([math.inf] * 3).low is None


def test_pairs_are_made_of_seeds_that_both_have() -> None:
    assert paired_differences({1: 5.0, 2: None, 3: 1.0, 4: 2.0}, {1: 2.0, 2: 1.0, 3: 4.0}) == [3.0, -3.0]


def test_a_seed_stays_one_observation_however_many_points_it_ran_at() -> None:
    assert average([{1: 1.0, 2: 4.0}, {1: 3.0, 2: None}]) == {1: 2.0, 2: None}


def test_numbers_are_shown_with_the_digits_that_matter() -> None:
    assert mean_text(Interval(5, 0.14163, 0.0216, 0.2616)) == "0.14 ± 0.12"
    assert mean_text(Interval(5, 7353.2, 6701.0, 8005.4)) == "7,353 ± 652"
    assert mean_text(Interval(5, 0.96, 0.90, 0.98)) == "0.960 (0.900 to 0.980)"
    assert mean_text(Interval(5, 0.9995, 0.90, 1.0)) == "0.9995 (0.9000 to 1.0000)"
    assert mean_text(Interval(5, 0.0103, 0.0001, 0.0205)) == "0.01030 ± 0.01020"
    assert mean_text(Interval(5, 0.5, 0.5 - 1e-9, 0.5 + 5e-9)) == "5.00000000e-01 (4.99999999e-01 to 5.00000005e-01)"
    assert mean_text(Interval(5, 2e-12, 1e-12, 3e-12)) == "2.00e-12 ± 1.00e-12"
    assert interval_texts(0.00952, 0.00951, 0.0096) == ("0.00952", "0.00951", "0.00960")
    assert interval_texts(0.25, -1e-9, 0.5) == ("0.250", "0.000", "0.500")
    assert interval_texts(0.0, 0.0, 0.0) == ("0", "0", "0")
    assert interval_texts(3.0, None, None) == ("3.00", "–", "–")
    assert distinct_texts([0.0, 0.0], 2) == ["0.00", "0.00"]
    assert mean_text(Interval(0, None, None, None)) == "–"
    assert mean_text(Interval(1, 3.0, None, None)) == "3.00"
    assert mean_text(Interval(9, 0.0, 0.0, 0.0)) == "0"
    assert number_text(None) == "–"
    assert number_text(296048.6) == "296,049"
    assert csv_text([{"a": 1, "b": None}, {"a": "x,y", "c": 0.1}]) == 'a,b,c\n1,,\n"x,y",,0.1\n'


@pytest.mark.parametrize("name", [name for name in POPULATIONS if "sigma 1" not in name])
@pytest.mark.parametrize("runs", [5, 10])
def test_an_interval_covers_what_it_says(name: str, runs: int) -> None:
    """Of the intervals that are shown; runs that are all alike show none."""
    found = coverage(POPULATIONS[name], runs, 1000, Random(11))
    # Three standard deviations of a share of 0.92.
    assert found.covered > 0.92 - 3 * math.sqrt(0.92 * 0.08 / (found.shown * 1000))


@pytest.mark.slow
@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("runs", RUNS)
def test_an_interval_covers_what_it_says_in_many_tries(name: str, runs: int) -> None:
    found = coverage(POPULATIONS[name], runs, TRIES, Random(runs))
    # Nine in ten where values lean so far that ten runs seldom see their tail.
    assert found.covered >= (0.87 if "sigma 1" in name else 0.92)


@pytest.mark.slow
@pytest.mark.parametrize("runs", RUNS)
def test_chance_decides_one_experiment_in_twenty_at_most(runs: int) -> None:
    alone, together = decided_by_chance(2000, runs, Random(runs))
    assert alone > 0.5
    assert together < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


# --- worked by hand, and beside scipy

SKEWED = [0.1, 0.2, 0.2, 0.3, 0.9, 2.4]


def test_what_is_told_of_an_interval() -> None:
    found = Interval(5, 0.5, 0.4, 0.7)
    assert found.as_row() == {"n": 5, "mean": 0.5, "low": 0.4, "high": 0.7}
    assert [found.below, found.above] == pytest.approx([0.1, 0.2])
    assert found.skew == 0.0
    for nothing in (Interval(0, None, None, None), Interval(2, 0.5, None, None), Interval(1, None, 0.1, 0.2)):
        assert (nothing.below, nothing.above) == (0.0, 0.0)


def test_what_knows_no_luck_is_exact() -> None:
    assert confidence_interval([2.0] * 4, exact=True).exact is True
    assert confidence_interval([2.0] * 4).exact is False
    assert confidence_interval([0.5] * 4, SHARE).exact is False
    assert confidence_interval([1.0, 2.0, 3.0]).exact is False
    assert confidence_interval([1.0, 2.0, 3.0], exact=True).exact is False


def test_an_interval_is_students_and_halls_together() -> None:
    found = confidence_interval(SKEWED)
    n, t = len(SKEWED), t_quantile(len(SKEWED) - 1)
    assert found.mean is not None
    assert found.mean == pytest.approx(sum(SKEWED) / n)
    assert found.error == pytest.approx(stats.sem(SKEWED))
    assert found.skew == pytest.approx(stats.skew(SKEWED) / math.sqrt(n))
    # Where Hall's transformed statistic is as large as Student's quantile, found by bisection.
    above = -optimize.brentq(lambda x: hall_transform(x, found.skew) + t, -100, 0)
    below = optimize.brentq(lambda x: hall_transform(x, found.skew) - t, 0, 100)
    assert above > t > below
    assert found.high == pytest.approx(found.mean + above * stats.sem(SKEWED))
    assert found.low == pytest.approx(found.mean - t * stats.sem(SKEWED))
    mirrored = confidence_interval([-value for value in SKEWED])
    assert found.low is not None
    assert found.high is not None
    assert [mirrored.low, mirrored.high] == pytest.approx([-found.high, -found.low])


def test_halls_transformation() -> None:
    assert hall_transform(2.0, 0.3) == pytest.approx(2 + 0.3 * (4 / 3 + 1 / 6) + 0.09 * 8 / 27)
    assert hall_transform(-2.0, 0.3) == pytest.approx(-2 + 0.3 * (4 / 3 + 1 / 6) - 0.09 * 8 / 27)
    assert hall_transform(2.0, 0.0) == 2.0


def test_fewer_than_three_runs_have_no_interval() -> None:
    assert confidence_interval([]) == Interval(0, None, None, None)
    assert confidence_interval([1.0, 2.0]) == Interval(2, 1.5, None, None)
    assert confidence_interval([1.0, 1.0], SHARE) == Interval(2, 1.0, None, None)
    assert confidence_interval([1.0, 2.0, 3.0]).low is not None
    assert confidence_interval([1.0] * 3, SHARE).low is not None


def test_runs_that_are_all_alike_know_what_they_did_not_see() -> None:
    unseen = 1 - 0.025 ** (1 / 5)
    found = confidence_interval([0.2] * 5, SHARE)
    assert [found.low, found.high] == pytest.approx([0.2 - unseen * 0.2, 0.2 + unseen * 0.8])
    assert found.bounds == SHARE
    apart = confidence_interval([0.2] * 5, DIFFERENCE_OF_SHARES)
    assert [apart.low, apart.high] == pytest.approx([0.2 - unseen * 1.2, 0.2 + unseen * 0.8])
    assert confidence_interval([0.2] * 5) == Interval(5, 0.2, None, None)
    # Of ten runs that deliver all, docs/statistics.md says 0.69; of a hundred 0.96.
    assert confidence_interval([1.0] * 10, SHARE).low == pytest.approx(0.69, abs=0.005)
    assert confidence_interval([1.0] * 100, SHARE).low == pytest.approx(0.96, abs=0.005)


@pytest.mark.parametrize(
    "found",
    [
        confidence_interval(SKEWED),
        confidence_interval([1.0, 2.0, 4.0]),
        confidence_interval([0.2] * 5, SHARE),
        confidence_interval([0.0] * 5, SHARE),
    ],
)
def test_a_value_at_an_end_of_the_interval_has_one_chance_in_twenty(found: Interval) -> None:
    assert found.mean is not None
    for end in (found.low, found.high):
        assert end is not None
        if end == found.mean:
            continue
        assert found.p_value(end) == pytest.approx(0.05, abs=1e-6)
        inside, outside = found.mean + (end - found.mean) * 0.9, found.mean + (end - found.mean) * 1.1
        near, far = found.p_value(inside), found.p_value(outside)
        assert near is not None
        assert far is not None
        assert near > 0.05 > far >= 0
    assert found.p_value(found.mean) == 1.0


def test_tails_by_hand() -> None:
    # Of five runs alike at 0.2: a true mean of 0.6 asks that half of all runs differ by all that they can.
    assert confidence_interval([0.2] * 5, SHARE).p_value(0.6) == pytest.approx(2 * 0.5**5)
    assert confidence_interval([0.2] * 5, SHARE).p_value(0.1) == pytest.approx(2 * 0.5**5)
    assert confidence_interval([0.2] * 5, SHARE).p_value(0.201) == 1.0
    assert confidence_interval([0.2] * 5, DIFFERENCE_OF_SHARES).p_value(-0.4) == pytest.approx(2 * 0.5**5)
    assert confidence_interval([0.2] * 5, SHARE).p_value(7.0) == 0.0
    # On the side where there is nothing left, nothing but the mean itself is possible.
    assert confidence_interval([0.0] * 5, SHARE).p_value(-0.1) == 0.0
    assert confidence_interval([1.0] * 5, SHARE).p_value(1.1) == 0.0
    assert confidence_interval([3.0] * 5, exact=True).p_value(3.0) == 1.0
    assert confidence_interval([3.0] * 5, exact=True).p_value(3.1) == 0.0
    assert confidence_interval([3.0] * 5).p_value(3.0) is None
    assert Interval(0, None, None, None).p_value(0.0) is None
    assert Interval(3, None, 0.0, 1.0).p_value(0.0) is None
    symmetric = confidence_interval([1.0, 2.0, 3.0])
    assert symmetric.p_value(1.0) == pytest.approx(2 * stats.t.sf(1 / stats.sem([1, 2, 3]), 2))
    assert symmetric.p_value(3.0) == pytest.approx(2 * stats.t.sf(1 / stats.sem([1, 2, 3]), 2))


def test_a_ratio_of_two_means() -> None:
    above, below = [2.0, 5.0, 6.0, 9.0], [1.0, 2.0, 4.0, 4.0]
    found = ratio_confidence_interval(above, below)
    ratio, mean = 22 / 11, 11 / 4
    residuals = [(one - ratio * other) / mean for one, other in zip(above, below, strict=True)]
    assert found.n == 4
    assert found.mean == pytest.approx(ratio)
    assert found.error == pytest.approx(math.sqrt(sum(one**2 for one in residuals) / 3 / 4))
    assert found.low is not None
    assert found.high is not None
    assert found.low < ratio < found.high
    assert ratio_confidence_interval([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == Interval(3, 2.0, None, None)
    assert ratio_confidence_interval([2.0, 4.0, 6.0], [1.0, 2.0, 3.0], exact=True) == Interval(3, 2.0, 2.0, 2.0)
    assert ratio_confidence_interval([1.0, 2.0], [1.0, -1.0]) == Interval(2, None, None, None)
    assert ratio_confidence_interval([], []) == Interval(0, None, None, None)


def test_what_rounding_leaves_of_two_that_are_equal_is_no_difference() -> None:
    assert paired_differences({1: 0.1 + 0.2, 2: 1.0}, {1: 0.3, 2: 1.0 + 1e-9}) == [0.0, pytest.approx(-1e-9)]
    assert average([]) == {}
    assert average([{2: 1.0}, {1: 4.0, 2: 3.0}]) == {1: None, 2: 2.0}


def test_small_things_count_too() -> None:
    near = confidence_interval([1.0, 2.0, 3.0])
    for value in (1.7, 2.3):
        assert near.p_value(value) == pytest.approx(2 * stats.t.sf(0.3 / stats.sem([1, 2, 3]), 2))
    assert confidence_interval([0.2, 0.6], SHARE) == Interval(2, 0.4, None, None)
    assert ratio_confidence_interval([1.0, 2.0], [0.5, 0.5]).mean == 3.0
    assert ratio_confidence_interval([2.0], [1.0]) == Interval(1, 2.0, None, None)
    # What arithmetic leaves of a large ratio is no spread.
    assert ratio_confidence_interval([1e6, 2e6, 3e6 * (1 + 1e-13)], [1.0, 2.0, 3.0]).low is None
    with pytest.raises(ValueError, match="zip"):
        ratio_confidence_interval([1.0, 2.0, 3.0], [1.0, 2.0])
    assert list(average([{3: 1.0, 1: 4.0}, {2: 1.0}])) == [1, 2, 3]
