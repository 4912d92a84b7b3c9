"""Claims are decided by intervals: true, false or undecided, on rows whose truth is known."""

import math
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, strategies as st

from benchmarks.coverage import decided_by_chance
from carrycast.analysis.spark.claims import (
    UNDECIDED,
    Claim,
    ClaimCase,
    decide,
    decide_all,
    evaluate_claims,
    holm_decisions,
    runs_to_observe,
    why_undecided,
)
from carrycast.analysis.spark.definition import Axis, ClaimEntry, Definition, Relation
from carrycast.analysis.spark.experiment import Experiment, expand_experiment
from carrycast.analysis.spark.records import Record
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.statistics import SHARE, Interval, confidence_interval
from carrycast.analysis.spark.validation import check_definition
from carrycast.errors import UserError
from tests.pipeline.spread import spread

SCENARIO: dict[str, object] = {
    "duration_s": 1.0,
    "nodes": 2,
    "mobility": {"model": "line", "spacing_m": 1.0},
    "protocol": {"name": "gossip"},
}
NOISE = (0.0, 0.01, -0.01, 0.02, -0.02)


def study(*claims: ClaimEntry, hook: Path | None = None) -> Experiment:
    axes = [
        Axis(name="p", key="protocol.p", values=[0.3, 0.5, 0.7]),
        Axis(name="range", key="radio.range_m", values=[100.0, 200.0], labels=["near", "far"]),
    ]
    definition = Definition(name="study", scenario=SCENARIO, runs=len(NOISE), axes=axes, claims=list(claims))
    return expand_experiment(definition, Path(), hook=hook)


def evaluate(entry: ClaimEntry, means: dict[tuple[str, str], float], own: float = 1.0, runs: int = 5) -> Claim:
    """Every seed shifts all points alike, so pairs know what means alone do not; `own` is noise of single runs."""
    experiment = study(entry)
    records: list[Record] = []
    for number, ((p, reach), mean) in enumerate(means.items()):
        for place, noise in enumerate(NOISE[:runs]):
            records.append(
                {
                    "experiment": "study",
                    "point": f"{p} / {reach}",
                    "seed": place + 1,
                    "error": None,
                    "delivery_ratio": mean + 10 * noise + own * NOISE[(place + number) % len(NOISE)],
                }
            )
    (claim,) = evaluate_claims(Results(experiment, records, Path()))
    return claim


def compare(relation: Relation, value: float = 0.0, tolerance: float = 0.0) -> ClaimEntry:
    return ClaimEntry(
        statement="more is more",
        kind="compare",
        metric="delivery_ratio",
        left={"p": 0.7, "range": "near"},
        right={"p": 0.3, "range": "near"},
        relation=relation,
        value=value,
        tolerance=tolerance,
    )


CLEAR = {("0.3", "near"): 0.2, ("0.5", "near"): 0.5, ("0.7", "near"): 0.8}


@pytest.mark.parametrize(
    ("entry", "holds"),
    [
        (compare(">"), True),
        (compare("<"), False),
        (compare(">", 0.5), True),
        (compare(">", 0.6), None),
        (compare(">", 0.7), False),
        (compare(">=", 0.7, tolerance=0.15), True),
        (compare("=", 0.6, tolerance=0.1), True),
        (compare("=", 0.6, tolerance=0.001), None),
        (compare("=", 0.9, tolerance=0.1), False),
    ],
)
def test_a_comparison_is_decided_by_its_paired_interval(entry: ClaimEntry, holds: bool | None) -> None:
    claim = evaluate(entry, CLEAR)
    assert claim.holds is holds
    assert claim.ours == pytest.approx(0.6, abs=0.02)
    assert claim.low is not None
    assert claim.high is not None
    assert claim.low < 0.6 < claim.high


