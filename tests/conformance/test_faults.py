"""Everything goes wrong at once, over several seeds; the checkers watch."""

import pytest

from carrycast.sim.engine.simulation import run
from carrycast.trace import Level
from tests.conformance.subjects import FAULTS, SUBJECTS, Subject, label, replay, scenario_of


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("subject", SUBJECTS, ids=label)
def test_it_keeps_the_rules_whatever_goes_wrong(subject: Subject, seed: int) -> None:
    try:
        done = run(scenario_of(FAULTS, subject), seed, Level.FULL)
    except Exception as error:
        error.add_note(f"do it again with: {replay(FAULTS, subject, seed)}")
        raise
    rows = done.trace.table().to_pylist()
    reasons = {row["reason"] for row in rows if row["kind"] == "drop"}
    assert {"fault_loss", "fault_corruption"} <= reasons
    assert any(row["kind"] == "crash" for row in rows)
    assert any(row["kind"] == "deliver" for row in rows)
