"""The benchmark of advice: two candidates that the runs cannot tell apart are a tie."""

import pytest

from benchmarks.advice import ties
from carrycast.analysis.advice.objective import parse_objective
from carrycast.analysis.advice.successive_halving import Metrics

OBJECTIVE = parse_objective("delivery >= 0.6, least bytes")


def runs(delivery: float, spread: float, total_bytes: float) -> dict[int, Metrics]:
    """Ten seeds, alternately above and below a mean."""
    return {
        seed: {"delivery_ratio": delivery + (-1) ** seed * spread * (1 + seed / 20), "total_bytes": total_bytes + seed}
        for seed in range(10)
    }


@pytest.mark.parametrize(
    ("pick", "best", "tied"),
    [
        (runs(0.7, 0.01, 200), runs(0.7, 0.01, 100), False),
        (runs(0.7, 0.01, 200), runs(0.605, 0.05, 100), True),
        (runs(0.5, 0.01, 100), runs(0.7, 0.01, 100), False),
        (runs(0.59, 0.05, 200), runs(0.605, 0.05, 100), False),
        (runs(0.5, 0.01, 200), runs(0.4, 0.01, 100), True),
        (runs(0.7, 0.01, 100), runs(0.7, 0.01, 100), True),
        (runs(0.5, 0.01, 100), runs(0.504, 0.01, 200), True),
        (runs(0.5, 0.01, 100), runs(0.51, 0.01, 200), False),
        (runs(0.599, 0.01, 100), runs(0.603, 0.01, 200), False),
    ],
    ids=[
        "both keep the limit and one costs more",
        "the winner may not keep the limit and the choice does",
        "only the winner keeps the limit",
        "neither is sure of the limit and one costs more",
        "neither keeps it, and the choice misses it by less",
        "alike",
        "neither keeps it, and the choice misses it by hardly more",
        "neither keeps it, and the choice misses it by clearly more",
        "the choice misses by hardly more what the winner keeps",
    ],
)
def test_a_tie_is_what_the_runs_leave_open(pick: dict[int, Metrics], best: dict[int, Metrics], tied: bool) -> None:
    assert ties(pick, best, OBJECTIVE) is tied
