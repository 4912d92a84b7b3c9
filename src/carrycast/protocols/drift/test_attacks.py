"""Attacks by hashes: a malicious node cannot hide an event, and causes few bytes in comparison to those it sends."""

from random import Random

import pytest

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import Link
from carrycast.core.wire import Message
from carrycast.protocols.drift.messages import SALT_BITS, Data, Digest, Hash
from carrycast.protocols.drift.rate_limits import MAX_BUCKETS, DigestLimiter
from carrycast.protocols.drift.rules import id_sketch
from carrycast.protocols.drift.runs import pack_ids
from carrycast.protocols.drift.set_hash import SetHash, hash_ids
from carrycast.protocols.drift.test_clashes import Places
from carrycast.protocols.drift.test_drift import Bench, make_holder, pack_addresses, scatter_ids
from carrycast.sim.testing import Net

VICTIM, ATTACKER = 11, 66


def choose_ids(target: int, source: NodeId) -> list[EventId]:
    """Choose ids of one source so that the exclusive or of their sketches is the target, by Gaussian elimination over
    32 bits."""
    basis: dict[int, tuple[int, frozenset[int]]] = {}
    for number in range(200):
        sketch, used = id_sketch(EventId(source, number)), frozenset({number})
        while sketch and sketch.bit_length() in basis:
            other, others = basis[sketch.bit_length()]
            sketch, used = sketch ^ other, used ^ others
        if sketch:
            basis[sketch.bit_length()] = (sketch, used)
    left, numbers = target, frozenset[int]()
    while left:
        sketch, used = basis[left.bit_length()]
        left, numbers = left ^ sketch, numbers ^ used
    return [EventId(source, number) for number in sorted(numbers)]


def event(id: EventId) -> Event:
    return Event(id, {"topic": 1}, lease_s=600.0)


def test_events_with_chosen_sketches_hide_no_events() -> None:
    """Two islands meet whose sets have one sketch: one has the victim's events and a common one, the other forged
    ones."""
    victims, common = [EventId(VICTIM, number) for number in range(8)], EventId(5, 0)
    sketches = 0
    for id in victims:
        sketches ^= id_sketch(id)
    forged = choose_ids(sketches, ATTACKER)
    assert 8 <= len(forged) <= 32
    # No digest is due by time, so only hashes can show the difference.
    places = Places([VICTIM, 12, ATTACKER, 67], [(0, 1), (2, 3)], hash_max_s=86_400)
    for place in (0, 2):
        places.publish(place, event(common))
    for id in victims:
        places.publish(0, event(id))
    for id in forged:
        places.publish(2, event(id))
    places.run(100)
    assert places.nodes[1]._known_events.hash.sketch == places.nodes[3]._known_events.hash.sketch
    # The attacker sends nothing from now on; only its events remain.
    places.link(1, 3)
    places.run(5)
    assert {one.id for one in places.delivered[3]} == {*victims, common, *forged}
    assert {one.id for one in places.delivered[0]} == {*victims, common, *forged}


def test_events_with_the_sketch_of_another_are_not_taken_for_the_missing_one() -> None:
    """Sets chosen so that their difference has the sketch of an event that both have."""
    common = EventId(5, 0)
    ids = [EventId(VICTIM, 0), EventId(VICTIM, 1)]
    here = SetHash()
    for id in (common, *ids):
        here.add(id)
    forged = choose_ids(id_sketch(ids[0]) ^ id_sketch(ids[1]) ^ id_sketch(common), ATTACKER)
    there = SetHash()
    for id in (common, *forged):
        there.add(id)
    assert here.sketch ^ there.sketch == id_sketch(common)
    assert here.find_single_difference(7, there.value(7), there.sketch) is None
    there = SetHash()
    for id in (common, ids[0]):
        there.add(id)
    assert here.find_single_difference(7, there.value(7), there.sketch) == ids[1]


def test_sets_that_agree_under_a_past_salt_differ_under_the_next() -> None:
    """An attacker that knows a salt finds sets that agree under it: here it searches 16 bits of the hash."""
    rng = Random(1)
    past, bits = rng.getrandbits(SALT_BITS), 0xFFFF
    wanted = hash_ids([EventId(VICTIM, 0)], past) & bits
    found = next(
        id for id in (EventId(ATTACKER, number) for number in range(10**6)) if hash_ids([id], past) & bits == wanted
    )
    agree = [
        salt for salt in range(200) if hash_ids([found], salt) & bits == hash_ids([EventId(VICTIM, 0)], salt) & bits
    ]
    assert len(agree) <= 1


