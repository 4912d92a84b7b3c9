"""What a member can do with hashes: it hides nobody's event, and draws little more than it says."""

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
from carrycast.protocols.drift.test_drift import Bench, holding, names, scattered
from carrycast.sim.testing import Net

VICTIM, ATTACKER = 11, 66


def chosen(target: int, source: NodeId) -> list[EventId]:
    """Ids of one source, the exclusive or of whose sketches is the target: Gaussian elimination over 32 bits."""
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


def test_events_chosen_to_hide_anothers_hide_nothing() -> None:
    """Two islands meet whose sets have one sketch: the victim's event and a common one, and what the attacker made."""
    victims, common = [EventId(VICTIM, number) for number in range(8)], EventId(5, 0)
    sketches = 0
    for id in victims:
        sketches ^= id_sketch(id)
    forged = chosen(sketches, ATTACKER)
    assert 8 <= len(forged) <= 32
    # No digest is due because of the time, so that hashes alone tell.
    places = Places([VICTIM, 12, ATTACKER, 67], [(0, 1), (2, 3)], hash_max_s=86_400)
    for place in (0, 2):
        places.publish(place, event(common))
    for id in victims:
        places.publish(0, event(id))
    for id in forged:
        places.publish(2, event(id))
    places.run(100)
    assert places.nodes[1]._known_events.hash.sketch == places.nodes[3]._known_events.hash.sketch
    # The attacker is silent from now on: only what it has published speaks.
    places.link(1, 3)
    places.run(5)
    assert {one.id for one in places.delivered[3]} == {*victims, common, *forged}
    assert {one.id for one in places.delivered[0]} == {*victims, common, *forged}


def test_events_that_name_another_by_their_trace_do_not_pass_for_the_one_that_is_missing() -> None:
    """Sets chosen so that their difference has the sketch of an event that both have."""
    common = EventId(5, 0)
    ids = [EventId(VICTIM, 0), EventId(VICTIM, 1)]
    here = SetHash()
    for id in (common, *ids):
        here.add(id)
    forged = chosen(id_sketch(ids[0]) ^ id_sketch(ids[1]) ^ id_sketch(common), ATTACKER)
    there = SetHash()
    for id in (common, *forged):
        there.add(id)
    assert here.sketch ^ there.sketch == id_sketch(common)
    assert here.find_single_difference(7, there.value(7), there.sketch) is None
    there = SetHash()
    for id in (common, ids[0]):
        there.add(id)
    assert here.find_single_difference(7, there.value(7), there.sketch) == ids[1]


def test_what_agrees_under_a_salt_of_the_past_does_not_under_the_next() -> None:
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


def test_a_hash_is_salted_anew_each_time() -> None:
    bench = holding(*scattered(6), hash_max_s=86_400)
    salts = []
    for now in range(1, 8):
        [said] = bench.fire("trickle", now)
        assert isinstance(said, Hash)
        assert said.value == hash_ids(scattered(6), said.salt)
        salts.append(said.salt)
    assert len(set(salts)) == len(salts)