def test_pairing_sees_what_the_noise_of_seeds_would_hide() -> None:
    # Seeds shift the values by up to 0.4; the difference of 0.05 is nearly the same in all of them.
    claim = evaluate(compare(">"), {("0.3", "near"): 0.20, ("0.7", "near"): 0.25}, own=0.5)
    assert claim.holds is True
    alone = ClaimEntry(statement="s", kind="bound", metric="delivery_ratio", of={"p": 0.3}, relation=">", value=0.15)
    assert evaluate(alone, {("0.3", "near"): 0.20, ("0.3", "far"): 0.20}).holds is None


def trend(direction: str, tolerance: float = 0.0) -> ClaimEntry:
    assert direction in ("rising", "falling")
    return ClaimEntry(
        statement="it rises",
        kind="trend",
        metric="delivery_ratio",
        of={"range": "near"},
        along="p",
        direction="rising" if direction == "rising" else "falling",
        tolerance=tolerance,
    )


def test_a_trend_needs_every_step() -> None:
    assert evaluate(trend("rising"), CLEAR).holds is True
    assert evaluate(trend("falling"), CLEAR).holds is False
    flat = {**CLEAR, ("0.7", "near"): 0.5}
    assert evaluate(trend("rising"), flat).holds is None
    assert evaluate(trend("rising", tolerance=0.1), flat).holds is True
    bent = {**CLEAR, ("0.7", "near"): 0.3}
    assert evaluate(trend("rising"), bent).holds is False


def test_a_trend_tells_its_weakest_step() -> None:
    claim = evaluate(trend("rising"), {**CLEAR, ("0.5", "near"): 0.75})
    assert claim.note == "decisive step: 0.5 to 0.7"
    assert claim.ours == pytest.approx(0.05, abs=0.02)


def test_one_run_decides_nothing() -> None:
    claim = evaluate(compare(">"), CLEAR, runs=1)
    assert claim.holds is None
    assert claim.low is None
    assert claim.note == "1 run(s) decide nothing"


def test_failed_runs_and_missing_values_are_left_out_of_pairs() -> None:
    experiment = study(compare(">"))
    records: list[Record] = [
        {
            **{"experiment": "study", "point": point, "seed": seed, "error": None},
            "delivery_ratio": spread(value, point, seed),
        }
        for point, value in (("0.7 / near", 0.8), ("0.3 / near", 0.2))
        for seed in range(1, 6)
    ]
    records[0] |= {"delivery_ratio": None, "error": "broken"}
    (claim,) = evaluate_claims(Results(experiment, records, Path()))
    assert claim.holds is True
    assert claim.low == pytest.approx(0.6, abs=1e-4)
    assert claim.high == pytest.approx(0.6, abs=1e-4)


def test_a_calibrated_number_says_so() -> None:
    entry = ClaimEntry(
        statement="fitted",
        kind="bound",
        metric="delivery_ratio",
        relation="=",
        value=0.5,
        tolerance=1.0,
        paper=0.5,
        calibration=True,
    )
    row = evaluate(entry, CLEAR).as_row()
    assert row["calibration"] is True
    assert row["paper"] == 0.5
    assert list(row) == [
        "experiment",
        "figure",
        "statement",
        "paper",
        "ours",
        "low",
        "high",
        "holds",
        "together",
        "chance",
        "calibration",
        "note",
        "asked",
        "runs",
    ]


@pytest.mark.parametrize("relation", [">", ">=", "<", "<=", "="])
def test_an_unknown_interval_is_undecided(relation: Relation) -> None:
    assert decide(Interval(1, 5.0, None, None), relation, 0.0) == (None, None)
    assert decide(Interval(0, None, None, None), relation, 0.0) == (None, None)


def test_a_point_on_the_bound_is_not_beyond_it() -> None:
    exact = confidence_interval([2.0, 2.0], exact=True)
    assert decide(exact, ">", 2.0).holds is False
    assert decide(exact, ">=", 2.0).holds is True
    assert decide(exact, "=", 2.0) == (True, 0.0), "where nothing is left to luck nothing is decided by chance"


