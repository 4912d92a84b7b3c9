"""Runs of the benchmark of advice that may deliver an event twice: no event is."""

import pytest

from benchmarks.advice import scenario_of
from carrycast.analysis.advice.advisor import apply_candidate, find_candidates
from carrycast.sim.engine.simulation import run


@pytest.mark.parametrize(
    ("fleet", "workload", "label"),
    [
        # The source announces its last message again after others have forgotten the announcement, within its lease.
        ("ferries", "patient", "asp/repaired"),
        # A neighbor sends the event again at the moment in which its lease expires.
        ("walkers", "large", "tree/recovering role=everybody"),
    ],
)
def test_nothing_is_delivered_twice(fleet: str, workload: str, label: str) -> None:
    scenario = scenario_of(fleet, workload)
    [candidate] = [one for one in find_candidates(scenario)[0] if one.label == label]
    delivered = run(apply_candidate(scenario, candidate), 1_000_003).metrics["delivered"]
    assert delivered is not None
    assert delivered > 0
