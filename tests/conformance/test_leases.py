"""Leases of every length: shorter than a hop takes, and longer than anything else."""

import math

import pytest

from carrycast.sim.engine.simulation import run
from tests.conformance.subjects import MOBILE, SUBJECTS, Subject, label, scenario_of


@pytest.mark.parametrize("lease_s", [5e-324, 1e-12, 1e-6, 0.01, 1e300, math.inf])
@pytest.mark.parametrize("subject", SUBJECTS, ids=label)
def test_an_event_may_live_for_no_time_at_all_or_for_ever(subject: Subject, lease_s: float) -> None:
    """Every message can be read by others, and nothing is kept or delivered past its lease."""
    publish = [{"count": 6, "lease_s": lease_s, "attributes": {"topic": {"integers": [1, 4]}}}]
    scenario = scenario_of(MOBILE, subject, publish=publish, duration_s=10.0)
    assert run(scenario, 1, recode=True).metrics["published"]
