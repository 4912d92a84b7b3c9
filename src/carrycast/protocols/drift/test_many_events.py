"""Drift where there is much: full buffers, newcomers that lack thousands of events, queues that are too small."""

from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.model import EventId, Failure
from carrycast.core.parts.buffer import BufferedEvent, LeasedBuffer
from carrycast.core.protocol import Link, RecordingPort
from carrycast.core.wire import Message
from carrycast.protocols.drift.broadcast import MAX_WINDOW, WINDOW, WINDOW_S
from carrycast.protocols.drift.eviction import RendezvousEviction
from carrycast.protocols.drift.messages import IDS_PER_MESSAGE, Data, Digest, Hash, Offer
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable
from carrycast.protocols.drift.pull import ProxiedPull
from carrycast.protocols.drift.rules import short_address
from carrycast.protocols.drift.runs import make_runs, pack_ids, select_range
from carrycast.protocols.drift.settings import DriftSettings
from carrycast.protocols.drift.test_drift import Bench, event, names
from carrycast.protocols.drift.test_runs import IDS

NODES = range(1, 6)


class Looking(RendezvousEviction):
    """Counts how often an event is looked at."""

    looks = 0

    def _is_redundant(self, id: EventId, around: object) -> bool:
        self.looks += 1
        return super()._is_redundant(id, around)  # type: ignore[arg-type]


class Full:
    """A buffer, and who else holds what is in it."""

    def __init__(self, capacity: int) -> None:
        port = RecordingPort()
        self.neighbors = DriftNeighborTable(port)
        self.eviction = Looking(0, self.neighbors, ProxiedPull(0, port, Random(1), DriftSettings(), self.neighbors))
        self.buffer = LeasedBuffer(capacity)
        self.capacity = capacity

    def hold(self, id: EventId, until: float, names: bytes = b"") -> EventId | None:
        """What had to go for it."""
        gone = None
        if len(self.buffer) >= self.capacity:
            gone = self.eviction.choose(self.buffer)
            self.buffer.discard(gone)
            self.eviction.remove(gone)
        self.buffer.add(BufferedEvent(until, id, event(id.source, id.sequence), 0))
        self.eviction.add(id, names)
        return gone

    def spare(self) -> list[EventId]:
        """What a look at everything finds, the first to go last."""
        around = {name: node for node, name in self.neighbors.addresses.items()}
        by_age = sorted(self.buffer.events.values(), reverse=True)
        requesters = self.eviction.proxied_pull.requesters
        kept = [
            one.id
            for one in by_age
            if one.id not in requesters and RendezvousEviction._is_redundant(self.eviction, one.id, around)
        ]
        return kept or [by_age[-1].id]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["hold", "hold", "hold", "seen", "link", "proxied_pull"]),
        st.integers(0, 40),
        st.sampled_from(NODES),
    ),
    max_size=80,
)


@settings(deadline=None)
@given(steps=STEPS)
def test_what_goes_is_what_a_look_at_everything_would_choose(steps: list[tuple[str, int, int]]) -> None:
    full = Full(6)
    chosen: list[EventId] = []
    for step, (kind, number, node) in enumerate(steps):
        if kind == "hold":
            if len(full.buffer) >= full.capacity:
                while chosen and chosen[-1] not in full.buffer:
                    chosen.pop()
                chosen = chosen or full.spare()
            gone = full.hold(EventId(9, step), number, names(node) if number % 2 else b"")
            assert gone is None or gone == chosen.pop()
        elif kind == "seen" and full.buffer.events:
            full.eviction.add_holders(sorted(full.buffer)[number % len(full.buffer)], short_address(node))
        elif kind == "link":
            chosen.clear()
            link = Link(node, "radio", 0.001)
            _ = full.neighbors.remove(link) if node in full.neighbors else full.neighbors.add(link)
            full.eviction.on_neighbors_changed()
        elif kind == "proxied_pull" and full.buffer.events:
            full.eviction.proxied_pull.add(node, sorted(full.buffer)[number % len(full.buffer)])


def test_a_full_buffer_costs_as_much_for_each_event_however_much_it_holds() -> None:
    """It looked at all that it held for each event that came: with 10,000 a node took 30 a second."""
    full = Full(1000)
    for number in range(3000):
        full.hold(EventId(9, number), number)
    assert full.eviction.looks <= 3000


@given(
    ids=IDS, low=st.none() | st.sampled_from([EventId(5, 3), EventId(0, 0)]), high=st.none() | st.just(EventId(20, 9))
)
def test_runs_within_bounds_are_those_of_the_ids_within(
    ids: set[EventId], low: EventId | None, high: EventId | None
) -> None:
    within = {id for id in ids if (low is None or id >= low) and (high is None or id <= high)}
    assert select_range(make_runs(ids), low, high) == make_runs(within)


def stocked(bench: Bench, number: int) -> list[EventId]:
    """Events of somebody who is gone; every second number, so that no two make a run."""
    ids = [EventId(9, 2 * n) for n in range(number)]
    for id in ids:
        bench.hear(1, Data(event(9, id.sequence), 1, 50.0, names(0, *bench.node._neighbors)))
    return ids


