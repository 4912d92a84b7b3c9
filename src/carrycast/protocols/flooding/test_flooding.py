"""Flooding: its handlers one by one, and stories of small networks."""

import math
from typing import Any

import networkx as nx
import pytest

from carrycast.core.model import Event, EventId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact
from carrycast.core.protocol.effects import Broadcast, CancelTimer, Deliver, Note, SetTimer
from carrycast.errors import UserError
from carrycast.protocols.flooding.protocol import FloodedEvent
from carrycast.sim.testing import Net, isolate_protocol

EVENT = Event(EventId(7, 0), {"topic": 1}, lease_s=60.0)
WANTED = Subscription(SubscriptionId(0, 0), "topic = 1")


def test_a_published_event_is_delivered_and_broadcast_with_its_whole_lease() -> None:
    flooding, port = isolate_protocol("flooding", node=7)
    flooding.on_subscribe(0.0, WANTED)
    flooding.on_publish(1.0, EVENT)
    assert port.take() == [Deliver(WANTED.id, EVENT, 0), Broadcast(FloodedEvent(EVENT, 1, 60.0))]


def test_an_event_from_a_neighbor_is_delivered_and_rebroadcast_once() -> None:
    flooding, port = isolate_protocol("flooding")
    flooding.on_subscribe(0.0, WANTED)
    flooding.on_message(1.0, 3, FloodedEvent(EVENT, 4, 50.0), "radio")
    assert port.take() == [Deliver(WANTED.id, EVENT, 4), Broadcast(FloodedEvent(EVENT, 5, 50.0))]
    flooding.on_message(1.1, 5, FloodedEvent(EVENT, 2, 50.0), "radio")
    flooding.on_publish(1.2, EVENT)
    assert port.take() == []


def test_an_event_at_the_hop_limit_is_delivered_and_not_rebroadcast() -> None:
    flooding, port = isolate_protocol("flooding", max_hops=3)
    flooding.on_subscribe(0.0, WANTED)
    flooding.on_message(1.0, 3, FloodedEvent(EVENT, 3, 50.0), "radio")
    assert port.take() == [
        Deliver(WANTED.id, EVENT, 3),
        Note(Fact("drop", EVENT.id, reason="too_many_hops")),
    ]


def test_with_jitter_a_rebroadcast_is_delayed_and_a_stop_cancels_it() -> None:
    flooding, port = isolate_protocol("flooding", jitter_s=0.5)
    flooding.on_message(1.0, 3, FloodedEvent(EVENT, 1, 50.0), "radio")
    (timer,) = port.take()
    assert isinstance(timer, SetTimer)
    assert 0 <= timer.delay_s <= 0.5
    flooding.on_stop(1.1)
    assert port.take() == [CancelTimer(timer.key)]


@pytest.mark.parametrize("jitter_s", [0.0, 0.1])
def test_every_node_of_a_connected_network_transmits_an_event_exactly_once(jitter_s: float) -> None:
    net = Net.grid(5, 5, jitter_s=jitter_s)
    for node in range(25):
        net.subscribe(node)
    event = net.publish(12)
    net.run(10)
    assert [net.count_sent(node=node) for node in range(25)] == [1] * 25
    assert all(net.list_delivered(node) == [event] for node in range(25))


def test_without_jitter_an_event_takes_shortest_paths() -> None:
    edges = list(nx.random_regular_graph(3, 20, seed=4).edges)
    net = Net.graph(edges)
    for node in range(20):
        net.subscribe(node)
    net.publish(0)
    net.run(10)
    hops = {row["node"]: row["hops"] for row in net.rows("deliver")}
    assert hops == dict(nx.single_source_shortest_path_length(nx.Graph(edges), 0))


def test_a_later_contact_gets_no_earlier_event() -> None:
    net = Net.contacts([(0, 1, 0.0, 100.0), (1, 2, 50.0, 100.0)])
    net.subscribe(2)
    net.run(1)
    net.publish(0)
    net.run(98)
    assert net.list_delivered(2) == []


def test_a_later_subscription_gets_no_earlier_event() -> None:
    net = Net.line(2)
    net.publish(0)
    net.run(1)
    net.subscribe(1)
    net.run(10)
    assert net.list_delivered(1) == []


@pytest.mark.parametrize("protocol", ["flooding", "gossip"])
@pytest.mark.parametrize("lease_s", [20.0, math.inf])
@pytest.mark.parametrize(
    "settings",
    [{"seen_s": 0.001}, {"seen_s": 0.1}, {"seen_s": 0.5}, {"seen_s": 0.5, "jitter_s": 0.25}, {"seen_s": 3.0}],
)
@pytest.mark.parametrize("delay_s", [0.0, 0.002, 0.1, 1.0])
def test_no_event_is_delivered_twice_for_any_seen_time(
    protocol: str, lease_s: float, settings: dict[str, float], delay_s: float
) -> None:
    """In a ring copies come back to the source; the checkers end a run in which one is delivered again."""
    scenario = {"radio": {"model": "disk", "delay_s": delay_s}}
    chosen: dict[str, Any] = {**settings, "p": 1.0 if protocol == "gossip" else None}
    net = Net.ring(9, protocol, scenario=scenario, **chosen)
    for node in range(9):
        net.subscribe(node)
    event = net.publish(0, lease_s=lease_s)
    net.run(30)
    assert net.list_delivered(0) == [event]
    late = net.count_dropped("flood_over") + net.count_dropped("lease_over")
    assert late or all(net.list_delivered(node) == [event] for node in range(9)), (
        "a flood ends early only by a drop with a reason"
    )


def test_a_seen_time_below_twice_the_jitter_is_rejected() -> None:
    with pytest.raises(UserError, match="seen_s must be at least twice jitter_s"):
        isolate_protocol("flooding", seen_s=1.0, jitter_s=0.6)
    isolate_protocol("flooding", seen_s=1.2, jitter_s=0.6)


def test_a_seen_time_below_its_minimum_is_rejected() -> None:
    with pytest.raises(UserError, match="seen_s"):
        isolate_protocol("flooding", seen_s=5e-324)
