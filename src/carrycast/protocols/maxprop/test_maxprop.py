"""MaxProp: its formulas worked by hand, its table, and stories of small networks."""

from math import inf

import pytest

from carrycast.core.model import Event, EventId, Failure, Subscription, SubscriptionId
from carrycast.core.parts import ProfileVersion
from carrycast.core.parts.exchange_messages import CopyOffer, CopyRequest, CopyTransfer
from carrycast.core.parts.subscription_exchange import SubscriptionUpdate
from carrycast.core.protocol import Fact, Link, RecordingPort
from carrycast.core.protocol.effects import Note, Send
from carrycast.protocols.maxprop.messages import (
    FIXED_POINT_ONE,
    MAX_LIKELIHOODS,
    DeliveryAck,
    DeliveryAcks,
    MeetingLikelihood,
    NodeRecord,
    RecordRequest,
    RecordVersion,
    RecordVersions,
)
from carrycast.protocols.maxprop.protocol import MaxProp
from carrycast.protocols.maxprop.rules import (
    count_prioritized,
    find_path_costs,
    find_threshold,
    rank,
    update_likelihoods,
)
from carrycast.protocols.maxprop.table import MAX_ACKED, KnownDeliveries, MeetingTable
from carrycast.sim.testing import Net, isolate_protocol

ONE = ProfileVersion(0, 1)


def make_event(number: int, topic: int = 1) -> Event:
    return Event(EventId(7, number), {"topic": topic}, lease_s=600.0)


def test_incremental_averaging() -> None:
    first = update_likelihoods({}, 1, 1.0)
    assert first == {1: 1.0}
    second = update_likelihoods(first, 2, 1.0)
    assert second == {1: 0.5, 2: 0.5}
    # (0.5 + 1) / 2 and 0.5 / 2
    assert update_likelihoods(second, 1, 1.0) == {1: 0.75, 2: 0.25}
    assert update_likelihoods(second, 1, 3.0) == {1: 0.875, 2: 0.125}


def test_the_cost_of_a_path_is_the_sum_of_the_likelihoods_that_its_links_do_not_come() -> None:
    vectors = {0: {1: 0.75, 2: 0.25}, 1: {3: 0.5}, 2: {3: 1.0}}
    # To 3 over 1: 0.25 + 0.5; over 2: 0.75 + 0.
    assert find_path_costs(vectors, 0) == pytest.approx({0: 0.0, 1: 0.25, 2: 0.75, 3: 0.75})
    assert 3 not in find_path_costs({0: {1: 1.0}}, 0)


def test_the_part_of_the_buffer_that_is_ordered_by_hops() -> None:
    assert count_prioritized(40.0, 100) == 40.0, "x < b/2"
    assert count_prioritized(70.0, 100) == 30.0, "b/2 <= x < b: min(x, b - x)"
    assert count_prioritized(100.0, 100) == 0.0, "x >= b"


def test_the_threshold_is_above_the_event_that_fills_the_part() -> None:
    assert find_threshold([3, 1, 2, 1], 2.0) == 2
    assert find_threshold([3, 1, 2, 1], 2.5) == 3
    assert find_threshold([3, 1], 9.0) == 4
    assert find_threshold([], 2.0) == find_threshold([1], 0.0) == 0


def test_events_with_few_hops_come_first_then_those_of_low_cost() -> None:
    ranked = sorted([(5, 0.1), (1, inf), (4, 0.5), (0, 2.0), (6, 0.1)], key=lambda one: rank(one[0], one[1], 2))
    assert ranked == [(0, 2.0), (1, inf), (5, 0.1), (6, 0.1), (4, 0.5)]


def make_record(node: int, filters: tuple[str, ...] = (), change: int = 1, **met: float) -> NodeRecord:
    likelihoods = tuple(MeetingLikelihood(int(name[1:]), round(value * FIXED_POINT_ONE)) for name, value in met.items())
    return NodeRecord(node, ProfileVersion(0, change), likelihoods, filters)


