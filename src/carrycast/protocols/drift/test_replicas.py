"""Counting who holds an event, for who waits until enough do."""

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


def node_with(neighbors: int, **settings: Any) -> tuple[Drift, RecordingPort]:
    """Node 0, which has just published an event, and its neighbors from 1 on."""
    protocol, port = isolate_protocol("drift", 0, **settings)
    assert isinstance(protocol, Drift)
    for neighbor in range(1, neighbors + 1):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    protocol.on_publish(1.0, Event(EventId(0, 1), {}, lease_s=60.0))
    port.take()
    return protocol, port


def asked(effects: list[Effect]) -> list[NodeId]:
    return [effect.target for effect in effects if isinstance(effect, Send) and isinstance(effect.message, HolderQuery)]


def waits(effects: list[Effect]) -> list[float]:
    return [effect.delay_s for effect in effects if isinstance(effect, SetTimer) and effect.key == REPLICAS]


def test_as_many_as_are_missing_are_asked_and_then_others_ever_more_seldom() -> None:
    drift, port = node_with(5)
    drift.on_await_replicas(1.0, EventId(0, 1), 2)
    assert waits(port.take()) == pytest.approx([0.01])
    drift.on_timer(1.01, REPLICAS)
    effects = port.take()
    assert asked(effects) == [1, 2]
    assert waits(effects) == pytest.approx([2.0])
    drift.on_message(1.1, 2, Offer(pack_id(EventId(0, 1))), "radio")
    assert [effect for effect in port.take() if isinstance(effect, AcknowledgeReplica)] == [
        AcknowledgeReplica(EventId(0, 1), 2)
    ]
    drift.on_timer(3.01, REPLICAS)
    effects = port.take()
    assert asked(effects) == [3], "one is missing, and the first of the others was asked"
    assert waits(effects) == pytest.approx([8.0])


def test_enough_is_the_end_of_it_and_nobody_is_told_of_twice() -> None:
    drift, port = node_with(3)
    drift.on_await_replicas(1.0, EventId(0, 1), 2)
    for sender in (1, 1, 2, 3):
        drift.on_message(1.1, sender, Offer(pack_id(EventId(0, 1))), "radio")
    assert [effect.neighbor for effect in port.take() if isinstance(effect, AcknowledgeReplica)] == [1, 2]
    drift.on_timer(1.2, REPLICAS)
    effects = port.take()
    assert (asked(effects), waits(effects)) == ([], [])


def test_who_holds_it_says_so_and_who_lacks_it_asks_for_it() -> None:
    drift, port = node_with(2)
    drift.on_message(2.0, 1, HolderQuery(pack_ids([EventId(0, 1), EventId(9, 9)])), "radio")
    effects = port.take()
    answers = [effect for effect in effects if isinstance(effect, Send)]
    assert [(answer.target, answer.message) for answer in answers] == [(1, Offer(pack_id(EventId(0, 1))))]
    drift.on_timer(3.0, "pull")
    wants = [effect.message for effect in port.take() if isinstance(effect, Broadcast)]
    assert [type(message).__name__ for message in wants] == ["PullRequest"]


def test_what_was_let_go_of_is_not_said_to_be_held() -> None:
    drift, port = node_with(1, buffer=1)
    drift.on_message(1.5, 1, Data(Event(EventId(1, 1), {}, lease_s=60.0), 1, 60.0), "radio")
    port.take()
    drift.on_message(2.0, 1, HolderQuery(pack_ids([EventId(0, 1), EventId(1, 1)])), "radio")
    [answer] = [effect.message for effect in port.take() if isinstance(effect, Send)]
    assert answer == Offer(pack_id(EventId(1, 1)))


def test_what_is_gone_is_counted_no_longer() -> None:
    drift, port = node_with(1, buffer=1)
    drift.on_await_replicas(1.0, EventId(0, 1), 1)
    drift.on_publish(1.1, Event(EventId(0, 2), {}, lease_s=60.0))
    port.take()
    drift.on_timer(1.2, REPLICAS)
    effects = port.take()
    assert (asked(effects), waits(effects)) == ([], [])
    drift.on_await_replicas(1.3, EventId(7, 7), 1)
    assert port.take() == [], "nobody counts what is not here"


def test_a_question_for_more_than_anybody_asks_for_has_one_answer() -> None:
    drift, port = node_with(1, buffer=2000)
    for number in range(1000):
        drift.on_publish(1.0, Event(EventId(0, 10 + 2 * number), {}, lease_s=60.0))
    port.take()
    many = [EventId(0, 10 + 2 * number) for number in range(1000)]
    assert len(list(split_ids(many))) == 4
    drift.on_message(2.0, 1, HolderQuery(pack_ids(many)), "radio")
    assert len([effect for effect in port.take() if isinstance(effect, Send)]) == 1


def test_alone_it_waits_for_somebody() -> None:
    drift, port = node_with(0)
    drift.on_await_replicas(1.0, EventId(0, 1), 1)
    drift.on_timer(1.01, REPLICAS)
    port.take()
    drift.on_link_up(2.0, Link(4, "radio", 0.001))
    port.take()
    drift.on_timer(3.01, REPLICAS)
    assert asked(port.take()) == [4]
