"""Clocks that are set forward or back while their nodes run. The other nodes get all events, no event is delivered
twice or kept past its lease (the checkers of every run verify that), and no timer waits for the clock to catch up."""

import pytest

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import Link, RecordingPort
from carrycast.core.protocol.effects import Note, SetTimer
from carrycast.protocols.drift.messages import Data, Hash
from carrycast.protocols.drift.neighbor_table import PROVISIONAL_S
from carrycast.protocols.drift.protocol import Drift
from carrycast.protocols.drift.rules import short_address
from carrycast.sim.scenario.faults import Clock
from carrycast.sim.testing import Net, isolate_protocol

STEPS_S = [1000.0, 50.0, -50.0, -1000.0]


def make_faults(nodes: list[NodeId]) -> dict[str, object]:
    return {"faults": [{"kind": "clock_skew", "nodes": nodes}]}


def set_clock(net: Net, node: NodeId, step_s: float) -> None:
    net.machine(node).clock = Clock(step_s, 0.0)


@pytest.mark.parametrize("lease_s", [30.0, 600.0])
@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_clock_that_is_set_costs_no_delivery(step_s: float, lease_s: float) -> None:
    net = Net.grid(3, 3, "drift", make_faults([4]))
    for node in range(9):
        net.subscribe(node, "topic = 1")
    net.run(12)
    published = []
    for number in range(40):
        published.append(net.publish(number % 9, {"topic": 1}, lease_s=lease_s))
        if number == 12:
            set_clock(net, 4, step_s)
        net.run(1)
    net.run(700)
    for node in range(9):
        assert sorted(event.id for event in net.list_delivered(node)) == sorted(event.id for event in published)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_a_relay_forwards_events_after_its_clock_was_set(step_s: float) -> None:
    net = Net.line(3, "drift", make_faults([1]))
    net.subscribe(2, "topic = 1")
    net.publish(0, {"topic": 2}, lease_s=300.0)
    net.run(5)
    set_clock(net, 1, step_s)
    published = []
    for _ in range(30):
        published.append(net.publish(0, {"topic": 1}, lease_s=20.0))
        net.run(1)
    net.run(60)
    assert sorted(event.id for event in net.list_delivered(2)) == sorted(event.id for event in published)


def event(number: int, lease_s: float = 60.0) -> Event:
    return Event(EventId(9, number), {"topic": 1}, lease_s=lease_s)


def make_node(*neighbors: NodeId) -> tuple[Drift, RecordingPort]:
    node, port = isolate_protocol("drift")
    assert isinstance(node, Drift)
    for neighbor in neighbors:
        node.on_link_up(2000.0, Link(neighbor, "radio", 0.001))
    port.take()
    return node, port


def test_a_clock_set_back_does_not_lengthen_the_backoff() -> None:
    node, port = make_node(1, 2, 3)
    node.on_message(2000.0, 1, Data(event(0), 1, 50.0), "radio")
    node.on_message(1000.0, 2, Data(event(0), 1, 50.0), "radio")
    waits = [
        one.delay_s for one in port.take() if isinstance(one, SetTimer) and one.key == ("rebroadcast", EventId(9, 0))
    ]
    assert len(waits) == 2
    assert max(waits) < 0.1


def test_a_clock_set_back_does_not_keep_a_provisional_neighbor() -> None:
    node, port = make_node()
    node.on_message(2000.0, 7, Hash(5, 5, 5), "radio")
    assert SetTimer("provisional", PROVISIONAL_S) in port.take()
    node.on_timer(1000.0 + PROVISIONAL_S, "provisional")
    node.on_publish(1010.0, Event(EventId(0, 0), {"topic": 1}))
    assert not [one for one in port.take() if isinstance(one, SetTimer) and one.key == "trickle"], (
        "there is no neighbor"
    )


def test_leases_end_by_timers_when_the_clock_was_set_back() -> None:
    node, port = make_node(1)
    node.on_message(2000.0, 1, Data(event(0, 30.0), 1, 30.0, short_address(0)), "radio")
    # A timer of 30 s fires, and the clock shows a time a thousand seconds earlier.
    node.on_timer(1030.0, "lease")
    gone = [one.fact for one in port.take() if isinstance(one, Note) and one.fact.kind == "evict"]
    assert [(fact.event, fact.reason) for fact in gone] == [(EventId(9, 0), "lease_over")]


def test_an_event_whose_lease_the_clock_skipped_is_still_a_duplicate() -> None:
    node, port = make_node(1)
    node.on_message(2000.0, 1, Data(event(0, 300.0), 1, 300.0, short_address(0)), "radio")
    node.on_timer(9000.0, "lease")
    node.on_message(9001.0, 1, Data(event(1, 300.0), 1, 300.0, short_address(0)), "radio")
    node.on_timer(9400.0, "lease")
    port.take()
    # On other nodes the lease of the first event has not expired.
    node.on_message(9200.0, 1, Data(event(0, 300.0), 1, 100.0, short_address(0)), "radio")
    assert not [one for one in port.take() if isinstance(one, Note) and one.fact.kind == "store"]
