"""Runs of the benchmark of advice in which an event was once delivered a second time."""

import pytest

from benchmarks.advice import scenario_of
from carrycast.analysis.advice.advisor import apply_candidate, find_candidates
from carrycast.sim.engine.simulation import run


@pytest.mark.parametrize(
    ("fleet", "workload", "label"),
    [
        # The source announced its last message anew when its announcement had long been forgotten, its lease not over.
        ("ferries", "patient", "asp/repaired"),
        # A neighbor gave it again in the moment in which its lease ended.
        ("walkers", "large", "tree/recovering role=everybody"),
    ],
)
def test_nothing_is_delivered_twice(fleet: str, workload: str, label: str) -> None:
    scenario = scenario_of(fleet, workload)
    [candidate] = [one for one in find_candidates(scenario)[0] if one.label == label]
    delivered = run(apply_candidate(scenario, candidate), 1_000_003).metrics["delivered"]
    assert delivered is not None
    assert delivered > 0
