"""State vector sync: the specification's examples, its handlers one by one, and stories of small networks."""

import pytest

from carrycast.core.model import Event, EventId, Failure, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Link, RecordingPort
from carrycast.core.protocol.effects import Broadcast, Deliver, Note, Send, SetTimer
from carrycast.protocols.state_vector_sync.messages import (
    DataInterest,
    DataNack,
    SequenceRange,
    StateEntry,
    SyncData,
    SyncInterest,
)
from carrycast.protocols.state_vector_sync.protocol import StateVectorSync
from carrycast.protocols.state_vector_sync.vector import MAX_RANGES, MissingRanges, StateVector, remove_numbers
from carrycast.sim.testing import Net, isolate_protocol

A, B, C = 101, 102, 103
IN_SYNC = (StateEntry(A, 10), StateEntry(B, 15), StateEntry(C, 25))
NEWER = (StateEntry(A, 11), StateEntry(B, 15), StateEntry(C, 25))
WANTED = Subscription(SubscriptionId(0, 0), "topic = 1")


def make_event(source: int, number: int, payload: bytes = b"") -> Event:
    return Event(EventId(source, number), {"topic": 1}, payload, lease_s=600.0)


def make_node(
    *neighbors: int, vector: tuple[StateEntry, ...] = IN_SYNC, broadcast_bytes: int = 1400
) -> tuple[StateVectorSync, RecordingPort]:
    """Make a node that has all events of a vector, with neighbors that have sent the same one."""
    protocol, port = isolate_protocol("state_vector_sync", broadcast_bytes=broadcast_bytes)
    assert isinstance(protocol, StateVectorSync)
    protocol.on_subscribe(0.0, WANTED)
    for source, sequence in vector:
        for number in range(sequence + 1):
            protocol._vector.add(EventId(source, number))
    for neighbor in neighbors:
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.1))
        protocol.on_message(0.0, neighbor, SyncInterest(vector), "radio")
    protocol.on_timer(1.0, "sync")
    port.take()
    return protocol, port


def timers(port: RecordingPort, key: str) -> list[float]:
    return [one.delay_s for one in port.take() if isinstance(one, SetTimer) and one.key == key]


def test_example_without_loss() -> None:
    """[SVS §5.1] B receives [A=11, B=15, C=25] and updates its local state."""
    protocol, port = make_node(A)
    protocol.on_message(2.0, A, SyncInterest(NEWER), "radio")
    assert protocol._vector.latest == {A: 11, B: 15, C: 25}
    port.take()
    protocol.on_timer(2.5, "ask")
    assert port.take_messages() == [DataInterest((SequenceRange(A, 11, 11),))]
    protocol.on_message(2.6, A, SyncData(make_event(A, 11), 1, 600.0), "radio")
    assert Deliver(WANTED.id, make_event(A, 11), 1) in port.take()
    protocol.on_timer(3.0, "sync")
    assert port.take_messages() == [], "consistent state is re-established"


def test_example_with_packet_loss() -> None:
    """[SVS §5.2] C has not received A's interest. A and B wait for a suppression interval; A's timer expires, and it
    sends its vector. B receives that, and suppresses its own."""
    node_a, port_a = make_node(B, C, vector=NEWER)
    node_b, port_b = make_node(A, C, vector=NEWER)
    for node, port in ((node_a, port_a), (node_b, port_b)):
        node._states[C].latest[A] = 10
        node.on_message(2.0, C, SyncInterest(IN_SYNC), "radio")
        [delay_s] = timers(port, "sync")
        assert 0.5 <= delay_s / (10 * 0.1) <= 1.5, "a suppression interval, +-50 %"
        node.on_message(2.1, C, SyncInterest(IN_SYNC), "radio")
        assert timers(port, "sync") == [], "no further action in suppression state"
    node_a.on_timer(3.0, "sync")
    sent = [one.message for one in port_a.take() if isinstance(one, Broadcast)]
    assert sent == [SyncInterest(NEWER)]
    node_b.on_message(3.0, A, sent[0], "radio")
    node_b.on_message(3.1, C, sent[0], "radio")
    port_b.take()
    node_b.on_timer(3.2, "sync")
    assert port_b.take_messages() == []


