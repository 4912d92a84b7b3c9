"""The evaluation of a candidate on the held-out seeds: intervals stay within the bounds of a metric."""

import pytest

from carrycast.analysis.advice.advisor import Candidate, evaluate_candidate

HIGH: dict[int, dict[str, float | None]] = {
    seed: {"delivery_ratio": value} for seed, value in enumerate([1.0, 1.0, 0.8, 1.0, 0.6])
}
NONE_AT_ALL: dict[int, dict[str, float | None]] = {
    seed: {"delivery_ratio": value} for seed, value in enumerate([0.0, 0.0, 0.3, 0.0, 0.0])
}
ALIKE: dict[int, dict[str, float | None]] = {seed: {"delivery_ratio": 1.0} for seed in range(5)}
CANDIDATE = Candidate("flooding", {"name": "flooding"})


@pytest.mark.parametrize("rows", [HIGH, NONE_AT_ALL])
def test_no_delivery_is_more_than_all_or_less_than_nothing(rows: dict[int, dict[str, float | None]]) -> None:
    found = evaluate_candidate(CANDIDATE, rows, ALIKE)
    mean, difference = found.means["delivery_ratio"], found.differences["delivery_ratio"]
    assert mean.low is not None
    assert mean.high is not None
    assert 0.0 <= mean.low < mean.high <= 1.0
    assert difference.low is not None
    assert difference.high is not None
    assert -1.0 <= difference.low < difference.high <= 1.0


def test_runs_that_are_all_alike_have_a_mean_and_no_interval() -> None:
    found = evaluate_candidate(CANDIDATE, ALIKE, ALIKE)
    assert found.means["delivery_ratio"].as_row() == {"n": 5, "mean": 1.0, "low": None, "high": None}
