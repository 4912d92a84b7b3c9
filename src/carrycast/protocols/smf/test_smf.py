"""SMF: forwarding by relays, HELLOs, and stories of small networks."""

import pytest

from carrycast.core.model import Event, EventId, Failure, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import Broadcast, Deliver, Note, SetTimer
from carrycast.protocols.smf.protocol import Hello, RelayedEvent
from carrycast.sim.testing import Net, isolate_protocol

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)
WANTED = Subscription(SubscriptionId(0, 0), "topic = 1")


def make_node() -> tuple[Protocol, RecordingPort]:
    """Make node 0, which neighbor 1 has selected as its relay and neighbor 2 has not."""
    protocol, port = isolate_protocol("smf")
    protocol.on_subscribe(0.0, WANTED)
    protocol.on_message(0.0, 1, Hello(6.0, 3, (0,), (), ()), "radio")
    protocol.on_message(0.0, 2, Hello(6.0, 3, (), (0,), ()), "radio")
    port.take()
    return protocol, port


def test_a_relay_forwards_for_its_selector_and_once() -> None:
    protocol, port = make_node()
    protocol.on_message(1.0, 1, RelayedEvent(EVENT, 1, 50.0), "radio")
    assert port.take() == [Deliver(WANTED.id, EVENT, 1), Broadcast(RelayedEvent(EVENT, 2, 50.0))]
    protocol.on_message(1.1, 1, RelayedEvent(EVENT, 1, 50.0), "radio")
    assert port.take() == []


def test_a_node_does_not_forward_for_a_neighbor_that_has_not_selected_it() -> None:
    protocol, port = make_node()
    protocol.on_message(1.0, 2, RelayedEvent(EVENT, 1, 50.0), "radio")
    assert port.take() == [Deliver(WANTED.id, EVENT, 1)]
    protocol.on_message(1.1, 1, RelayedEvent(EVENT, 2, 50.0), "radio")
    assert port.take() == [Broadcast(RelayedEvent(EVENT, 3, 50.0))], "a duplicate from the selector"


def test_all_forward_for_a_neighbor_without_hellos() -> None:
    protocol, port = make_node()
    protocol.on_message(1.0, 9, RelayedEvent(EVENT, 1, 50.0), "radio")
    assert Broadcast(RelayedEvent(EVENT, 2, 50.0)) in port.take()


def test_a_selection_ends_with_its_hello_and_with_the_link() -> None:
    protocol, port = make_node()
    protocol.on_message(5.9, 2, Hello(6.0, 3, (), (0,), ()), "radio")
    protocol.on_message(6.1, 1, Hello(6.0, 3, (), (0,), ()), "radio")
    protocol.on_message(6.2, 1, RelayedEvent(EVENT, 1, 50.0), "radio")
    assert port.take() == [Deliver(WANTED.id, EVENT, 1)]


def test_the_link_layer_ends_a_link() -> None:
    protocol, port = make_node()
    link = Link(1, "radio", 0.001)
    protocol.on_link_up(0.0, link)
    protocol.on_link_down(1.0, link, Failure.SILENT)
    protocol.on_timer(1.0, "hello")
    [hello] = port.take_messages()
    assert isinstance(hello, Hello)
    assert hello.lost == (1,)
    assert hello.symmetric == (2,)


@pytest.mark.parametrize(("cost_s", "interval_s"), [(0.001, 2.0), (1.333, 2 * 1.333 * (24 + 2 * 5) / 500 / 0.05)])
def test_hellos_are_rarer_on_slow_links(cost_s: float, interval_s: float) -> None:
    protocol, port = make_node()
    protocol.on_link_up(0.0, Link(1, "radio", cost_s))
    protocol.on_timer(1.0, "hello")
    sent, timer = port.take()
    assert isinstance(sent, Broadcast)
    assert isinstance(timer, SetTimer)
    assert isinstance(sent.message, Hello)
    assert sent.message.validity_s == pytest.approx(3 * interval_s)
    assert 0.75 * interval_s <= timer.delay_s <= interval_s


def test_old_events_and_those_at_the_hop_limit_are_not_forwarded() -> None:
    protocol, port = make_node()
    protocol.on_message(1.0, 1, RelayedEvent(EVENT, 255, 50.0), "radio")
    assert Note(Fact("drop", EVENT.id, reason="too_many_hops")) in port.take()
    late = Event(EventId(7, 1), {"topic": 1}, lease_s=60.0)
    protocol.on_message(1.0, 1, RelayedEvent(late, 1, 29.0), "radio")
    assert port.take() == [Note(Fact("drop", late.id, reason="flood_over"))]


def test_a_crowd_of_neighbors_is_refused_with_a_reason() -> None:
    protocol, port = make_node()
    for neighbor in range(3, 1100):
        protocol.on_message(1.0, neighbor, Hello(6.0, 3, (), (), ()), "radio")
    assert Note(Fact("drop", peer=1099, reason="hello_too_many_neighbors")) in port.take()


def test_in_a_grid_relays_reach_all_with_fewer_transmissions_than_flooding() -> None:
    net = Net.grid(5, 5, "smf")
    for node in range(25):
        net.subscribe(node)
    net.run(10)
    event = net.publish(12)
    net.run(2)
    assert all(net.list_delivered(node) == [event] for node in range(25))
    assert net.count_sent("RelayedEvent") < 25


def test_in_a_full_mesh_nobody_forwards() -> None:
    """[RFC 3626 §8.3.1] Without nodes two hops away there are no relays."""
    net = Net.graph([(a, b) for a in range(8) for b in range(a)], "smf")
    for node in range(8):
        net.subscribe(node)
    net.run(10)
    event = net.publish(0)
    net.run(2)
    assert all(net.list_delivered(node) == [event] for node in range(8))
    assert net.count_sent("RelayedEvent") == 1