def test_every_hash_has_a_new_salt() -> None:
    bench = make_holder(*scatter_ids(6), hash_max_s=86_400)
    salts = []
    for now in range(1, 8):
        [broadcasts] = bench.fire("trickle", now)
        assert isinstance(broadcasts, Hash)
        assert broadcasts.value == hash_ids(scatter_ids(6), broadcasts.salt)
        salts.append(broadcasts.salt)
    assert len(set(salts)) == len(salts)


def test_sets_whose_hashes_agree_by_chance_are_reconciled_after_imax(monkeypatch: pytest.MonkeyPatch) -> None:
    """All hashes are equal here, whatever the sets are."""
    monkeypatch.setattr(SetHash, "value", lambda *_: 0)
    monkeypatch.setattr(SetHash, "equals", lambda *_: True)
    places = Places([1, 2, 3, 4], [(0, 1), (2, 3)])
    for place, source in ((0, 100), (2, 200)):
        for number in range(6):
            places.publish(place, event(EventId(source + number, 0)))
    places.run(20)
    places.link(1, 3)
    # An interval may run when a digest comes due.
    places.run(2 * 60)
    for got in places.delivered:
        assert len(got) == 12


def test_the_hash_of_a_set_does_not_depend_on_its_history() -> None:
    rng = Random(3)
    ids = [EventId(rng.getrandbits(63), rng.getrandbits(40)) for _ in range(50)]
    one, other = SetHash(), SetHash()
    for id in ids:
        one.add(id)
    for id in [*reversed(ids), *(EventId(1, n) for n in range(20))]:
        other.add(id)
    assert not other.equals(5, one.value(5), one.sketch)
    for number in range(20):
        assert other.remove(EventId(1, number))
    assert not other.remove(EventId(1, 0))
    assert other.equals(5, one.value(5), one.sketch)
    assert one.value(5) == hash_ids(ids, 5) != one.value(6)


MALICIOUS: NodeId = 10
HONEST = 10
EVENTS = 400
SECONDS = 60


def measure_room(hashes_per_s: int) -> tuple[int, int]:
    """Ten nodes within range of each other know the same events. Return the bytes that they send within a minute, and
    the bytes of the random hashes that a malicious node sends meanwhile."""
    net = Net.graph([(a, b) for a in range(HONEST + 1) for b in range(a)], "drift")
    for number in range(EVENTS):
        node = number % HONEST
        # Every other number, so that no two make a run: a digest has 1,200 bytes.
        net.machine(node).publish(Event(EventId(node, 2 * number), {"topic": 1}, lease_s=3600.0))
        net.run(0.01)
    net.run(100)
    begin, rng = net.now, Random(5)
    for _ in range(SECONDS):
        for _ in range(hashes_per_s):
            # The malicious node's radio works like any other; only its messages are forged.
            net.protocol(MALICIOUS).port.broadcast(Hash(rng.getrandbits(16), rng.getrandbits(32), rng.getrandbits(32)))
            net.run(1 / hashes_per_s)
        if not hashes_per_s:
            net.run(1)
    sends = [row for row in net.rows("send") if float(str(row["time_s"])) >= begin]
    forged_bytes = sum(
        int(str(row["size_bytes"])) for row in sends if row["node"] == MALICIOUS and row["message"] == "Hash"
    )
    return sum(int(str(row["size_bytes"])) for row in sends if row["node"] != MALICIOUS), forged_bytes


def test_a_malicious_node_causes_fewer_bytes_than_it_sends() -> None:
    """Each hash that differs could cause a digest of every node in range."""
    background, _ = measure_room(0)
    with_forged, forged_bytes = measure_room(10)
    drawn = with_forged - background
    assert forged_bytes > 10_000
    assert drawn < forged_bytes, f"{drawn / forged_bytes:.1f} times the forged bytes"


def test_a_neighbor_causes_two_digests_and_then_two_in_each_imax() -> None:
    limiter = DigestLimiter()
    drawn = [now for now in range(0, 240) if limiter.allow(now, 1, 1000, 60.0, first=False)]
    assert drawn == [0, 1, 30, 60, 90, 120, 150, 180, 210]
    # When a clock is set back, no time has passed; from then on it passes again.
    assert [now for now in range(-100, -40) if limiter.allow(now, 1, 1000, 60.0, first=False)] == [-99, -69]