def test_sets_that_agree_by_chance_are_told_apart_at_the_longest_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here all hashes are the same, whatever was met."""
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


def test_a_set_is_the_same_however_it_came_about() -> None:
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


LIAR: NodeId = 10
HONEST = 10
EVENTS = 400
SECONDS = 60


def said_in_a_room(hashes_per_s: int) -> tuple[int, int]:
    """Ten nodes in one room have met the same. Bytes of what they say within a minute, and of the hashes that a liar
    says meanwhile."""
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
            # The liar's radio works as all do: only what it says is made up.
            net.protocol(LIAR).port.broadcast(Hash(rng.getrandbits(16), rng.getrandbits(32), rng.getrandbits(32)))
            net.run(1 / hashes_per_s)
        if not hashes_per_s:
            net.run(1)
    sends = [row for row in net.rows("send") if float(str(row["time_s"])) >= begin]
    lied = sum(int(str(row["size_bytes"])) for row in sends if row["node"] == LIAR and row["message"] == "Hash")
    return sum(int(str(row["size_bytes"])) for row in sends if row["node"] != LIAR), lied


def test_a_liar_draws_little_more_than_it_says() -> None:
    """Each hash that differs could draw a digest of everybody in the room."""
    background, _ = said_in_a_room(0)
    answered, lied = said_in_a_room(10)
    drawn = answered - background
    assert lied > 10_000
    assert drawn < lied, f"{drawn / lied:.1f} times what the liar says"


def test_a_neighbor_draws_two_digests_and_then_as_many_in_the_longest_interval() -> None:
    limiter = DigestLimiter()
    drawn = [now for now in range(0, 240) if limiter.allow(now, 1, 1000, 60.0, first=False)]
    assert drawn == [0, 1, 30, 60, 90, 120, 150, 180, 210]
    # When a clock is set back no time has passed, and from then on it does.
    assert [now for now in range(-100, -40) if limiter.allow(now, 1, 1000, 60.0, first=False)] == [-99, -69]


def test_all_neighbors_together_draw_no_more_but_each_one_when_it_comes() -> None:
    limiter = DigestLimiter()
    assert [limiter.allow(0.0, node, 1000, 60.0, first=False) for node in range(5)] == [True, True, False, False, False]
    assert all(limiter.allow(0.0, node, 1000, 60.0, first=True) for node in range(10, 30))
    # Who goes and comes again all the time is no newcomer each time.
    assert [limiter.allow(1.0, 10, 1000, 60.0, first=True) for _ in range(3)] == [True, False, False]


def test_what_was_met_since_is_worth_comparing() -> None:
    limiter = DigestLimiter()
    for _ in range(2):
        assert limiter.allow(0.0, 1, 1000, 60.0, first=False)
    limiter.received_bytes += 999
    assert not limiter.allow(0.0, 1, 1000, 60.0, first=False)
    limiter.received_bytes += 1
    assert limiter.allow(0.0, 1, 1000, 60.0, first=False)
    # However much that is, two digests say it.
    limiter.received_bytes += 10**6
    assert [limiter.allow(0.0, 1, 1000, 60.0, first=False) for _ in range(3)] == [True, True, False]


def test_neighbors_whose_draws_are_remembered_are_not_without_number() -> None:
    limiter = DigestLimiter()
    for node in range(3 * MAX_BUCKETS):
        limiter.allow(0.0, node, 1000, 60.0, first=True)
    assert len(limiter._buckets) == MAX_BUCKETS


def test_a_digest_heard_counts_as_drawn_by_who_asked() -> None:
    """Else the next lie would draw it of the next node, and so on through the room."""
    ids = scattered(6)
    bench = holding(*ids)
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


def exhausted() -> Bench:
    """A node whose neighbors have drawn all the digests that they may draw together; none of them is new."""
    bench = holding(*scattered(6), neighbors=(1, 2, 3, 4, 5))
    said: list[Message] = []
    for neighbor in (1, 1, 2, 3, 4, 5):
        bench.hear(neighbor, STRANGE)
        said += bench.fire("reply")
    assert [type(one) for one in said] == [Hash, Digest, Digest], "one digest told all of them"
    assert bench.reasons() == ["digests_too_often"]
    return bench


def drawn(bench: Bench, neighbor: NodeId) -> int:
    """How many digests a neighbor draws by two hashes that differ; the first may draw a hash."""
    said: list[Message] = []
    for _ in range(2):
        bench.hear(neighbor, STRANGE)
        said += bench.fire("reply")
    return sum(isinstance(one, Digest) for one in said)


def test_a_newcomer_draws_a_digest_however_many_others_have_drawn() -> None:
    bench = exhausted()
    bench.node.on_link_up(1.0, Link(7, "radio", 0.001))
    bench.settle()
    assert drawn(bench, 7) == 1
    assert drawn(bench, 7) == 0, "from then on it is one of all"


def test_a_newcomer_that_a_neighbor_has_answered_is_none_any_more() -> None:
    bench = exhausted()
    bench.node.on_link_up(1.0, Link(7, "radio", 0.001))
    bench.settle()
    bench.hear(7, STRANGE)
    bench.hear(1, Digest(pack_ids(scattered(6))))
    assert drawn(bench, 7) == 0


def test_new_events_are_worth_a_digest() -> None:
    bench = exhausted()
    assert drawn(bench, 2) == 0
    bench.hear(1, Data(Event(EventId(50, 0), {"topic": 1}, b"x" * 200, lease_s=50.0), 1, 50.0, names(*range(1, 6))))
    assert drawn(bench, 2) == 1