def test_in_steady_state_a_vector_is_sent_every_30_s_unless_a_neighbor_was_heard() -> None:
    protocol, port = make_node(A, B)
    protocol.on_message(2.0, A, SyncInterest(IN_SYNC), "radio")
    [delay_s] = timers(port, "sync")
    assert 27.0 <= delay_s <= 33.0
    protocol.on_timer(32.0, "sync")
    assert [one.message for one in port.take() if isinstance(one, Broadcast)] == [SyncInterest(IN_SYNC)]


def test_a_publication_is_announced_at_once() -> None:
    protocol, port = make_node(A)
    protocol.on_publish(2.0, make_event(0, 0))
    assert port.take_messages() == [SyncInterest((StateEntry(0, 0), *IN_SYNC))]


def test_a_node_that_has_more_publishers_than_fit_sends_those_that_changed_last() -> None:
    vector = StateVector(sources=1000)
    for source in (5, 3, 9):
        vector.learn(source, 0)
    vector.learn(3, 1)
    assert vector.entries(2) == (StateEntry(3, 1), StateEntry(9, 0))
    assert vector.is_newer({3: 1, 9: 0})
    assert not vector.is_newer_in([StateEntry(3, 1), StateEntry(9, 0)])
    assert vector.is_newer_in([StateEntry(3, 0)])


def test_each_missing_event_is_requested_from_one_neighbor_and_then_from_another() -> None:
    protocol, port = make_node(A, B)
    for neighbor in (A, B):
        protocol.on_message(2.0, neighbor, SyncInterest(NEWER), "radio")
    port.take()
    protocol.on_timer(2.1, "ask")
    [first] = [one for one in port.take() if isinstance(one, Send)]
    protocol.on_timer(2.2, "ask")
    assert port.take_messages() == [], "one request is open"
    assert first.token is not None
    protocol.on_sent(2.3, first.token, Failure.UNREACHABLE)
    port.take()
    protocol.on_timer(2.4, "ask")
    [second] = [one for one in port.take() if isinstance(one, Send)]
    assert (first.target, second.target) == (A, B)
    assert first.message == second.message == DataInterest((SequenceRange(A, 11, 11),))


def test_a_requested_event_is_broadcast_if_several_neighbors_do_not_know_of_it() -> None:
    protocol, port = make_node(A, B, C)
    protocol.on_publish(2.0, make_event(0, 0))
    port.take()
    protocol.on_message(2.1, A, DataInterest((SequenceRange(0, 0, 0),)), "radio")
    assert [type(one) for one in port.take()] == [Broadcast]
    for neighbor in (B, C):
        protocol.on_message(2.1, neighbor, DataInterest((SequenceRange(0, 0, 0),)), "radio")
    assert port.take() == [], "the broadcast is on its way"
    protocol.on_message(9.0, B, DataInterest((SequenceRange(0, 0, 0),)), "radio")
    protocol.on_message(9.0, C, DataInterest((SequenceRange(0, 0, 0),)), "radio")
    assert [one.target for one in port.take() if isinstance(one, Send)] == [B, C], "the broadcast was lost"


def test_a_large_event_is_sent_to_each_neighbor_once_at_a_time() -> None:
    protocol, port = make_node(A, B, broadcast_bytes=100)
    protocol.on_publish(2.0, make_event(0, 0, bytes(101)))
    port.take()
    for _ in range(2):
        protocol.on_message(2.1, A, DataInterest((SequenceRange(0, 0, 0),)), "radio")
    [sent] = [one for one in port.take() if isinstance(one, Send)]
    assert sent.target == A
    assert sent.token is not None
    protocol.on_sent(2.2, sent.token, Failure.UNREACHABLE)
    protocol.on_message(2.3, A, DataInterest((SequenceRange(0, 0, 0),)), "radio")
    assert len(port.take_messages()) == 1


