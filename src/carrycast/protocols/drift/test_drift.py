"""Drift: its handlers one by one, with bad input, and a story."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from carrycast.core.model import Event, EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.protocol import Fact, Link, RecordingPort, TimerKey
from carrycast.core.protocol.effects import Broadcast, CancelTimer, Deliver, Note, Send, SetTimer
from carrycast.core.wire import Codec, DecodeError, Layer, Message
from carrycast.protocols.drift.eviction import RendezvousEviction
from carrycast.protocols.drift.known_events import KnownEvents
from carrycast.protocols.drift.messages import MAX_RUNS_BYTES, Data, Digest, Hash, Offer, PullRequest
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable
from carrycast.protocols.drift.protocol import Drift
from carrycast.protocols.drift.pull import ProxiedPull
from carrycast.protocols.drift.rules import (
    id_sketch,
    rebroadcast_backoff_s,
    rendezvous_weight,
    response_backoff_s,
    short_address,
)
from carrycast.protocols.drift.runs import iterate_ids, pack_ids, unpack
from carrycast.protocols.drift.set_hash import SetHash
from carrycast.protocols.drift.settings import DriftSettings
from carrycast.sim.testing import Net, isolate_protocol


def event(source: NodeId, number: int, lease_s: float = 60.0) -> Event:
    return Event(EventId(source, number), {"topic": 1}, lease_s=lease_s)


def pack_addresses(*nodes: NodeId) -> bytes:
    return b"".join(short_address(node) for node in nodes)


class Bench:
    """One node with neighbors; its timers fire when the test calls `fire`."""

    def __init__(self, *neighbors: NodeId, node: NodeId = 0, **settings: Any) -> None:
        protocol, self.port = isolate_protocol("drift", node, **settings)
        assert isinstance(protocol, Drift)
        self.node = protocol
        self.armed: dict[TimerKey, float] = {}
        for neighbor in neighbors:
            self.node.on_link_up(0.0, Link(neighbor, "radio", 0.001))
        self.settle()

    def settle(self) -> list[Message]:
        """Return the messages broadcast since the last call, and update the timers, sends and notes."""
        self.notes: list[Fact] = []
        self.sent: list[Send] = []
        broadcasts = []
        for effect in self.port.take():
            match effect:
                case SetTimer(key=key, delay_s=delay_s):
                    self.armed[key] = delay_s
                case CancelTimer(key=key):
                    self.armed.pop(key, None)
                case Broadcast(message=message):
                    broadcasts.append(message)
                case Send():
                    self.sent.append(effect)
                case Note(fact=fact):
                    self.notes.append(fact)
        return broadcasts

    def hear(self, sender: NodeId, message: Message, now: float = 1.0) -> list[Message]:
        self.node.on_message(now, sender, message, "radio")
        return self.settle()

    def fire(self, key: TimerKey, now: float = 2.0) -> list[Message]:
        del self.armed[key]
        self.node.on_timer(now, key)
        return self.settle()

    def reasons(self) -> list[str]:
        return [fact.reason for fact in self.notes if fact.kind == "drop"]


# Formulas.


def test_the_backoff_falls_with_uncovered_neighbors_and_grows_with_the_degree() -> None:
    assert rebroadcast_backoff_s(0.01, 4, 8, 0.5) == pytest.approx(0.02)
    assert rebroadcast_backoff_s(0.01, 8, 8, 0.0) == pytest.approx(0.005)
    assert rebroadcast_backoff_s(0.01, 1, 8, 1.0) == pytest.approx(0.12)
    assert [response_backoff_s(0.5, degree) for degree in (1, 5, 10, 40)] == [0.05, 0.25, 0.5, 0.5]


def test_id_sketches_have_32_bits_and_differ() -> None:
    hashes = {id_sketch(EventId(source, number)) for source in range(100) for number in range(100)}
    assert len(hashes) == 10_000
    assert max(hashes) < 1 << 32
    assert max(hashes) > 1 << 31


# Self-pruning broadcast.


def test_a_published_event_is_sent_at_once_and_lists_all_neighbors() -> None:
    bench = Bench(1, 2)
    bench.node.on_publish(1.0, event(0, 0))
    assert bench.settle() == [Data(event(0, 0), 1, 60.0, pack_addresses(1, 2))]


def test_an_event_is_delivered_and_rebroadcast_for_uncovered_neighbors() -> None:
    bench = Bench(1, 2, 3, 4, 5)
    bench.node.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "topic = 1"))
    bench.node.on_message(1.0, 1, Data(event(9, 0), 1, 50.0, pack_addresses(0, 2)), "radio")
    effects = bench.port.take()
    assert Deliver(SubscriptionId(0, 0), event(9, 0), 1) in effects
    [wait] = [one for one in effects if isinstance(one, SetTimer) and one.key == ("rebroadcast", EventId(9, 0))]
    # Three of five: five thirds of the unit, times a factor from 0.5 to 1.5.
    assert 0.5 * 0.01 * 5 / 3 <= wait.delay_s <= 1.5 * 0.01 * 5 / 3
    bench.node.on_timer(1.02, ("rebroadcast", EventId(9, 0)))
    assert bench.settle() == [Data(event(9, 0), 2, 51.0 - 1.02, pack_addresses(1, 2, 3, 4, 5))]


def test_a_copy_that_covers_all_neighbors_cancels_the_rebroadcast() -> None:
    bench = Bench(1, 2, 3)
    bench.hear(1, Data(event(9, 0), 1, 50.0, pack_addresses(0)))
    assert ("rebroadcast", EventId(9, 0)) in bench.armed
    bench.hear(2, Data(event(9, 0), 2, 50.0, pack_addresses(0, 3)))
    assert ("rebroadcast", EventId(9, 0)) not in bench.armed


def test_an_event_whose_frame_covers_all_neighbors_is_not_rebroadcast() -> None:
    bench = Bench(1, 2, 3)
    bench.hear(1, Data(event(9, 0), 1, 50.0, pack_addresses(0, 2, 3)))
    assert ("rebroadcast", EventId(9, 0)) not in bench.armed


def test_a_neighbor_that_leaves_needs_no_rebroadcast() -> None:
    bench = Bench(1, 2)
    bench.hear(1, Data(event(9, 0), 1, 50.0, pack_addresses(0)))
    bench.node.on_link_down(1.0, Link(2, "radio", 0.001), Failure.SILENT)
    bench.settle()
    assert ("rebroadcast", EventId(9, 0)) not in bench.armed


def test_an_event_for_few_neighbors_is_offered_and_sent_on_request() -> None:
    bench = Bench(1, 2)
    bench.hear(1, Data(event(9, 0), 1, 50.0, pack_addresses(0)))
    assert bench.fire(("rebroadcast", EventId(9, 0))) == [Offer(pack_ids([EventId(9, 0)]))]
    bench.hear(2, PullRequest(pack_ids([EventId(9, 0)]), 0), now=2.1)
    # All others hold it, so it is sent by unicast.
    assert bench.fire(("rebroadcast", EventId(9, 0)), now=2.2) == []
    [sent] = bench.sent
    assert (sent.target, sent.message) == (2, Data(event(9, 0), 2, 48.8, pack_addresses(1, 2)))


def test_a_unicast_that_failed_is_followed_by_a_broadcast() -> None:
    bench = Bench(1, 2)
    bench.hear(1, Data(event(9, 0), 1, 50.0, pack_addresses(0)))
    bench.fire(("rebroadcast", EventId(9, 0)))
    bench.hear(2, PullRequest(pack_ids([EventId(9, 0)]), 0), now=2.1)
    bench.fire(("rebroadcast", EventId(9, 0)), now=2.2)
    [sent] = bench.sent
    assert sent.token is not None
    bench.node.on_sent(2.3, sent.token, Failure.SILENT)
    bench.settle()
    assert bench.fire(("rebroadcast", EventId(9, 0)), now=2.4) == [Data(event(9, 0), 2, 48.6, pack_addresses(1, 2))]


def test_an_event_offered_to_two_neighbors_is_broadcast_on_request() -> None:
    bench = Bench(1, 2, 3)
    bench.hear(1, Data(event(9, 0), 1, 50.0, pack_addresses(0)))
    bench.fire(("rebroadcast", EventId(9, 0)))
    bench.hear(2, PullRequest(pack_ids([EventId(9, 0)]), 0), now=2.1)
    assert len(bench.fire(("rebroadcast", EventId(9, 0)), now=2.2)) == 1


def test_a_request_to_another_holder_is_left_to_it() -> None:
    bench = Bench(1, 2)
    bench.hear(1, Data(event(9, 0), 1, 50.0, pack_addresses(0)))
    bench.hear(2, PullRequest(pack_ids([EventId(9, 0)]), 1))
    assert ("rebroadcast", EventId(9, 0)) not in bench.armed


def test_larger_events_have_a_longer_backoff() -> None:
    bench = Bench(1, 2)
    waits = []
    for number, size in enumerate((0, 1000)):
        one = Event(EventId(9, number), {"topic": 1}, b"x" * size, lease_s=60.0)
        bench.node.rng.seed(1)
        bench.hear(1, Data(one, 1, 50.0, pack_addresses(0)))
        waits.append(bench.armed["rebroadcast", one.id])
    assert waits[1] == pytest.approx(3 * waits[0])


def test_an_offer_of_a_missing_event_is_requested_and_of_a_known_one_covers_its_sender() -> None:
    bench = Bench(1, 2)
    bench.hear(1, Data(event(9, 0), 1, 50.0, pack_addresses(0)))
    bench.hear(2, Offer(pack_ids([EventId(9, 0)])))
    assert ("rebroadcast", EventId(9, 0)) not in bench.armed
    bench.hear(2, Offer(pack_ids([EventId(9, 1)])))
    assert bench.fire("pull") == [PullRequest(pack_ids([EventId(9, 1)]), 2)]


def test_a_broadcast_uses_only_interfaces_that_reach_its_targets() -> None:
    bench = Bench(1, 2)
    bench.node.on_link_up(0.0, Link(3, "wire", 0.0001))
    bench.hear(3, Data(event(9, 0), 1, 50.0, pack_addresses(0)))
    bench.node.on_message(1.0, 1, PullRequest(pack_ids([EventId(9, 0)]), 0), "radio")
    bench.node.on_timer(1.1, ("rebroadcast", EventId(9, 0)))
    sent = [one for one in bench.port.take() if isinstance(one, Broadcast)]
    assert [(one.on, one.message.neighbors) for one in sent if isinstance(one.message, Data)] == [
        ("radio", pack_addresses(1, 2))
    ]


# Reconciliation.


def make_holder(*ids: EventId, neighbors: tuple[NodeId, ...] = (1, 2), **settings: Any) -> Bench:
    bench = Bench(*neighbors, **settings)
    for id in ids:
        bench.hear(1, Data(event(*id), 1, 50.0, pack_addresses(*neighbors)))
    return bench


def make_hash(*ids: EventId, salt: int = 7) -> Hash:
    found = SetHash()
    for id in ids:
        found.add(id)
    return Hash(salt, found.value(salt), found.sketch)


def is_hash(broadcasts: list[Message], *ids: EventId) -> bool:
    """Whether the only broadcast is a hash of these ids, under any salt."""
    [one] = broadcasts
    return isinstance(one, Hash) and one == make_hash(*ids, salt=one.salt)


def scatter_ids(number: int) -> list[EventId]:
    """Ids whose digest is longer than a hash."""
    return [EventId(10 + source, 0) for source in range(number)]


A, B, C, D = (EventId(9, number) for number in (0, 1, 2, 3))


def test_a_hash_is_sent_after_new_events_unless_an_equal_one_suppresses_it() -> None:
    ids = scatter_ids(6)
    bench = make_holder(*ids)
    assert is_hash(bench.fire("trickle"), *ids)
    bench.hear(2, make_hash(*ids))
    assert bench.fire("trickle") == []
    assert bench.armed["trickle"] > 2.0


def test_a_digest_that_is_no_longer_than_a_hash_is_sent_instead() -> None:
    ids = [EventId(9, number) for number in range(300)]
    bench = make_holder(*ids)
    assert bench.fire("trickle") == [Digest(pack_ids(ids))]
    bench.hear(2, Digest(pack_ids(ids)))
    assert bench.fire("trickle") == []
    bench = make_holder(*scatter_ids(5))
    assert is_hash(bench.fire("trickle"), *scatter_ids(5))
    many = [EventId(9, number) for number in range(MAX_RUNS_BYTES + 1)]
    bench = Bench(1)
    for id in many:
        bench.node._known_events.add(1.0, BufferedEvent(60.0, id, event(*id), 0))
    assert is_hash(bench.fire("trickle"), *many), "a digest in parts would be longer"


def test_at_imax_a_digest_is_sent_although_an_equal_hash_was_received() -> None:
    ids = scatter_ids(6)
    bench = make_holder(*ids, hash_max_s=3.0)
    for now in (1.5, 2.5):
        bench.fire("trickle", now)
    bench.hear(2, make_hash(*ids), 2.6)
    assert bench.fire("trickle", 2.7) == [Digest(pack_ids(ids))]


def test_with_frequent_events_a_hash_is_sent_once_in_imax_and_a_digest_once_in_four() -> None:
    """New events keep the interval short, and a neighbor sends the equal hash after each of them."""
    ids = scatter_ids(6)
    bench = make_holder(*ids)
    bench.fire("trickle", 1.5)
    broadcasts: list[tuple[int, Message]] = []
    for second in range(2, 242, 2):
        ids.append(EventId(99, second))
        bench.hear(1, Data(event(99, second, 600.0), 1, 600.0, pack_addresses(1, 2)), second)
        bench.hear(2, make_hash(*ids), second)
        broadcasts += [(second, one) for one in bench.fire("trickle", second + 1.5)]
    assert [(second, type(one)) for second, one in broadcasts] == [(60, Hash), (120, Hash), (180, Hash), (240, Digest)]


def test_a_long_digest_is_sent_part_by_part_at_imax() -> None:
    ids = sorted(EventId(1000 * source, 2 * number) for source in range(100, 105) for number in range(1200))
    bench = Bench(1, 2, hash_max_s=2.0)
    for id in ids:
        bench.node._known_events.add(1.0, BufferedEvent(5000.0, id, event(*id), 0))
    bench.node._reconciliation.reset_timer()
    bench.settle()
    parts: list[Digest] = []
    for minute in range(1, 20):
        broadcasts = bench.fire("trickle", 60.0 * minute + 0.5)
        assert [type(one) for one in broadcasts] == [Hash, Digest]
        parts += [one for one in broadcasts if isinstance(one, Digest)]
        if parts[-1].high is None:
            break
    assert len(parts) > 1
    assert sorted(id for part in parts for id in iterate_ids(part.ids)) == ids
    assert all(b.low is not None and a.high is not None and b.low > a.high for a, b in pairwise(parts))
    # After the last part the first one follows again.
    assert [one for one in bench.fire("trickle", 1800.0) if isinstance(one, Digest)] == parts[:1]


def test_the_sketch_names_a_single_missing_event() -> None:
    bench = make_holder(A, B, C, D)
    bench.hear(2, make_hash(A, B, D))
    assert {key for key in bench.armed if key[0] == "rebroadcast"} == {("rebroadcast", C)}
    assert "reply" not in bench.armed


def test_other_differences_are_answered_with_a_hash_and_then_with_a_digest() -> None:
    ids = scatter_ids(6)
    bench = make_holder(*ids)
    strange = make_hash(EventId(5, 5), EventId(5, 6))
    bench.hear(2, strange)
    assert is_hash(bench.fire("reply"), *ids)
    bench.hear(2, strange)
    assert bench.fire("reply") == [Digest(pack_ids(ids))]


def test_an_answer_of_another_neighbor_suppresses_the_own() -> None:
    ids = scatter_ids(6)
    bench = make_holder(*ids)
    strange = make_hash(EventId(5, 5), EventId(5, 6))
    bench.hear(2, strange)
    bench.hear(1, make_hash(*ids))
    assert "reply" not in bench.armed
    bench.hear(2, strange)
    bench.fire("reply")
    bench.hear(2, strange)
    # The neighbor knows the hash, so a digest is due, and another equal hash does not suppress it.
    bench.hear(1, make_hash(*ids))
    assert "reply" in bench.armed
    bench.hear(1, Digest(pack_ids(ids)))
    assert "reply" not in bench.armed


def test_a_digest_causes_rebroadcasts_of_missing_events_and_requests_for_unknown_ones() -> None:
    bench = make_holder(A, B)
    bench.hear(2, Digest(pack_ids([B, C, D]), bytes([0b100])))
    assert ("rebroadcast", A) in bench.armed
    assert ("rebroadcast", B) not in bench.armed
    # The neighbor has evicted D, so it is not requested.
    assert bench.fire("pull") == [PullRequest(pack_ids([C]), 2)]


def test_a_request_of_another_node_suppresses_the_own() -> None:
    bench = make_holder(A)
    bench.hear(2, Digest(pack_ids([A, C])))
    bench.hear(1, PullRequest(pack_ids([C]), 2))
    assert "pull" not in bench.armed


def test_a_long_digest_travels_in_parts_with_their_bounds() -> None:
    ids = [EventId(9, number) for number in range(0, 16_000, 2)]
    port = RecordingPort()
    table = DriftNeighborTable(port)
    eviction = RendezvousEviction(0, table, ProxiedPull(0, port, Random(1), DriftSettings(), table))
    known = KnownEvents(port, DriftSettings(), eviction)
    for id in ids:
        known.add(0.0, BufferedEvent(50.0, id, event(*id), 1))
    parts = list(known.digests())
    assert len(parts) > 1
    assert parts[0].low is parts[-1].high is None
    other = Bench(1, 2)
    other.hear(1, Data(event(9, 1), 1, 50.0, pack_addresses(0, 1, 2)))
    for part in parts:
        other.hear(2, part)
    # An id between the bounds of two parts is missing once, not once for each part.
    assert [key for key in other.armed if key[0] == "rebroadcast"] == [("rebroadcast", EventId(9, 1))]


# The buffer.


def choose_keeper(id: EventId, *nodes: NodeId) -> NodeId:
    """Return the node that keeps the event by rendezvous hashing."""
    return max(nodes, key=lambda node: rendezvous_weight(node, id_sketch(id)))


def list_evicted(bench: Bench) -> list[tuple[EventId | None, str]]:
    return [(fact.event, fact.reason) for fact in bench.notes if fact.kind == "evict"]


def test_a_full_buffer_evicts_events_that_a_neighbor_with_a_higher_weight_holds() -> None:
    ids = [EventId(9, number) for number in range(20)]
    mine = [id for id in ids if choose_keeper(id, 0, 1) == 0]
    theirs = [id for id in ids if choose_keeper(id, 0, 1) == 1]
    bench = Bench(1, 2, buffer=3)
    # All are known to be held by 1: the oldest of those for which 1 has the higher weight is evicted.
    for number, id in enumerate((mine[0], theirs[0], theirs[1])):
        bench.hear(2, Data(event(*id), 1, 50.0 + number, pack_addresses(0, 1)))
    bench.hear(2, Data(event(*mine[1]), 1, 60.0, pack_addresses(0, 1)))
    assert list_evicted(bench) == [(theirs[0], "buffer_full")]
    bench.hear(2, Data(event(*mine[2]), 1, 60.0, pack_addresses(0, 1)))
    assert list_evicted(bench) == [(theirs[1], "buffer_full")]
    # With none of those left the oldest is evicted; it stays known, so it is not stored again.
    bench.hear(2, Data(event(*mine[3]), 1, 60.0, pack_addresses(0, 1)))
    assert list_evicted(bench) == [(mine[0], "buffer_full")]
    bench.hear(2, Data(event(*mine[0]), 1, 50.0, pack_addresses(0, 1)))
    assert not [fact for fact in bench.notes if fact.kind == "store"]


def test_holders_that_have_left_do_not_count_for_eviction() -> None:
    theirs = [id for id in (EventId(9, number) for number in range(20)) if choose_keeper(id, 0, 1) == 1]
    bench = Bench(1, 2, buffer=2)
    for number, id in enumerate(theirs[:2]):
        bench.hear(2, Data(event(*id), 1, 50.0 - number, pack_addresses(0, 1)))
    bench.node.on_link_down(1.0, Link(1, "radio", 0.001), Failure.SILENT)
    bench.settle()
    bench.hear(2, Data(event(8, 0), 1, 60.0, pack_addresses(0)))
    # No neighbor is known to hold either: the one whose lease ends first is evicted.
    assert list_evicted(bench) == [(theirs[1], "buffer_full")]


def evict_one(bench: Bench) -> EventId:
    """Fill a buffer of one event twice, and return the evicted event."""
    bench.hear(1, Data(event(*A), 1, 50.0, pack_addresses(0, 1, 2, 3)))
    bench.hear(1, Data(event(*B), 1, 50.0, pack_addresses(0, 1, 2, 3)))
    assert list_evicted(bench) == [(A, "buffer_full")]
    return A


def test_an_evicted_event_that_a_neighbor_is_missing_is_pulled_on_its_behalf() -> None:
    bench = Bench(1, 2, 3, buffer=1)
    gone = evict_one(bench)
    bench.hear(3, PullRequest(pack_ids([gone]), 2))
    assert bench.fire("proxied_pull") == [PullRequest(pack_ids([gone]), 0)]
    bench.hear(1, Data(event(*gone), 1, 40.0, pack_addresses(0, 1, 2)))
    assert [fact.event for fact in bench.notes if fact.kind == "store"] == [gone]
    [data] = bench.fire(("rebroadcast", gone))
    assert isinstance(data, Data)
    # It was delivered when it was first received, and is not delivered again.
    assert not [one for one in bench.port.take() if isinstance(one, Deliver)]


def test_a_proxied_pull_is_suppressed_by_a_second_request_and_resumed_at_a_contact() -> None:
    bench = Bench(1, 2, 3, buffer=1)
    gone = evict_one(bench)
    bench.hear(3, PullRequest(pack_ids([gone]), 1))
    bench.hear(2, PullRequest(pack_ids([gone]), 2))
    assert bench.fire("proxied_pull") == []
    bench.node.on_link_up(3.0, Link(4, "radio", 0.001))
    bench.settle()
    assert bench.fire("proxied_pull", now=4.0) == [PullRequest(pack_ids([gone]), 0)]


def test_proxied_pulls_are_bounded_and_end_with_the_lease() -> None:
    bench = Bench(1, 2, buffer=10)
    for number in range(40):
        bench.hear(1, Data(event(9, number), 1, 50.0, pack_addresses(0, 1, 2)))
    bench.hear(2, PullRequest(pack_ids(EventId(9, number) for number in range(40)), 1))
    [want] = bench.fire("proxied_pull")
    assert isinstance(want, PullRequest)
    assert len(list(iterate_ids(unpack(want.runs)))) == 5
    bench.fire("lease", now=60.0)
    bench.node.on_link_up(61.0, Link(4, "radio", 0.001))
    bench.settle()
    assert "proxied_pull" not in bench.armed


# Bad input.


def test_half_a_short_address_is_malformed() -> None:
    codec = Codec(Layer.DISSEMINATION, "drift", Drift.messages)
    frame = codec.encode(Data(event(9, 0), 1, 50.0, pack_addresses(1)))
    assert frame.endswith(b"\xc4\x02\x00\x01")
    with pytest.raises(DecodeError, match="frame_malformed"):
        codec.decode(frame[:-3] + b"\x01\x01")


@pytest.mark.parametrize(
    "message", [Offer(b"\x05"), PullRequest(b"\x05", 0), Digest(b"\x05"), Digest(bytes([9, 0, 8]), b"\x01")]
)
def test_malformed_runs_are_dropped_with_a_reason(message: Message) -> None:
    bench = Bench(1)
    assert bench.hear(1, message) == []
    assert bench.reasons() == ["runs_malformed"]


def test_listing_nodes_that_did_not_receive_the_frame_only_delays() -> None:
    """A frame lists 2, which did not receive it. The hash of 2 shows the difference."""
    bench = Bench(1, 2)
    bench.hear(1, Data(event(*A), 1, 50.0, pack_addresses(0, 2)))
    assert ("rebroadcast", A) not in bench.armed
    bench.hear(2, make_hash())
    assert ("rebroadcast", A) in bench.armed


def test_endless_requests_are_served_a_few_times_a_minute() -> None:
    bench = make_holder(A)
    served = 0
    for second in range(20):
        bench.hear(2, PullRequest(pack_ids([A]), 0), now=1.0 + second)
        if ("rebroadcast", A) in bench.armed:
            bench.fire(("rebroadcast", A), now=1.5 + second)
            served += 1
    assert served == 3
    bench.hear(2, PullRequest(pack_ids([A]), 0), now=30.0)
    assert bench.reasons() == ["answered_too_often"]


def test_offers_without_data_are_requested_a_few_times_a_minute() -> None:
    bench = Bench(1)
    asked = []
    for second in range(20):
        bench.hear(1, Offer(pack_ids([C])), now=1.0 + second)
        asked += bench.fire("pull", now=1.5 + second)
    assert len(asked) == 3
    assert bench.reasons() == ["asked_too_often"]


def test_a_flood_of_invented_ids_is_bounded() -> None:
    bench = Bench(1)
    bench.hear(1, Offer(pack_ids(EventId(7, number) for number in range(10_000))))
    assert bench.reasons() == ["too_many_wanted"] * (10_000 - 4096)


def test_provisional_neighbors_expire_and_are_bounded() -> None:
    bench = make_holder(A)
    bench.hear(50, make_hash())
    assert ("rebroadcast", A) in bench.armed
    bench.fire(("rebroadcast", A))
    bench.fire("provisional", now=4.0)
    for stranger in range(100, 164):
        bench.hear(stranger, make_hash(), now=5.0)
        assert bench.reasons() == []
    bench.hear(200, make_hash(), now=5.0)
    assert bench.reasons() == ["too_many_strangers"]
    bench.hear(200, Data(event(*B), 1, 50.0), now=5.0)
    assert [fact.event for fact in bench.notes if fact.kind == "store"] == [B]


def test_a_persistent_difference_causes_a_bounded_number_of_digests() -> None:
    bench = make_holder(*scatter_ids(6))
    digests = []
    for second in range(20):
        bench.hear(2, make_hash(EventId(5, 5), EventId(5, 6)), now=1.0 + second)
        digests += [one for one in bench.fire("reply", now=1.5 + second) if isinstance(one, Digest)]
    assert len(digests) == 2
    assert bench.reasons() == ["digests_too_often"]


def test_beyond_max_met_the_event_whose_lease_ends_first_is_forgotten() -> None:
    bench = Bench(1, max_met=2)
    for number, lease_s in enumerate((30.0, 10.0, 20.0)):
        bench.hear(1, Data(event(9, number), 1, lease_s, pack_addresses(0)))
    evicted = [(fact.event, fact.reason) for fact in bench.notes if fact.kind == "evict"]
    assert evicted == [(EventId(9, 1), "too_many")]


# Stories.


def test_two_islands_that_meet_exchange_all_events() -> None:
    net = Net.line(4, "drift", {"discovery": {"mode": "beacon"}})
    for node in range(4):
        net.subscribe(node, "topic = 1")
    net.cut(1, 2)
    net.run(5)
    events = [net.publish(node, {"topic": 1}) for node in (0, 0, 0, 3, 3, 3)]
    net.run(5)
    assert net.list_delivered(0) == events[:3]
    net.heal(1, 2)
    net.run(5)
    for node in range(4):
        assert sorted(one.id for one in net.list_delivered(node)) == sorted(one.id for one in events)
