"""Gossip: the random draw, and the extremes p = 0 and p = 1."""

import pytest

from carrycast.core.model import Event, EventId, Subscription, SubscriptionId
from carrycast.core.protocol.effects import Broadcast, Deliver
from carrycast.protocols.gossip.protocol import GossipedEvent
from carrycast.sim.testing import Net, isolate_protocol

WANTED = Subscription(SubscriptionId(0, 0), "topic = 1")


def event(number: int = 0) -> Event:
    return Event(EventId(7, number), {"topic": 1}, lease_s=60.0)


def test_the_source_always_broadcasts() -> None:
    gossip, port = isolate_protocol("gossip", node=7, p=0.0)
    gossip.on_publish(1.0, event())
    assert port.take() == [Broadcast(GossipedEvent(event(), 1, 60.0))]


def test_an_event_is_delivered_once_whatever_the_draw() -> None:
    gossip, port = isolate_protocol("gossip", p=0.0)
    gossip.on_subscribe(0.0, WANTED)
    for sender in (1, 2, 3):
        gossip.on_message(1.0, sender, GossipedEvent(event(), 2, 50.0), "radio")
    assert port.take() == [Deliver(WANTED.id, event(), 2)]


@pytest.mark.parametrize("p", [0.3, 0.7])
def test_a_relay_rebroadcasts_with_probability_p(p: float) -> None:
    gossip, port = isolate_protocol("gossip", p=p)
    for number in range(2000):
        gossip.on_message(1.0, 3, GossipedEvent(event(number), 1, 50.0), "radio")
    assert abs(len(port.take()) / 2000 - p) < 4 * (p * (1 - p) / 2000) ** 0.5


def test_one_number_is_drawn_for_an_event_and_none_for_duplicates() -> None:
    gossip, port = isolate_protocol("gossip", p=0.5)
    for number in range(200):
        gossip.on_message(1.0, 3, GossipedEvent(event(number), 1, 50.0), "radio")
    first = len(port.take())
    assert 0 < first < 200
    for number in range(200):
        gossip.on_message(2.0, 4, GossipedEvent(event(number), 1, 50.0), "radio")
    assert port.take() == []


def test_within_sure_hops_every_node_rebroadcasts() -> None:
    gossip, port = isolate_protocol("gossip", p=0.0, sure_hops=2)
    for hops, passed in ((1, True), (2, True), (3, False)):
        gossip.on_message(1.0, 3, GossipedEvent(event(hops), hops, 50.0), "radio")
        assert bool(port.take()) == passed


def test_sure_hops_do_not_change_other_draws() -> None:
    outcomes = []
    for sure_hops in (0, 1):
        gossip, port = isolate_protocol("gossip", p=0.5, sure_hops=sure_hops)
        gossip.on_message(1.0, 3, GossipedEvent(event(999), 1, 50.0), "radio")
        port.take()
        for number in range(100):
            gossip.on_message(1.0, 3, GossipedEvent(event(number), 2, 50.0), "radio")
        outcomes.append([message.event.id for message in port.take_messages() if isinstance(message, GossipedEvent)])
    assert outcomes[0] == outcomes[1]


def test_with_p_of_1_it_is_flooding() -> None:
    nets = [Net.grid(4, 4, "gossip", p=1.0), Net.grid(4, 4, "flooding")]
    for net in nets:
        for node in range(16):
            net.subscribe(node)
        net.publish(0)
        net.run(5)
    deliveries = [[(row["time_s"], row["node"], row["hops"]) for row in net.rows("deliver")] for net in nets]
    assert deliveries[0] == deliveries[1]


def test_with_p_of_0_only_the_neighbors_of_the_source_get_it() -> None:
    net = Net.line(4, "gossip", p=0.0)
    for node in range(4):
        net.subscribe(node)
    event = net.publish(1)
    net.run(5)
    assert [net.list_delivered(node) for node in range(4)] == [[event], [event], [event], []]


def test_reach_rises_with_p() -> None:
    reached = []
    for p in (0.2, 0.5, 0.8):
        net = Net.grid(7, 7, "gossip", p=p)
        for node in range(49):
            net.subscribe(node)
        for _ in range(10):
            net.publish(24)
        net.run(5)
        reached.append(sum(len(net.list_delivered(node)) for node in range(49)))
    assert reached == sorted(reached)
    assert reached[0] < reached[2] / 2