def test_a_node_that_is_missing_a_requested_event_sends_it_when_it_arrives() -> None:
    protocol, port = make_node(A, B)
    protocol.on_message(2.0, A, SyncInterest(NEWER), "radio")
    protocol.on_message(2.1, B, DataInterest((SequenceRange(A, 11, 11),)), "radio")
    port.take()
    protocol.on_message(2.2, A, SyncData(make_event(A, 11), 1, 600.0), "radio")
    sent = [one for one in port.take() if isinstance(one, Send)]
    assert [(one.target, one.message) for one in sent] == [(B, SyncData(make_event(A, 11), 2, 600.0))]


def test_events_that_a_node_does_not_have_are_denied_and_expired_ones_are_given_up() -> None:
    protocol, port = make_node(A)
    protocol.on_publish(2.0, make_event(0, 1))
    port.take()
    protocol.on_message(2.1, A, DataInterest((SequenceRange(B, 14, 20),)), "radio")
    assert port.take_messages() == [DataNack((SequenceRange(B, 14, 15),))]
    protocol.on_message(2.2, A, SyncInterest((StateEntry(A, 13),)), "radio")
    protocol.on_message(2.3, A, DataNack((SequenceRange(A, 11, 12),), (SequenceRange(A, 13, 13),)), "radio")
    assert list(protocol._vector.missing()) == [SequenceRange(0, 0, 0), SequenceRange(A, 13, 13)]
    port.take()
    protocol.on_timer(3.0, "ask")
    assert port.take_messages() == [], "the only neighbor does not have it"


def test_messages_of_strangers_are_dropped_with_a_reason() -> None:
    protocol, port = make_node()
    protocol.on_message(1.0, A, SyncInterest(NEWER), "radio")
    assert port.take() == [Note(Fact("drop", peer=A, reason="not_a_neighbor"))]


def test_missing_ranges_are_split_and_bounded() -> None:
    ranges = MissingRanges()
    ranges.append(0, 9)
    ranges.append(10, 19)
    ranges.remove(5, 12)
    assert list(ranges) == [(0, 4), (13, 19)]
    assert 4 in ranges
    assert 5 not in ranges
    for number in range(100, 100 + 2 * MAX_RANGES, 2):
        ranges.append(number, number)
    assert len(list(ranges)) == MAX_RANGES
    assert remove_numbers(SequenceRange(1, 0, 9), [0, 4, 9]) == [SequenceRange(1, 1, 3), SequenceRange(1, 5, 8)]


def test_a_forged_number_costs_one_range() -> None:
    vector = StateVector(sources=2)
    assert vector.learn(A, 2**62)
    assert not vector.learn(A, 5)
    assert list(vector.missing()) == [SequenceRange(A, 0, 2**62)]
    vector.learn(B, 1)
    vector.learn(C, 1)
    assert list(vector.latest) == [B, C]


@pytest.mark.parametrize("payload", [b"", bytes(5000)])
def test_events_cross_partitions_and_arrive_once(payload: bytes) -> None:
    net = Net.contacts([(0, 1, 0.0, 60.0), (1, 2, 100.0, 160.0)], "state_vector_sync")
    net.subscribe(2)
    net.run(5)
    events = [net.publish(0, {"n": n}, lease_s=600.0) for n in range(3)]
    net.run(150)
    assert sorted(event.id for event in net.list_delivered(2)) == [event.id for event in events]


def test_in_a_mesh_an_event_is_sent_few_times() -> None:
    net = Net.graph([(a, b) for a in range(8) for b in range(a)], "state_vector_sync")
    for node in range(8):
        net.subscribe(node)
    net.run(5)
    event = net.publish(0)
    net.run(5)
    assert all(net.list_delivered(node) == [event] for node in range(8))
    assert net.count_sent("SyncData") <= 3
