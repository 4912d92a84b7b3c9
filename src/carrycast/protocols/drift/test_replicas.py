"""Counting the replicas of an event, for an application that waits until there are enough."""

from typing import Any

import pytest

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import Link, RecordingPort
from carrycast.core.protocol.effects import AcknowledgeReplica, Broadcast, Effect, Send, SetTimer
from carrycast.protocols.drift.exchange import REPLICAS
from carrycast.protocols.drift.messages import Data, HolderQuery, Offer, split_ids
from carrycast.protocols.drift.protocol import Drift
from carrycast.protocols.drift.runs import pack_id, pack_ids
from carrycast.sim.testing import isolate_protocol


def make_node(neighbors: int, **settings: Any) -> tuple[Drift, RecordingPort]:
    """Make node 0, which has just published an event, with neighbors from 1 on."""
    protocol, port = isolate_protocol("drift", 0, **settings)
    assert isinstance(protocol, Drift)
    for neighbor in range(1, neighbors + 1):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    protocol.on_publish(1.0, Event(EventId(0, 1), {}, lease_s=60.0))
    port.take()
    return protocol, port


def list_queried(effects: list[Effect]) -> list[NodeId]:
    return [effect.target for effect in effects if isinstance(effect, Send) and isinstance(effect.message, HolderQuery)]


def list_timers(effects: list[Effect]) -> list[float]:
    return [effect.delay_s for effect in effects if isinstance(effect, SetTimer) and effect.key == REPLICAS]


def test_missing_replicas_are_queried_then_others_at_growing_intervals() -> None:
    drift, port = make_node(5)
    drift.on_await_replicas(1.0, EventId(0, 1), 2)
    assert list_timers(port.take()) == pytest.approx([0.01])
    drift.on_timer(1.01, REPLICAS)
    effects = port.take()
    assert list_queried(effects) == [1, 2]
    assert list_timers(effects) == pytest.approx([2.0])
    drift.on_message(1.1, 2, Offer(pack_id(EventId(0, 1))), "radio")
    assert [effect for effect in port.take() if isinstance(effect, AcknowledgeReplica)] == [
        AcknowledgeReplica(EventId(0, 1), 2)
    ]
    drift.on_timer(3.01, REPLICAS)
    effects = port.take()
    assert list_queried(effects) == [3], "one replica is missing, and the first of the others was queried"
    assert list_timers(effects) == pytest.approx([8.0])


def test_queries_end_with_enough_replicas_and_each_is_acknowledged_once() -> None:
    drift, port = make_node(3)
    drift.on_await_replicas(1.0, EventId(0, 1), 2)
    for sender in (1, 1, 2, 3):
        drift.on_message(1.1, sender, Offer(pack_id(EventId(0, 1))), "radio")
    assert [effect.neighbor for effect in port.take() if isinstance(effect, AcknowledgeReplica)] == [1, 2]
    drift.on_timer(1.2, REPLICAS)
    effects = port.take()
    assert (list_queried(effects), list_timers(effects)) == ([], [])


def test_a_holder_offers_the_queried_events_and_requests_missing_ones() -> None:
    drift, port = make_node(2)
    drift.on_message(2.0, 1, HolderQuery(pack_ids([EventId(0, 1), EventId(9, 9)])), "radio")
    effects = port.take()
    answers = [effect for effect in effects if isinstance(effect, Send)]
    assert [(answer.target, answer.message) for answer in answers] == [(1, Offer(pack_id(EventId(0, 1))))]
    drift.on_timer(3.0, "pull")
    pulls = [effect.message for effect in port.take() if isinstance(effect, Broadcast)]
    assert [type(message).__name__ for message in pulls] == ["PullRequest"]


def test_an_evicted_event_is_not_offered() -> None:
    drift, port = make_node(1, buffer=1)
    drift.on_message(1.5, 1, Data(Event(EventId(1, 1), {}, lease_s=60.0), 1, 60.0), "radio")
    port.take()
    drift.on_message(2.0, 1, HolderQuery(pack_ids([EventId(0, 1), EventId(1, 1)])), "radio")
    [answer] = [effect.message for effect in port.take() if isinstance(effect, Send)]
    assert answer == Offer(pack_id(EventId(1, 1)))


def test_replicas_of_an_evicted_event_are_not_counted() -> None:
    drift, port = make_node(1, buffer=1)
    drift.on_await_replicas(1.0, EventId(0, 1), 1)
    drift.on_publish(1.1, Event(EventId(0, 2), {}, lease_s=60.0))
    port.take()
    drift.on_timer(1.2, REPLICAS)
    effects = port.take()
    assert (list_queried(effects), list_timers(effects)) == ([], [])
    drift.on_await_replicas(1.3, EventId(7, 7), 1)
    assert port.take() == [], "replicas of an unknown event are not counted"


def test_a_query_with_too_many_ids_has_one_answer() -> None:
    drift, port = make_node(1, buffer=2000)
    for number in range(1000):
        drift.on_publish(1.0, Event(EventId(0, 10 + 2 * number), {}, lease_s=60.0))
    port.take()
    many = [EventId(0, 10 + 2 * number) for number in range(1000)]
    assert len(list(split_ids(many))) == 4
    drift.on_message(2.0, 1, HolderQuery(pack_ids(many)), "radio")
    assert len([effect for effect in port.take() if isinstance(effect, Send)]) == 1


def test_without_neighbors_queries_wait_for_a_contact() -> None:
    drift, port = make_node(0)
    drift.on_await_replicas(1.0, EventId(0, 1), 1)
    drift.on_timer(1.01, REPLICAS)
    port.take()
    drift.on_link_up(2.0, Link(4, "radio", 0.001))
    port.take()
    drift.on_timer(3.01, REPLICAS)
    assert list_queried(port.take()) == [4]