def lacking_all(bench: Bench, node: int) -> None:
    """A neighbor has met nothing but one other event; what it lacks waits to be sent."""
    bench.hear(node, Digest(pack_ids([EventId(8, 0)])))


def speak(bench: Bench, now: float) -> list[Message]:
    """Everybody whose wait is over speaks."""
    said = [one for key in [key for key in bench.armed if key[0] == "rebroadcast"] for one in bench.fire(key, now)]
    return [one for one in said if isinstance(one, Data)]


def alone_with_one(number: int) -> tuple[Bench, list[int]]:
    """A node with a lone neighbor that lacks so many events, and the tokens of what it has sent to it."""
    bench = Bench(2)
    for n in range(number):
        bench.node._known_events.add(1.0, BufferedEvent(60.0, EventId(9, 2 * n), event(9, 2 * n), 0))
    bench.settle()
    lacking_all(bench, 2)
    tokens = []
    for key in [key for key in bench.armed if key[0] == "rebroadcast"]:
        bench.fire(key, 2.0)
        tokens += [one.token for one in bench.sent if one.token is not None]
    return bench, tokens


def test_a_newcomer_is_told_of_very_much_by_turns() -> None:
    bench = Bench(1, 2)
    ids = stocked(bench, MAX_WINDOW + 100)
    lacking_all(bench, 2)
    assert len(speak(bench, 2.0)) == MAX_WINDOW
    assert bench.armed[WINDOW] == WINDOW_S
    later = [one for one in bench.fire(WINDOW, 2.0 + WINDOW_S) if isinstance(one, Data)]
    assert len(later) == 100
    assert WINDOW not in bench.armed
    assert not bench.node._broadcast._deferred
    assert len(ids) == MAX_WINDOW + 100


def test_who_waits_for_a_turn_is_passed_over_if_it_is_served_meanwhile() -> None:
    bench = Bench(1, 2)
    ids = stocked(bench, MAX_WINDOW + 2)
    lacking_all(bench, 2)
    speak(bench, 2.0)
    first, last = ids[-2:]
    assert list(bench.node._broadcast._deferred) == [first, last]
    bench.hear(2, Offer(pack_ids([first])), 2.01)
    [told] = [one for one in bench.fire(WINDOW, 2.0 + WINDOW_S) if isinstance(one, Data)]
    assert told.event.id == last


def test_a_lone_neighbor_gets_the_next_when_one_has_arrived() -> None:
    bench, tokens = alone_with_one(MAX_WINDOW + 3)
    assert len(tokens) == MAX_WINDOW
    bench.node.on_sent(2.01, tokens[0], None)
    bench.settle()
    assert len(bench.sent) == 1


def test_a_full_queue_is_not_tried_again_and_again() -> None:
    """Each that was refused came again within milliseconds, and the node did nothing else."""
    bench, tokens = alone_with_one(20)
    # Five find room in the queue, the others do not.
    for token in tokens[5:]:
        bench.node.on_sent(2.0, token, Failure.QUEUE_FULL)
    bench.settle()
    for round in range(10):
        for key in [key for key in bench.armed if key[0] == "rebroadcast"]:
            bench.fire(key, 2.02 + round / 100)
            assert not bench.sent
    assert len(bench.node._broadcast._deferred) == 15
    bench.node.on_sent(2.2, tokens[0], None)
    bench.settle()
    # The one that has arrived has made room for itself and for one more.
    assert len(bench.sent) == 2


def test_a_digest_of_many_parts_will_do_for_a_while() -> None:
    """Where much is met hashes always differ, and digests of half a megabyte went to and fro."""
    bench = Bench(1)
    stocked(bench, 10 * IDS_PER_MESSAGE)
    for value in (1, 2, 3, 4):
        # A hash, and then, since that is known, a digest.
        bench.hear(1, Hash(7, value, value), 3.0)
        said = bench.fire("reply", 3.0)
        if value == 2:
            assert [type(one) for one in said] == [Digest] * len(said)
            assert len(said) > 1
        if value > 2:
            assert said == []
    bench.hear(1, Hash(7, 5, 5), 4.0)
    assert len(bench.fire("reply", 4.0)) > 1
    # A clock that was set back does not silence it: the hash is known, and a newcomer asks for more.
    bench.node.on_link_up(-101.0, Link(2, "radio", 0.001))
    bench.node._reconciliation._new.clear()
    bench.hear(2, Hash(7, 6, 6), -100.0)
    assert len(bench.fire("reply", -100.0)) > 1


@pytest.mark.parametrize("number", [1, 5])
def test_digests_of_one_part_are_said_as_often_as_before(number: int) -> None:
    bench = Bench(1)
    stocked(bench, number)
    bench.hear(1, Hash(7, 1, 1), 3.0)
    bench.fire("reply", 3.0)
    for value in (2, 3):
        bench.hear(1, Hash(7, value, value), 3.0)
        assert [type(one) for one in bench.fire("reply", 3.0)] == [Digest]