def test_runs_that_are_all_alike_decide_nothing_unless_the_measure_has_bounds() -> None:
    alike = confidence_interval([1.0] * 10)
    assert (alike.mean, alike.low) == (1.0, None)
    assert decide(alike, ">", 0.5).holds is None
    assert why_undecided(alike) == "all 10 runs alike: they show no spread to judge by"
    # Of shares: if a third of the runs differed, ten alike would be seen in less than two of a hundred tries.
    share = confidence_interval([1.0] * 10, SHARE)
    assert share.low == pytest.approx(0.025**0.1)
    assert share.high == 1.0
    assert decide(share, ">", 0.5).holds is True
    assert decide(share, ">", 0.9).holds is None
    assert share.p_value(0.025**0.1) == pytest.approx(0.05)
    assert decide(confidence_interval([1.0] * 1000, SHARE), ">", 0.99).holds is True


def test_of_twenty_claims_without_a_difference_all_stay_undecided_in_nineteen_experiments_of_twenty() -> None:
    alone, together = decided_by_chance(300, 10, Random(3))
    # 1 - 0.95^20 of the experiments have a claim that is decided; together at most one in twenty has.
    assert alone > 0.5
    assert together < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 300)


def test_holm_goes_on_as_long_as_each_stands() -> None:
    assert holm_decisions([0.012, None, 0.001, 0.03]) == [True, False, True, False]
    # 0.03 would stand among two, but one that is smaller does not stand among three.
    assert holm_decisions([0.03, 0.02, 0.04]) == [False, False, False]
    assert holm_decisions([]) == []


@given(st.lists(st.floats(-5, 5), min_size=3, max_size=12), st.floats(-6, 6))
def test_the_tails_agree_with_the_interval(values: list[float], bound: float) -> None:
    found = confidence_interval(values)
    # Beside values of 5 the ends of an interval that is narrower than this are lost to rounding.
    if found.low is not None and found.high is not None and found.error is not None and found.error > 1e-6:
        assert found.mean is not None
        assert found.low < found.mean < found.high
        tails = found.p_value(bound)
        assert tails is not None
        for end in (found.low, found.high):
            assert found.p_value(end) == pytest.approx(0.05, rel=1e-3)
        assert (tails < 0.05) == (not found.low <= bound <= found.high) or tails == pytest.approx(0.05, rel=1e-3)


def test_a_hook_adds_claims_of_its_own(tmp_path: Path) -> None:
    hook = tmp_path / "claims.py"
    hook.write_text(
        "from carrycast.analysis.spark.claims import Claim\n"
        "def claims(results):\n"
        "    n = len(results.points({'p': 0.3}))\n"
        "    yield Claim(experiment='study', figure='', statement='two',"
        " paper=2, ours=n, low=n, high=n, holds=n == 2)\n"
    )
    (claim,) = evaluate_claims(Results(study(hook=hook), [], tmp_path))
    assert claim.holds is True
    hook.write_text("1 / 0\n")
    with pytest.raises(UserError, match=r"claims\.py: cannot be loaded: ZeroDivisionError: division by zero"):
        evaluate_claims(Results(study(hook=hook), [], tmp_path))
    hook.write_text("")
    with pytest.raises(UserError, match=r"claims\.py: has no function claims\(results\)"):
        evaluate_claims(Results(study(hook=hook), [], tmp_path))


