"""Means, intervals and pairs."""

import math
from random import Random

import pytest
from scipy import stats

from driftcast.pipeline.report.tables import csv_text, mean_text, number
from driftcast.pipeline.statistics import Interval, average, interval, paired_differences, student_t


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 9, 19, 29, 100, 999, 50_000])
def test_students_t_is_scipys(degrees: int) -> None:
    assert student_t(degrees) == pytest.approx(float(stats.t.ppf(0.975, degrees)), rel=1e-9)


def test_the_interval_covers_the_mean_nineteen_times_in_twenty() -> None:
    rng = Random(5)
    covered = 0
    for _ in range(2000):
        found = interval(rng.gauss(3.0, 2.0) for _ in range(6))
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= 3.0 <= found.high
    # Five standard deviations of a binomial count.
    assert abs(covered - 1900) < 5 * math.sqrt(2000 * 0.95 * 0.05)


def test_values_that_do_not_exist_are_left_out() -> None:
    assert interval([None, 2.0, None, 4.0]).n == 2
    assert interval([None]) == Interval(0, None, None, None)
    assert interval([7.0]) == Interval(1, 7.0, None, None)
    assert interval([0.1, 0.1, 0.1]) == Interval(3, 0.1, 0.1, 0.1)


def test_pairs_are_made_of_seeds_that_both_have() -> None:
    assert paired_differences({1: 5.0, 2: None, 3: 1.0, 4: 2.0}, {1: 2.0, 2: 1.0, 3: 4.0}) == [3.0, -3.0]


def test_a_seed_stays_one_observation_however_many_points_it_ran_at() -> None:
    assert average([{1: 1.0, 2: 4.0}, {1: 3.0, 2: None}]) == {1: 2.0, 2: None}


def test_numbers_are_shown_with_the_digits_that_matter() -> None:
    assert mean_text(Interval(5, 0.14163, 0.0216, 0.2616)) == "0.14 ± 0.12"
    assert mean_text(Interval(5, 7353.2, 6701.0, 8005.4)) == "7,353 ± 652"
    assert mean_text(Interval(0, None, None, None)) == "–"
    assert mean_text(Interval(1, 3.0, None, None)) == "3.00"
    assert mean_text(Interval(9, 0.0, 0.0, 0.0)) == "0"
    assert number(None) == "–"
    assert number(296048.6) == "296,049"
    assert csv_text([{"a": 1, "b": None}, {"a": "x,y", "c": 0.1}]) == 'a,b,c\n1,,\n"x,y",,0.1\n'
