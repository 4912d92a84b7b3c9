"""Ids that clash: nodes with equal short addresses, two nodes with one id, two events with one id. The other nodes get
all events that flooding among them would deliver, and state and messages stay bounded.

In the simulator the id of a node is its index, so two nodes cannot have the same. These tests have their own small
network, in which ids are given."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count, pairwise
from random import Random
from typing import Any

import pytest

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Link, TimerKey
from carrycast.core.protocol.effects import Broadcast, CancelTimer, Deliver, Note, Send, SetTimer
from carrycast.core.wire import Message
from carrycast.protocols.drift.messages import Data
from carrycast.protocols.drift.protocol import Drift
from carrycast.protocols.drift.rules import id_sketch
from carrycast.sim.testing import isolate_protocol

HOP_S = 0.001
RADIO = "radio"


@dataclass(frozen=True)
class Reception:
    """A message that arrives at a place."""

    sender: NodeId
    message: Message


class Places:
    """Nodes with given ids at places 0, 1, 2, ...; links connect places. A message to an id is received by all
    neighbors that have this id."""

    def __init__(self, ids: list[NodeId], links: Iterable[tuple[int, int]], **settings: Any) -> None:
        self.ids = ids
        self.now = 0.0
        self.delivered: list[list[Event]] = [[] for _ in ids]
        self.reasons: set[str] = set()
        self.transmissions = 0
        self._adjacent: list[list[int]] = [[] for _ in ids]
        for a, b in links:
            self._adjacent[a].append(b)
            self._adjacent[b].append(a)
        self._order = count()
        self._queue: list[tuple[float, int, int, TimerKey | Reception]] = []
        self._armed: list[dict[TimerKey, int]] = [{} for _ in ids]
        isolated = [isolate_protocol("drift", id, seed=place, **settings) for place, id in enumerate(ids)]
        self.nodes = [node for node, _ in isolated if isinstance(node, Drift)]
        self._ports = [port for _, port in isolated]
        for place, node in enumerate(self.nodes):
            node.on_subscribe(0.0, Subscription(SubscriptionId(node.node, 0), "topic = 1"))
            for other in self._adjacent[place]:
                node.on_link_up(0.0, Link(ids[other], RADIO, HOP_S))
            self._carry_out(place)

    def link(self, a: int, b: int) -> None:
        for place, other in ((a, b), (b, a)):
            self._adjacent[place].append(other)
            self.nodes[place].on_link_up(self.now, Link(self.ids[other], RADIO, HOP_S))
            self._carry_out(place)

    def publish(self, place: int, event: Event) -> None:
        self.nodes[place].on_publish(self.now, event)
        self._carry_out(place)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            self.now, order, place, what = heapq.heappop(self._queue)
            if isinstance(what, Reception):
                self.nodes[place].on_message(self.now, what.sender, what.message, RADIO)
            elif self._armed[place].get(what) == order:
                del self._armed[place][what]
                self.nodes[place].on_timer(self.now, what)
            self._carry_out(place)
        self.now = end

    def _carry_out(self, place: int) -> None:
        for effect in self._ports[place].take():
            match effect:
                case SetTimer(key=key, delay_s=delay_s):
                    self._armed[place][key] = self._put(delay_s, place, key)
                case CancelTimer(key=key):
                    self._armed[place].pop(key, None)
                case Broadcast(message=message):
                    self._transmit(place, message, self._adjacent[place])
                case Send(target=target, message=message, token=token):
                    receivers = [other for other in self._adjacent[place] if self.ids[other] == target]
                    self._transmit(place, message, receivers)
                    if token is not None:
                        self.nodes[place].on_sent(self.now, token, None)
                case Deliver(event=event):
                    self.delivered[place].append(event)
                case Note(fact=fact) if fact.kind == "drop":
                    self.reasons.add(fact.reason)

    def _transmit(self, place: int, message: Message, receivers: Iterable[int]) -> None:
        self.transmissions += 1
        for other in receivers:
            self._put(HOP_S, other, Reception(self.ids[place], message))

    def _put(self, delay_s: float, place: int, what: TimerKey | Reception) -> int:
        order = next(self._order)
        heapq.heappush(self._queue, (self.now + delay_s, order, place, what))
        return order


def scatter_ids(rng: Random, nodes: int) -> list[tuple[int, int]]:
    """Return a ring, and as many random links across it."""
    links = {(place, (place + 1) % nodes) for place in range(nodes)}
    while len(links) < 2 * nodes:
        a, b = rng.sample(range(nodes), 2)
        if (a, b) not in links and (b, a) not in links:
            links.add((a, b))
    return sorted(links)


def event(source: NodeId, number: int, text: str = "") -> Event:
    return Event(EventId(source, number), {"topic": 1, "text": text}, lease_s=600.0)


def live_ids(rng: Random, nodes: int) -> list[NodeId]:
    return [rng.getrandbits(63) for _ in range(nodes)]


@pytest.mark.parametrize("names", [1, 4], ids=["one short address", "four short addresses"])
@pytest.mark.parametrize("seed", [1, 2])
def test_equal_short_addresses_cost_time_and_no_delivery(seed: int, names: int) -> None:
    rng = Random(seed)
    ids = [(id >> 16 << 16) + place % names for place, id in enumerate(live_ids(rng, 20))]
    places = Places(ids, scatter_ids(rng, 20))
    events = []
    for number in range(15):
        place = rng.randrange(20)
        events.append(event(ids[place], number))
        places.publish(place, events[-1])
        places.run(1)
    places.run(90)
    for got in places.delivered:
        assert sorted(one.id for one in got) == sorted(one.id for one in events)


@pytest.mark.parametrize("twins", [(3, 13), (3, 4), (3, 5)], ids=["far apart", "neighbors", "with a common neighbor"])
@pytest.mark.parametrize("seed", [1, 2])
def test_two_nodes_with_one_id_do_not_harm_the_others(seed: int, twins: tuple[int, int]) -> None:
    rng = Random(seed)
    ids = live_ids(rng, 20)
    ids[twins[1]] = ids[twins[0]]
    # The others are one network without the twins.
    honest = [place for place in range(20) if place not in twins]
    links = {*scatter_ids(rng, 20), *pairwise(honest)}
    places = Places(ids, sorted(links))
    events = []
    for number in range(15):
        place = rng.choice(honest)
        events.append(event(ids[place], number))
        places.publish(place, events[-1])
        # Each twin counts its own events, so their events have equal ids and different contents.
        for twin in twins:
            places.publish(twin, event(ids[twin], number, f"of place {twin}"))
        places.run(1)
    places.run(90)
    for place in honest:
        got = [one.id for one in places.delivered[place]]
        assert len(got) == len(set(got)), "of two events with one id the second is not delivered"
        assert {one.id for one in events} <= set(got)


def test_two_events_with_one_id_are_one_and_cause_no_endless_messages() -> None:
    ids = live_ids(Random(1), 4)
    places = Places(ids, [(0, 1), (1, 2), (2, 3)])
    one, other = event(77, 0, "one"), event(77, 0, "other")
    places.publish(0, one)
    places.publish(3, other)
    places.run(120)
    assert [len(got) for got in places.delivered] == [1, 1, 1, 1]
    assert {got[0].attributes["text"] for got in places.delivered} == {"one", "other"}
    before = places.transmissions
    places.run(600)
    # At most two hashes of each node in a minute: their sets of ids are equal.
    assert places.transmissions - before <= 4 * 2 * 10


def test_a_buffer_stores_one_of_two_events_with_one_id() -> None:
    node, port = isolate_protocol("drift", buffer=10, max_met=20)
    assert isinstance(node, Drift)
    node.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "topic = 1"))
    node.on_link_up(0.0, Link(1, RADIO, HOP_S))
    for number in range(200):
        for text in ("one", "other"):
            node.on_message(1.0, 1, Data(event(9, number, text), 1, 600.0), RADIO)
    effects = port.take()
    assert [one.event.attributes["text"] for one in effects if isinstance(one, Deliver)] == ["one"] * 200
    kinds = [one.fact.kind for one in effects if isinstance(one, Note)]
    assert kinds.count("store") - kinds.count("evict") == 10


def find_clashing_ids() -> tuple[EventId, EventId]:
    """Find two ids with equal sketches, as one pair in 4,294,967,296 has."""
    seen: dict[int, EventId] = {}
    for number in count():
        id = EventId(5, number)
        first = seen.setdefault(id_sketch(id), id)
        if first != id:
            return first, id
    raise AssertionError


def test_events_with_equal_sketches_reach_a_later_neighbor() -> None:
    ids = find_clashing_ids()
    assert id_sketch(ids[0]) == id_sketch(ids[1])
    others = [EventId(source, 0) for source in range(10, 15)]
    places = Places([5, 6, 7], [(0, 1)], hash_max_s=86_400)
    for id in (*others, *ids):
        places.publish(0, Event(id, {"topic": 1}, lease_s=600.0))
        places.run(5)
    # The two sketches cancel out, so a node that knows neither event has the same sketch.
    for id in others:
        places.publish(2, Event(id, {"topic": 1}, lease_s=600.0))
    places.link(1, 2)
    places.run(5)
    for got in places.delivered:
        assert sorted(one.id for one in got) == sorted([*ids, *others])
