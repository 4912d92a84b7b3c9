"""Drift with many events: full buffers, newcomers that are missing thousands of events, small queues."""

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
from carrycast.protocols.drift.test_drift import Bench, event, pack_addresses
from carrycast.protocols.drift.test_runs import IDS

NODES = range(1, 6)


class CountingEviction(RendezvousEviction):
    """Counts how often an event is examined."""

    examined = 0

    def _is_redundant(self, id: EventId, nodes: object) -> bool:
        self.examined += 1
        return super()._is_redundant(id, nodes)  # type: ignore[arg-type]


class FullBuffer:
    """A buffer, and the known holders of its events."""

    def __init__(self, capacity: int) -> None:
        port = RecordingPort()
        self.neighbors = DriftNeighborTable(port)
        self.eviction = CountingEviction(
            0, self.neighbors, ProxiedPull(0, port, Random(1), DriftSettings(), self.neighbors)
        )
        self.buffer = LeasedBuffer(capacity)
        self.capacity = capacity

    def hold(self, id: EventId, until: float, names: bytes = b"") -> EventId | None:
        """Buffer an event, and return the event that was evicted for it."""
        gone = None
        if len(self.buffer) >= self.capacity:
            gone = self.eviction.choose(self.buffer)
            self.buffer.discard(gone)
            self.eviction.remove(gone)
        self.buffer.add(BufferedEvent(until, id, event(id.source, id.sequence), 0))
        self.eviction.add(id, names)
        return gone

    def spare(self) -> list[EventId]:
        """Return the victims that a search through the whole buffer finds, the first one last."""
        nodes = {address: node for node, address in self.neighbors.addresses.items()}
        by_age = sorted(self.buffer.events.values(), reverse=True)
        requesters = self.eviction.proxied_pull.requesters
        victims = [
            one.id
            for one in by_age
            if one.id not in requesters and RendezvousEviction._is_redundant(self.eviction, one.id, nodes)
        ]
        return victims or [by_age[-1].id]


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
def test_incremental_eviction_chooses_as_a_full_search_would(steps: list[tuple[str, int, int]]) -> None:
    full = FullBuffer(6)
    chosen: list[EventId] = []
    for step, (kind, number, node) in enumerate(steps):
        if kind == "hold":
            if len(full.buffer) >= full.capacity:
                while chosen and chosen[-1] not in full.buffer:
                    chosen.pop()
                chosen = chosen or full.spare()
            gone = full.hold(EventId(9, step), number, pack_addresses(node) if number % 2 else b"")
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


def test_the_cost_of_an_eviction_does_not_grow_with_the_buffer() -> None:
    """Searching the whole buffer for each event would limit a node with 10,000 events to some 30 a second."""
    full = FullBuffer(1000)
    for number in range(3000):
        full.hold(EventId(9, number), number)
    assert full.eviction.examined <= 3000


@given(
    ids=IDS, low=st.none() | st.sampled_from([EventId(5, 3), EventId(0, 0)]), high=st.none() | st.just(EventId(20, 9))
)
def test_a_range_of_runs_has_the_ids_within_its_bounds(
    ids: set[EventId], low: EventId | None, high: EventId | None
) -> None:
    within = {id for id in ids if (low is None or id >= low) and (high is None or id <= high)}
    assert select_range(make_runs(ids), low, high) == make_runs(within)


def fill(bench: Bench, number: int) -> list[EventId]:
    """Buffer events of a source without a link; every second number, so that no two make a run."""
    ids = [EventId(9, 2 * n) for n in range(number)]
    for id in ids:
        bench.hear(1, Data(event(9, id.sequence), 1, 50.0, pack_addresses(0, *bench.node._neighbors)))
    return ids


def receive_empty_digest(bench: Bench, node: int) -> None:
    """A neighbor knows only one other event: all events are scheduled for it."""
    bench.hear(node, Digest(pack_ids([EventId(8, 0)])))


def fire_rebroadcasts(bench: Bench, now: float) -> list[Message]:
    """End the backoff of all events, and return the data that is sent."""
    broadcasts = [
        one for key in [key for key in bench.armed if key[0] == "rebroadcast"] for one in bench.fire(key, now)
    ]
    return [one for one in broadcasts if isinstance(one, Data)]