def test_records_give_destinations_and_costs_and_newer_ones_replace_them() -> None:
    table = MeetingTable(0, 1.0, nodes=2)
    table.meet(1)
    table.meet(2)
    assert table.add(make_record(1, ("topic = 1",), n3=1.0), ("topic = 1",))
    event = make_event(0)
    assert table.destinations(event) == [1]
    assert table.cost(0, [3]) == pytest.approx(0.5)
    assert table.cost(0, [9]) == table.cost(0, []) == inf
    assert table.add(make_record(1, ("topic = 2",), change=2), ("topic = 2",))
    assert table.destinations(event) == []
    assert table.cost(0, [3]) == inf
    assert table.add(make_record(1, ("topic = 1",)), ("topic = 1",)), "an older one"
    assert table.destinations(event) == []
    table.add(make_record(2), ())
    table.add(make_record(3), ())
    assert list(table.nodes()) == [2, 3], "the one updated first has made room"


def test_a_record_has_the_highest_likelihoods() -> None:
    table = MeetingTable(0, 1.0, nodes=10)
    for node in range(1, MAX_LIKELIHOODS + 20):
        table.meet(node)
    record = table.record(0, ONE, ())
    assert len(record.likelihoods) == MAX_LIKELIHOODS
    assert record.likelihoods[0].node == MAX_LIKELIHOODS + 19
    assert sum(table.own.values()) == pytest.approx(1.0, abs=0.01)


def make_carrier(buffer: int = 10_000) -> tuple[MaxProp, RecordingPort]:
    """Make node 7 with neighbor 1, which is interested in topic 1."""
    maxprop, port = isolate_protocol("maxprop", node=7, buffer=buffer)
    assert isinstance(maxprop, MaxProp)
    maxprop.on_link_up(0.0, Link(1, "radio", 0.001))
    maxprop.on_message(0.0, 1, SubscriptionUpdate(("topic = 1",)), "radio")
    maxprop.on_message(0.0, 1, make_record(1, ("topic = 1",), n1=0.0), "radio")
    port.take()
    return maxprop, port


def test_events_for_the_neighbor_are_offered_first_then_those_that_it_is_likely_to_deliver() -> None:
    maxprop, port = make_carrier()
    maxprop.on_link_down(0.0, Link(1, "radio", 0.001), Failure.SILENT)
    maxprop.on_message(0.0, 2, make_record(2, ("topic = 2",)), "radio")
    maxprop.on_message(0.0, 3, make_record(3, ("topic = 3",)), "radio")
    maxprop.on_message(0.0, 1, make_record(1, ("topic = 1",), change=2, n2=0.25, n3=0.75), "radio")
    for number, topic in enumerate((2, 3, 1)):
        maxprop.on_publish(0.0, make_event(number, topic))
    maxprop.on_link_up(1.0, Link(1, "radio", 0.001))
    port.take()
    maxprop.on_message(1.0, 1, SubscriptionUpdate(("topic = 1",)), "radio")
    [offer] = [one for one in port.take_messages() if isinstance(one, CopyOffer)]
    assert offer.ids == (EventId(7, 2), EventId(7, 1), EventId(7, 0))


def test_a_full_buffer_drops_delivered_events_first_then_the_farthest() -> None:
    maxprop, port = make_carrier(buffer=2)
    maxprop.on_publish(0.0, make_event(0))
    maxprop.on_publish(0.0, make_event(1, topic=9))
    maxprop.on_message(0.0, 1, DeliveryAcks((DeliveryAck(EventId(7, 0), 500.0, (1,)),)), "radio")
    maxprop.on_publish(0.0, make_event(2))
    assert list(maxprop.buffer.events) == [EventId(7, 1), EventId(7, 2)], "0 was delivered"
    maxprop.on_publish(0.0, make_event(3))
    assert list(maxprop.buffer.events) == [EventId(7, 2), EventId(7, 3)], "nobody is known to want 1"
    evicted = [one.fact.event for one in port.take() if isinstance(one, Note) and one.fact.kind == "evict"]
    assert evicted == [EventId(7, 0), EventId(7, 1)]