def test_the_shared_bucket_limits_all_neighbors_except_newcomers() -> None:
    limiter = DigestLimiter()
    assert [limiter.allow(0.0, node, 1000, 60.0, first=False) for node in range(5)] == [True, True, False, False, False]
    assert all(limiter.allow(0.0, node, 1000, 60.0, first=True) for node in range(10, 30))
    # A neighbor that leaves and comes back is no newcomer each time.
    assert [limiter.allow(1.0, 10, 1000, 60.0, first=True) for _ in range(3)] == [True, False, False]


def test_received_bytes_refill_the_bucket() -> None:
    limiter = DigestLimiter()
    for _ in range(2):
        assert limiter.allow(0.0, 1, 1000, 60.0, first=False)
    limiter.received_bytes += 999
    assert not limiter.allow(0.0, 1, 1000, 60.0, first=False)
    limiter.received_bytes += 1
    assert limiter.allow(0.0, 1, 1000, 60.0, first=False)
    # The bucket holds two digests, however many bytes were received.
    limiter.received_bytes += 10**6
    assert [limiter.allow(0.0, 1, 1000, 60.0, first=False) for _ in range(3)] == [True, True, False]


def test_the_number_of_buckets_is_bounded() -> None:
    limiter = DigestLimiter()
    for node in range(3 * MAX_BUCKETS):
        limiter.allow(0.0, node, 1000, 60.0, first=True)
    assert len(limiter._buckets) == MAX_BUCKETS


def test_an_overheard_digest_is_charged_to_the_neighbor_that_caused_it() -> None:
    """Otherwise the next forged hash would cause a digest of the next node, and so on through all nodes in range."""
    ids = scatter_ids(6)
    bench = make_holder(*ids)
    bench.hear(2, Hash(7, 1, 1))
    bench.fire("reply")
    for value in range(2, 6):
        bench.hear(2, Hash(7, value, value))
        bench.hear(1, Digest(pack_ids(ids)))
        assert "reply" not in bench.armed
    bench.hear(2, Hash(7, 6, 6))
    assert bench.fire("reply") == []
    assert bench.reasons() == ["digests_too_often"]


STRANGE = Hash(7, 1, 1)


def make_exhausted() -> Bench:
    """Make a node whose shared bucket is empty; none of its neighbors is new."""
    bench = make_holder(*scatter_ids(6), neighbors=(1, 2, 3, 4, 5))
    broadcasts: list[Message] = []
    for neighbor in (1, 1, 2, 3, 4, 5):
        bench.hear(neighbor, STRANGE)
        broadcasts += bench.fire("reply")
    assert [type(one) for one in broadcasts] == [Hash, Digest, Digest], "one digest was sent for all of them"
    assert bench.reasons() == ["digests_too_often"]
    return bench


def count_drawn(bench: Bench, neighbor: NodeId) -> int:
    """Return how many digests a neighbor causes by two hashes that differ; the first may cause a hash."""
    broadcasts: list[Message] = []
    for _ in range(2):
        bench.hear(neighbor, STRANGE)
        broadcasts += bench.fire("reply")
    return sum(isinstance(one, Digest) for one in broadcasts)


def test_a_newcomer_gets_a_digest_although_the_shared_bucket_is_empty() -> None:
    bench = make_exhausted()
    bench.node.on_link_up(1.0, Link(7, "radio", 0.001))
    bench.settle()
    assert count_drawn(bench, 7) == 1
    assert count_drawn(bench, 7) == 0, "from then on it needs shared tokens"


def test_a_newcomer_that_another_node_has_answered_needs_shared_tokens() -> None:
    bench = make_exhausted()
    bench.node.on_link_up(1.0, Link(7, "radio", 0.001))
    bench.settle()
    bench.hear(7, STRANGE)
    bench.hear(1, Digest(pack_ids(scatter_ids(6))))
    assert count_drawn(bench, 7) == 0


def test_new_events_allow_another_digest() -> None:
    bench = make_exhausted()
    assert count_drawn(bench, 2) == 0
    bench.hear(
        1, Data(Event(EventId(50, 0), {"topic": 1}, b"x" * 200, lease_s=50.0), 1, 50.0, pack_addresses(*range(1, 6)))
    )
    assert count_drawn(bench, 2) == 1