def test_the_case_that_is_shown_has_the_verdict_of_the_claim() -> None:
    # The wide one reaches further to the wrong side and is undecided; the narrow one fails.
    wide, narrow = (
        ClaimCase("wide", Interval(5, -0.0169, -0.0475, 0.0138)),
        ClaimCase("narrow", Interval(5, -0.02, -0.03, -0.01)),
    )
    assert decide_all([wide, narrow], ">", 0.0).case == narrow
    assert decide_all([wide, ClaimCase("fine", Interval(5, 1.0, 0.9, 1.1))], ">", 0.0) == (UNDECIDED, wide)
    unknown = ClaimCase("unknown", Interval(1, 0.5, None, None))
    assert decide_all([wide, unknown], ">", 0.0) == (UNDECIDED, unknown)
    assert decide_all([unknown, narrow], ">", 0.0).holds is False
    assert decide_all([], ">", 0.0).holds is None


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(0, 2)), min_size=1, max_size=6),
    st.sampled_from((">", ">=", "<", "<=", "=")),
    st.floats(-2, 2),
    st.floats(0, 1),
)
def test_a_verdict_never_contradicts_its_evidence(
    drawn: list[tuple[float, float]], relation: Relation, value: float, tolerance: float
) -> None:
    cases = [
        ClaimCase(str(place), Interval(9, mean, mean - half, mean + half)) for place, (mean, half) in enumerate(drawn)
    ]
    decision, decisive = decide_all(cases, relation, value, tolerance)
    holds = decision.holds
    assert decide(decisive.found, relation, value, tolerance).holds is holds
    each = [decide(case.found, relation, value, tolerance).holds for case in cases]
    assert holds is (False if False in each else None if None in each else True)


def test_a_trend_that_fails_shows_the_step_that_fails() -> None:
    experiment = study(trend("rising"))
    steps = {
        "0.3 / near": (0.50,) * 5,
        "0.5 / near": (0.9, 0.1, 0.9, 0.1, 0.6),
        "0.7 / near": (0.89, 0.091, 0.889, 0.09, 0.59),
    }
    records: list[Record] = [
        {"experiment": "study", "point": point, "seed": seed, "error": None, "delivery_ratio": value}
        for point, values in steps.items()
        for seed, value in enumerate(values)
    ]
    (claim,) = evaluate_claims(Results(experiment, records, Path()))
    assert claim.holds is False
    assert claim.note == "decisive step: 0.5 to 0.7"
    assert claim.high is not None
    assert claim.high < 0


def test_few_runs_decide_nothing_about_a_mean_that_hangs_on_rare_ones() -> None:
    # Twelve runs of ASP at a validity of 100 s; one in a hundred loses half of its messages or more.
    seen = [96.0, 98.0, 97.0, 99.0, 98.0, 99.0, 99.0, 98.0, 100.0, 98.0, 98.0, 98.0]
    assert decide(confidence_interval(seen), "=", 95.0, 2.0).holds is False
    assert decide(confidence_interval(seen), "=", 95.0, 2.0, rare=0.01).holds is None
    assert decide(confidence_interval(seen * 25), "=", 95.0, 2.0, rare=0.01).holds is False
    assert [runs_to_observe(rare) for rare in (0.0, 0.01, 0.1, 0.5)] == [0, 299, 29, 5]


def test_what_is_rare_is_stated_in_the_experiment() -> None:
    entry = compare(">")
    plain = study(entry)
    definition = msgspec.structs.replace(plain.definition, rare={"delivery_ratio": 0.1})
    records: list[Record] = [
        {"experiment": "study", "point": point, "seed": seed, "error": None, "delivery_ratio": value + seed / 100}
        for point, value in (("0.7 / near", 0.8), ("0.3 / near", 0.2))
        for seed in range(12)
    ]
    assert [claim.holds for claim in evaluate_claims(Results(plain, records, Path()))] == [True]
    (claim,) = evaluate_claims(Results(Experiment(definition, plain.points, plain.seeds), records, Path()))
    assert claim.holds is None
    assert claim.note == "12 runs decide nothing: the mean hangs on one run in 10, and 29 show one"
    with pytest.raises(UserError, match="study: rare: 'delivery' is not a metric"):
        check_definition(msgspec.structs.replace(definition, rare={"delivery": 0.1}), "study")