def make_pair(number: int) -> tuple[Bench, list[int]]:
    """Make a node with one neighbor that is missing so many events, and return the tokens of its unicasts too."""
    bench = Bench(2)
    for n in range(number):
        bench.node._known_events.add(1.0, BufferedEvent(60.0, EventId(9, 2 * n), event(9, 2 * n), 0))
    bench.settle()
    receive_empty_digest(bench, 2)
    tokens = []
    for key in [key for key in bench.armed if key[0] == "rebroadcast"]:
        bench.fire(key, 2.0)
        tokens += [one.token for one in bench.sent if one.token is not None]
    return bench, tokens


def test_many_events_for_a_newcomer_are_sent_through_a_window() -> None:
    bench = Bench(1, 2)
    ids = fill(bench, MAX_WINDOW + 100)
    receive_empty_digest(bench, 2)
    assert len(fire_rebroadcasts(bench, 2.0)) == MAX_WINDOW
    assert bench.armed[WINDOW] == WINDOW_S
    later = [one for one in bench.fire(WINDOW, 2.0 + WINDOW_S) if isinstance(one, Data)]
    assert len(later) == 100
    assert WINDOW not in bench.armed
    assert not bench.node._broadcast._deferred
    assert len(ids) == MAX_WINDOW + 100


def test_a_deferred_event_is_not_sent_if_the_neighbor_has_got_it_meanwhile() -> None:
    bench = Bench(1, 2)
    ids = fill(bench, MAX_WINDOW + 2)
    receive_empty_digest(bench, 2)
    fire_rebroadcasts(bench, 2.0)
    first, last = ids[-2:]
    assert list(bench.node._broadcast._deferred) == [first, last]
    bench.hear(2, Offer(pack_ids([first])), 2.01)
    [data] = [one for one in bench.fire(WINDOW, 2.0 + WINDOW_S) if isinstance(one, Data)]
    assert data.event.id == last


def test_an_acknowledged_unicast_makes_room_in_the_window() -> None:
    bench, tokens = make_pair(MAX_WINDOW + 3)
    assert len(tokens) == MAX_WINDOW
    bench.node.on_sent(2.01, tokens[0], None)
    bench.settle()
    assert len(bench.sent) == 1


def test_a_full_queue_shrinks_the_window() -> None:
    """Retrying each rejected event within milliseconds would keep the node from doing anything else."""
    bench, tokens = make_pair(20)
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
    # The acknowledgement frees one place in the window and adds one.
    assert len(bench.sent) == 2


def test_a_digest_of_several_parts_holds_off_the_next() -> None:
    """Hashes of very large sets always differ, so without a pause large digests would follow each other."""
    bench = Bench(1)
    fill(bench, 10 * IDS_PER_MESSAGE)
    for value in (1, 2, 3, 4):
        # First a hash; then, since the neighbor knows it, a digest.
        bench.hear(1, Hash(7, value, value), 3.0)
        broadcasts = bench.fire("reply", 3.0)
        if value == 2:
            assert [type(one) for one in broadcasts] == [Digest] * len(broadcasts)
            assert len(broadcasts) > 1
        if value > 2:
            assert broadcasts == []
    bench.hear(1, Hash(7, 5, 5), 4.0)
    assert len(bench.fire("reply", 4.0)) > 1
    # A clock that was set back does not prolong the pause.
    bench.node.on_link_up(-101.0, Link(2, "radio", 0.001))
    bench.node._reconciliation._new.clear()
    bench.hear(2, Hash(7, 6, 6), -100.0)
    assert len(bench.fire("reply", -100.0)) > 1


@pytest.mark.parametrize("number", [1, 5])
def test_digests_of_one_part_are_not_held_off(number: int) -> None:
    bench = Bench(1)
    fill(bench, number)
    bench.hear(1, Hash(7, 1, 1), 3.0)
    bench.fire("reply", 3.0)
    for value in (2, 3):
        bench.hear(1, Hash(7, value, value), 3.0)
        assert [type(one) for one in bench.fire("reply", 3.0)] == [Digest]