def test_an_event_that_all_destinations_have_is_only_offered_to_subscribers() -> None:
    maxprop, port = make_carrier()
    maxprop.on_publish(0.0, make_event(0))
    maxprop.on_message(0.0, 1, DeliveryAcks((DeliveryAck(EventId(7, 0), 500.0, (1,)),)), "radio")
    port.take()
    for neighbor, filters in ((2, ()), (3, ("topic = 1",))):
        maxprop.on_link_up(1.0, Link(neighbor, "radio", 0.001))
        maxprop.on_message(1.0, neighbor, SubscriptionUpdate(filters), "radio")
    offers = [one.target for one in port.take() if isinstance(one, Send) and isinstance(one.message, CopyOffer)]
    assert offers == [3]


def test_an_acknowledged_transfer_to_a_destination_counts_as_delivered() -> None:
    maxprop, port = make_carrier()
    maxprop.on_publish(0.0, make_event(0))
    maxprop.on_message(0.0, 1, CopyRequest((EventId(7, 0),)), "radio")
    [sent] = [one for one in port.take() if isinstance(one, Send) and isinstance(one.message, CopyTransfer)]
    assert sent.token is not None
    maxprop.on_sent(0.1, sent.token, None)
    maxprop.on_link_up(1.0, Link(2, "radio", 0.001))
    acks = [one for one in port.take_messages() if isinstance(one, DeliveryAcks)]
    assert acks == [DeliveryAcks((DeliveryAck(EventId(7, 0), 599.0, (1,)),))]


def test_a_destination_acknowledges_until_the_lease_ends() -> None:
    maxprop, port = make_carrier()
    maxprop.on_subscribe(0.0, Subscription(SubscriptionId(7, 0), "topic = 1"))
    event = Event(EventId(5, 0), {"topic": 1}, lease_s=60.0)
    maxprop.on_message(10.0, 1, CopyTransfer(event, 1, 50.0, 1), "radio")
    port.take()
    maxprop.on_timer(20.0, "exchange")
    acks = [one for one in port.take_messages() if isinstance(one, DeliveryAcks)]
    assert acks == [DeliveryAcks((DeliveryAck(event.id, 40.0, (7,)),))]
    maxprop.on_timer(80.0, "exchange")
    assert [one for one in port.take_messages() if isinstance(one, DeliveryAcks)] == []


def test_records_are_requested_if_they_are_newer() -> None:
    maxprop, port = make_carrier()
    newer = RecordVersion(1, ProfileVersion(0, 2))
    maxprop.on_message(
        1.0, 1, RecordVersions((newer, RecordVersion(2, ONE), RecordVersion(7, ProfileVersion(9, 9)))), "radio"
    )
    assert port.take_messages() == [RecordRequest((1, 2))]
    maxprop.on_message(1.0, 1, RecordRequest((7, 1, 99)), "radio")
    own, other = port.take_messages()
    assert isinstance(own, NodeRecord)
    assert isinstance(other, NodeRecord)
    assert (own.node, own.likelihoods) == (7, (MeetingLikelihood(1, FIXED_POINT_ONE),))
    assert (other.node, other.filters) == (1, ("topic = 1",))


def test_invalid_messages_are_dropped_with_a_reason() -> None:
    maxprop, port = make_carrier()
    maxprop.on_message(1.0, 1, make_record(2, ("topic =",)), "radio")
    assert Note(Fact("drop", peer=1, reason="profile_unreadable")) in port.take()
    known = KnownDeliveries()
    assert all(known.add(EventId(1, number), 10.0, (2,)) for number in range(MAX_ACKED))
    assert not known.add(EventId(2, 0), 10.0, (2,))
    known.expire(10.0)
    assert len(known) == 0


def test_with_short_contacts_the_events_of_the_carrier_that_meets_the_subscriber_arrive() -> None:
    """1 often meets the subscriber 3. It has room for two of the three events of 0."""
    contacts = [(1, 3, 0.0, 5.0), (0, 1, 30.0, 40.0), (1, 3, 50.0, 60.0)]
    net = Net.contacts(contacts, "maxprop", buffer=2)
    net.subscribe(3, "topic = 1")
    net.run(20)
    unwanted = net.publish(0, {"topic": 2}, lease_s=600.0)
    wanted = [net.publish(0, {"topic": 1}, lease_s=600.0) for _ in range(2)]
    net.run(60)
    assert net.list_delivered(3) == wanted
    assert [row["event"] for row in net.rows("evict")] == [str(unwanted.id)]
