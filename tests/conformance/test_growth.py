"""A run may last as long as it likes: what the kernel, the checkers and the protocols keep does not grow with it."""

import pytest

from carrycast.sim.engine.simulation import Simulation
from tests.conformance.memory import size
from tests.conformance.subjects import MOBILE, SUBJECTS, Subject, label, scenario_of

EARLY_S = 160
LATE_S = 4 * EARLY_S
WINDOW_S = 40
LONG_RUN: dict[str, object] = {
    "duration_s": float(LATE_S),
    "subscribe": [{"filter": "topic = {topic}", "draw": {"topic": {"integers": [1, 4]}}}],
    "publish": [{"interval_s": 1.0, "lease_s": 10.0, "attributes": {"topic": {"integers": [1, 4]}}}],
    "faults": [{"kind": "loss", "probability": 0.1}],
}


def sizes(simulation: Simulation) -> dict[str, int]:
    recorder = simulation.recorder
    return {
        "queue": len(simulation.kernel),
        "checkers": len(recorder.checkers),
        "delivery": len(recorder.delivery),
        "duplicates": len(recorder.duplicates),
        "protocols": sum(size(node.protocol) for node in simulation.network.nodes),
    }


def peaks(simulation: Simulation, until_s: int) -> dict[str, int]:
    """The largest of each size in the window that ends then."""
    seen = []
    for second in range(until_s - WINDOW_S, until_s, 4):
        simulation.advance(second)
        seen.append(sizes(simulation))
    return {name: max(sample[name] for sample in seen) for name in seen[0]}


@pytest.mark.parametrize("subject", SUBJECTS, ids=label)
def test_state_does_not_grow_with_simulated_time(subject: Subject) -> None:
    simulation = Simulation(scenario_of(MOBILE, subject, **LONG_RUN), 1)
    simulation.start()
    early, late = peaks(simulation, EARLY_S), peaks(simulation, LATE_S)
    assert early["protocols"] > 0
    for name, peak in early.items():
        assert late[name] <= 1.5 * peak + 20, f"{name}: {peak} after {EARLY_S} s, {late[name]} after {LATE_S} s"
