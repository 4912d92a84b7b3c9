"""Outputs far larger than a packet, over a path of brokers, while their modulator moves."""

from pathlib import Path

import pytest

from carrycast.protocols.overlay.tests.test_worked_examples import LA, LB, LC, TESTBED, get_overlay
from carrycast.sim.testing import Net

FLOOD = """
def flood(event, state):
    depth = int(state or b"0") + event.attributes["rain"]
    return ({"depth": depth}, depth.to_bytes(8) * 10_000), str(depth).encode()
"""


@pytest.mark.parametrize("router", ["shortest_path", "aodv"])
def test_large_outputs_arrive_whole_and_in_order_during_a_relocation(router: str, tmp_path: Path) -> None:
    """[002 §4.3] 100 x 100 doubles, at the rate of 802.11b; the modulator moves from B to A in the middle."""
    (tmp_path / "f.py").write_text(FLOOD)
    scenario: dict[str, object] = {
        "router": {"name": router},
        "roles": {"broker": [LA, LB]},
        "base": str(tmp_path),
        "processors": [{"id": "flood", "function": "f.py:flood", "nodes": "broker"}],
        "discovery": {"mode": "none"},
        "radio": {"rate_bps": 5e6, "queue": 1000},
    }
    net = Net.contacts(TESTBED, "overlay", scenario, update_s=5.0, look_s=2.0)
    id = net.subscribe(LC, processor="flood")
    net.run(80)
    for _ in range(30):
        net.publish(LA, {"rain": 1})
        net.run(2)
    net.run(30)
    assert get_overlay(net, LC).client.home == LA
    outputs = net.list_delivered(LC, id)
    assert [event.attributes["depth"] for event in outputs] == list(range(1, 31))
    assert {event.id.source for event in outputs} == {LA, LB}
    for event in outputs:
        assert event.payload == int(event.attributes["depth"]).to_bytes(8) * 10_000
