"""Topic holders handler by handler: subscriber, publisher, holder, and bad input."""

import itertools
import math

import pytest

from carrycast.core.model import Event, EventId, Position, Subscription, SubscriptionId
from carrycast.core.protocol import Place
from carrycast.core.protocol.effects import CancelTimer, Deliver, Note, SetTimer
from carrycast.protocols.topic_holder.messages import Advertise, Notification, Publication, Refresh, SubscriptionList
from carrycast.protocols.topic_holder.tests.bench import (
    HERE,
    JAM,
    ME,
    Bench,
    list_broadcasts,
    list_drops,
    list_routed,
    make_entry,
    make_jam,
    make_subscription,
)

PLACES = pytest.mark.parametrize("holder", ["node", "place"])


# A subscriber.


@PLACES
def test_a_subscription_is_refreshed_every_second_with_the_subscribers_position(holder: str) -> None:
    """[003 §3.2.1, §5]"""
    bench = Bench(holder=holder)
    mine = make_subscription(ME, "topic = 'jam' and length > 2", rank="major")
    bench.node.on_subscribe(0.0, mine)
    (timer,) = bench.port.take()
    assert isinstance(timer, SetTimer)
    assert (timer.key, 0 <= timer.delay_s < 1) == ("refresh", True)
    (target,) = bench.node.holders.find_all(0.0, JAM)
    for count in (1, 2):
        effects = bench.tick(count, "refresh")
        here = HERE if holder == "place" else None
        assert list_routed(effects) == [(target, Refresh(JAM, make_entry(mine, here, count)))]
        assert SetTimer("refresh", 1.0) in effects
    bench.node.on_stop(3.0)
    assert bench.port.take() == [CancelTimer("refresh")]


def test_a_filter_of_several_topics_goes_to_the_holders_of_each_without_its_state() -> None:
    bench = Bench(holders=2)
    whole = Subscription(SubscriptionId(ME, 1), "topic in ('a', 'b')", history=True, state=b"much")
    bench.node.on_subscribe(0.0, whole)
    sent = list_routed(bench.tick(1.0, "refresh"))
    assert [message.topic for _, message in sent if isinstance(message, Refresh)] == ["s:a", "s:a", "s:b", "s:b"]
    assert all(isinstance(message, Refresh) and message.entry.subscription.state == b"" for _, message in sent)


@pytest.mark.parametrize(
    ("filter", "reason"),
    [
        ("length > 2", "topic_not_pinned"),
        ("", "topic_not_pinned"),
        ("topic like 'j%'", "topic_not_pinned"),
        (f"topic in ({', '.join(map(str, range(65)))})", "too_many_topics"),
        ("topic = 'jam' and x = '" + "long " * 300 + "'", "subscription_too_long"),
    ],
)
def test_a_subscription_without_a_holder_gets_only_events_of_its_own_node(filter: str, reason: str) -> None:
    bench = Bench()
    bench.node.on_subscribe(0.0, make_subscription(ME, filter))
    effects = bench.port.take()
    assert list_drops(effects) == [reason]
    assert not any(isinstance(effect, SetTimer) for effect in effects)
    if reason == "topic_not_pinned":
        event = make_jam(ME, length=3)
        bench.node.on_publish(1.0, event)
        assert Deliver(SubscriptionId(ME, 1), event, 0) in bench.port.take()


def test_an_unsatisfiable_filter_causes_no_refresh() -> None:
    bench = Bench()
    bench.node.on_subscribe(0.0, make_subscription(ME, "topic = 'a' and topic = 'b'"))
    assert bench.port.take() == []


def test_changed_and_ended_subscriptions_send_no_extra_message() -> None:
    """[003 §3.4] Logical mobility is handled by soft state."""
    bench = Bench()
    bench.node.on_subscribe(0.0, make_subscription(ME))
    bench.node.on_subscribe(0.5, make_subscription(ME, "topic = 'fire'"))
    bench.port.take()
    (sent,) = list_routed(bench.tick(1.0, "refresh"))
    assert isinstance(sent[1], Refresh)
    assert sent[1].topic == "s:fire"
    assert list_drops(bench.receive(1.5, 5, Notification(make_jam(), 1, 50.0))) == ["not_wanted"], (
        "its old holder has not removed it yet"
    )
    bench.node.on_unsubscribe(1.6, SubscriptionId(ME, 1))
    assert bench.tick(2.0, "refresh") == []


def test_a_node_without_a_position_refreshes_when_it_has_one() -> None:
    bench = Bench(here=None, holder="place")
    bench.node.on_subscribe(0.0, make_subscription(ME))
    bench.port.take()
    assert bench.tick(1.0, "refresh") == [SetTimer("refresh", 1.0)]
    bench.host.here = HERE
    assert len(list_routed(bench.tick(2.0, "refresh"))) == 1


def test_an_event_is_delivered_once_with_the_hops_of_both_paths() -> None:
    bench = Bench()
    bench.node.on_subscribe(0.0, make_subscription(ME))
    bench.port.take()
    assert bench.receive(1.0, 5, Notification(make_jam(), 4, 50.0), 2) == [
        Deliver(SubscriptionId(ME, 1), make_jam(), 6)
    ]
    assert list_drops(bench.receive(1.1, 5, Notification(make_jam(), 4, 50.0), 2)) == ["already_delivered"]
    far = bench.receive(1.2, 5, Notification(make_jam(sequence=2), 65535, 50.0), 9)
    assert far == [Deliver(SubscriptionId(ME, 1), make_jam(sequence=2), 65535)]


def test_the_subscribers_own_node_evaluates_the_policy_too() -> None:
    bench = Bench()
    bench.node.on_subscribe(0.0, make_subscription(ME, rank="minor"))
    bench.port.take()
    assert list_drops(bench.receive(1.0, 5, Notification(make_jam(access="rank = 'major'"), 1, 50.0))) == ["not_wanted"]


def test_changed_attributes_and_positions_are_sent_with_the_next_refresh() -> None:
    """[003 §3.4] Logical mobility: the next refresh has the change; until then the subscriber's own node drops
    events."""
    bench = Bench(holder="place")
    bench.node.on_subscribe(0.0, make_subscription(ME, rank="major"))
    bench.tick(1.0, "refresh")
    bench.node.on_subscribe(1.2, make_subscription(ME, rank="minor"))
    bench.host.here = Position(70.0, 80.0)
    assert list_drops(bench.receive(1.5, 5, Notification(make_jam(access="rank = 'major'"), 1, 50.0))) == ["not_wanted"]
    ((_, refresh),) = list_routed(bench.tick(2.0, "refresh"))
    assert refresh == Refresh(JAM, make_entry(make_subscription(ME, rank="minor"), Position(70.0, 80.0), 2))


@pytest.mark.parametrize("mode", ["broker", "rendezvous"])
def test_the_newest_entry_of_a_subscriber_decides(mode: str) -> None:
    """[003 §3.4] For filter, attributes and position, at the holder and in the publisher's list."""
    bench = Bench(holder="place", mode=mode)
    old, new = Position(1.0, 1.0), Position(2.0, 2.0)
    entries = [
        make_entry(make_subscription(2, "topic = 'jam' and length > 2", rank="minor"), old, 1),
        make_entry(make_subscription(2, "topic = 'jam' and length < 2", rank="major"), new, 2),
    ]
    if mode == "rendezvous":
        bench.node.on_publish(0.0, make_jam(ME, sequence=9))
    for one in (entries[1], entries[0]):
        # The newer entry arrives first.
        message = Refresh(JAM, one) if mode == "broker" else SubscriptionList(JAM, (one,))
        bench.receive(1.0, 2, message)
    cases = [("rank = 'major'", 1, [Place(new, 0.0, 2)]), ("rank = 'minor'", 1, []), ("rank = 'major'", 3, [])]
    for sequence, (access, length, targets) in enumerate(cases):
        event = make_jam(ME, access, sequence, length=length)
        if mode == "broker":
            effects = bench.receive(1.5, 9, Publication(make_jam(9, access, sequence, length=length), 0, 50.0))
        else:
            bench.node.on_publish(1.5, event)
            effects = bench.port.take()
        assert [target for target, _ in list_routed(effects)] == targets


def test_remembered_events_are_bounded() -> None:
    bench = Bench(max_seen=50)
    for sequence in range(200):
        bench.receive(1.0, 8, Publication(make_jam(sequence=sequence), 0, 90.0))
    assert len(bench.node.handled) == 50
    assert list_drops(bench.receive(1.0, 8, Publication(make_jam(sequence=199), 0, 90.0))) == ["already_handled"]


# A broker.


@PLACES
def test_a_broker_notifies_subscribers_that_match_and_refresh(holder: str) -> None:
    """[003 §2, §3.2.1]"""
    bench = Bench(holder=holder)
    there = Position(300.0, 0.0)
    wanted = [
        make_subscription(2, "topic = 'jam' and length > 2", rank="major"),
        make_subscription(3, "topic = 'jam' and length > 5", rank="major"),
        make_subscription(4, rank="minor"),
        make_subscription(5),
        make_subscription(8, rank="major"),
    ]
    for one in wanted:
        bench.receive(1.0, one.subscriber, Refresh(JAM, make_entry(one, there)))
    event = make_jam(access="rank = 'major'", length=3)
    sent = list_routed(bench.receive(2.0, 8, Publication(event, 0, 90.0), 4))
    target = Place(there, 0.0, 2) if holder == "place" else 2
    assert sent == [(target, Notification(event, 4, 90.0))], "not to the publisher itself"
    assert list_routed(bench.receive(4.0, 8, Publication(make_jam(sequence=2, length=9), 0, 90.0))) == [], (
        "the subscriptions have expired after 3 s"
    )


def test_a_node_with_two_subscriptions_gets_one_message_at_its_last_position() -> None:
    bench = Bench(holder="place")
    first, last = Position(1.0, 1.0), Position(2.0, 2.0)
    bench.receive(1.0, 2, Refresh(JAM, make_entry(make_subscription(2, number=1), last, count=7)))
    bench.receive(1.0, 2, Refresh(JAM, make_entry(make_subscription(2, number=2), first, count=6)))
    sent = list_routed(bench.receive(2.0, 8, Publication(make_jam(), 0, 90.0)))
    assert [target for target, _ in sent] == [Place(last, 0.0, 2)]


def test_a_duplicate_publication_is_dropped() -> None:
    bench = Bench()
    bench.receive(1.0, 2, Refresh(JAM, make_entry(make_subscription(2))))
    assert len(list_routed(bench.receive(2.0, 8, Publication(make_jam(), 0, 90.0)))) == 1
    assert list_drops(bench.receive(2.1, 8, Publication(make_jam(), 0, 90.0))) == ["already_handled"]


# Proximity.


def test_a_captor_within_k_broadcasts_subscriptions_and_not_events() -> None:
    """[003 §3.5]"""
    bench = Bench(holder="place")
    home = bench.node.holders.find_place(JAM)
    refresh = Refresh(JAM, make_entry(make_subscription(2), HERE))
    bench.host.here = Position(home.x_m + 125.0, home.y_m)
    assert list_broadcasts(bench.receive(1.0, 2, refresh)) == [refresh]
    assert list_broadcasts(bench.receive(1.5, 8, Publication(make_jam(), 0, 90.0))) == []
    bench.host.here = Position(home.x_m + 125.1, home.y_m)
    assert list_broadcasts(bench.receive(2.0, 2, refresh)) == [], "the nearest node, but not within K"
    assert list_broadcasts(Bench(here=home, holder="place", capture_m=0).receive(1.0, 2, refresh)) == []
    assert list_broadcasts(Bench().receive(1.0, 2, refresh)) == []


def test_a_broadcast_subscription_is_stored_and_not_broadcast_again() -> None:
    bench = Bench(holder="place")
    bench.host.here = bench.node.holders.find_place(JAM)
    assert bench.hear(1.0, 9, Refresh(JAM, make_entry(make_subscription(2), HERE))) == []
    assert [target for target, _ in list_routed(bench.receive(2.0, 8, Publication(make_jam(), 0, 90.0)))] == [
        Place(HERE, 0.0, 2)
    ]


# A publisher.


@PLACES
def test_a_publisher_sends_its_event_to_the_broker(holder: str) -> None:
    """[003 §3.2.1]"""
    bench = Bench(holder=holder)
    event = make_jam(ME)
    bench.node.on_publish(0.0, event)
    (target,) = bench.node.holders.find_all(0.0, JAM)
    assert list_routed(bench.port.take()) == [(target, Publication(event, 0, 100.0))]


def test_an_event_without_a_topic_reaches_only_its_own_node() -> None:
    bench = Bench()
    event = Event(EventId(ME, 1), {"length": 3})
    bench.node.on_publish(0.0, event)
    assert list_drops(bench.port.take()) == ["no_topic"]
    assert list_drops(bench.receive(1.0, 8, Publication(event, 0, 50.0))) == ["no_topic"]


def test_without_holders_events_are_dropped_with_a_reason() -> None:
    bench = Bench(role="nobody")
    bench.node.on_publish(0.0, make_jam(ME))
    assert list_drops(bench.port.take()) == ["no_holder"]


def test_the_next_node_by_hash_replaces_an_unreachable_holder() -> None:
    """[003 §3.4]"""
    bench = Bench(next_holders=2)
    event = make_jam(ME)
    bench.node.on_publish(0.0, event)
    ((first, message),) = list_routed(bench.port.take())
    assert isinstance(first, int)
    order = [(first + step) % 10 for step in range(3)]
    for failed, onward in itertools.pairwise(order):
        bench.node.on_unreachable(1.0, failed, message)
        assert list_routed(bench.port.take()) == [(onward, message)]
    bench.node.on_unreachable(1.0, order[2], message)
    assert list_drops(bench.port.take()) == ["no_holder"]
    bench.node.on_unreachable(1.5, first, Advertise(JAM, None))
    assert list_drops(bench.port.take()) == ["no_holder"], "all three are passed over for 30 s"
    assert list(bench.node.holders.find_all(30.9, JAM)) == [first], "if all are passed over, the first is used"
    bench.node.on_unreachable(31.6, order[1], message)
    assert list_routed(bench.port.take()) == [(first, message)], "the first is used again"


def test_by_default_an_unreachable_holder_is_not_replaced() -> None:
    """[003 §3.4] "Unless a failure occurs, the broker is fixed": a returned packet is no proof of a failure."""
    bench = Bench()
    bench.node.on_publish(0.0, make_jam(ME))
    ((first, message),) = list_routed(bench.port.take())
    bench.node.on_unreachable(1.0, first, message)
    assert list_drops(bench.port.take()) == ["no_holder"]
    assert list(bench.node.holders.find_all(1.0, JAM)) == [first]


def test_of_returned_refreshes_only_the_newest_goes_to_the_next_holder() -> None:
    bench = Bench(next_holders=2)
    bench.node.on_subscribe(0.0, make_subscription(ME))
    sent = [list_routed(bench.tick(now, "refresh"))[0] for now in (1.0, 2.0)]
    assert isinstance(sent[0][0], int)
    bench.node.on_unreachable(22.0, *sent[0])
    assert list_drops(bench.port.take()) == ["outdated"]
    bench.node.on_unreachable(22.0, *sent[1])
    assert list_routed(bench.port.take()) == [((sent[0][0] + 1) % 10, sent[1][1])]


def test_an_unreachable_subscriber_or_place_has_no_replacement() -> None:
    bench = Bench()
    bench.node.on_unreachable(1.0, 4, Notification(make_jam(), 1, 50.0))
    bench.node.on_unreachable(1.0, 4, SubscriptionList(JAM, ()))
    bench.node.on_unreachable(1.0, Place(HERE), Advertise(JAM, None))
    assert list_drops(bench.port.take()) == ["unreachable"] * 3


# Rendezvous.


def test_a_rendezvous_node_lists_the_topic_without_evaluation() -> None:
    """[003 §3.2.2]"""
    bench = Bench(holder="place", mode="rendezvous")
    jams = [make_entry(make_subscription(node, f"topic = 'jam' and length > {node}"), HERE) for node in (2, 4)]
    for one in jams:
        bench.receive(1.0, one.subscription.subscriber, Refresh(JAM, one))
    bench.receive(1.0, 5, Refresh("s:fire", make_entry(make_subscription(5, "topic = 'fire'"), HERE)))
    there = Position(7.0, 7.0)
    assert list_routed(bench.receive(2.0, 9, Advertise(JAM, there))) == [
        (Place(there, 0.0, 9), SubscriptionList(JAM, tuple(jams)))
    ]
    assert list_routed(bench.receive(2.0, 9, Advertise("s:none", there))) == [
        (Place(there, 0.0, 9), SubscriptionList("s:none", ()))
    ]


def test_a_long_list_goes_in_several_messages() -> None:
    bench = Bench(mode="rendezvous")
    for node in range(2, 102):
        wanted = make_subscription(node, f"topic = 'jam' and x = '{'y' * 90}'")
        bench.receive(1.0, node, Refresh(JAM, make_entry(wanted)))
    lists = [message for _, message in list_routed(bench.receive(2.0, 200, Advertise(JAM, None)))]
    assert all(isinstance(part, SubscriptionList) for part in lists)
    parts = [part for part in lists if isinstance(part, SubscriptionList)]
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert sum(len(part.entries) for part in parts) == 100
    assert 8 <= max(len(part.entries) for part in parts) <= 1400 // 130


def make_publisher(**settings: object) -> tuple[Bench, int]:
    """Make a rendezvous publisher that waits for its list, and return its holder too."""
    bench = Bench(HERE, mode="rendezvous", **settings)
    bench.node.on_publish(0.0, make_jam(ME, length=3))
    effects = bench.port.take()
    ((holder, message),) = list_routed(effects)
    assert message == Advertise(JAM, None)
    assert SetTimer("advertise", 1.0) in effects
    assert isinstance(holder, int)
    return bench, holder


def test_the_first_event_of_a_topic_waits_for_a_list() -> None:
    """[003 §3.2.2] The publisher evaluates, and sends directly."""
    bench, holder = make_publisher()
    entries = [make_entry(make_subscription(node, f"topic = 'jam' and length > {node}")) for node in (2, 4)]
    whole = SubscriptionList(JAM, tuple(entries))
    assert list_routed(bench.receive(0.25, holder, SubscriptionList(JAM, tuple(entries[1:]), more=True))) == []
    first = list_routed(bench.receive(0.25, holder, whole))
    assert first == [(2, Notification(make_jam(ME, length=3), 0, 99.75))], (
        "its lease is shorter by the time that it waited"
    )
    again = make_jam(ME, sequence=2, length=9)
    bench.node.on_publish(1.0, again)
    assert list_routed(bench.port.take()) == [(2, Notification(again, 0, 100.0)), (4, Notification(again, 0, 100.0))]
    bench.node.on_publish(3.25, make_jam(ME, sequence=3, length=9))
    assert [message for _, message in list_routed(bench.port.take())] == [Advertise(JAM, None)], "the list has expired"


def test_a_publisher_sends_only_to_subscribers_that_satisfy_the_policy() -> None:
    bench, holder = make_publisher()
    entries = [
        make_entry(make_subscription(2, rank="minor")),
        make_entry(make_subscription(3, rank="major")),
        make_entry(make_subscription(4)),
    ]
    bench.receive(0.5, holder, SubscriptionList(JAM, tuple(entries)))
    bench.node.on_publish(1.0, make_jam(ME, "rank = 'major'", 2))
    assert [target for target, _ in list_routed(bench.port.take())] == [3]


def test_a_publisher_advertises_every_second_until_it_is_inactive() -> None:
    bench, holder = make_publisher()
    bench.receive(0.5, holder, SubscriptionList(JAM, ()))
    for now in range(1, 30):
        effects = bench.tick(now, "advertise")
        assert [message for _, message in list_routed(effects)] == [Advertise(JAM, None)]
        assert SetTimer("advertise", 1.0) in effects
    assert bench.tick(30, "advertise") == []
    assert list_drops(bench.receive(30.1, holder, SubscriptionList(JAM, ()))) == ["not_asked"]


def test_events_without_a_list_are_dropped_with_a_reason() -> None:
    bench, _ = make_publisher(max_waiting=2)
    for sequence in (2, 3):
        bench.node.on_publish(0.5, make_jam(ME, sequence=sequence))
    full = [effect.fact for effect in bench.port.take() if isinstance(effect, Note)]
    assert [(fact.reason, fact.event) for fact in full] == [("waiting_full", EventId(ME, 1))]
    assert list_drops(bench.tick(3.4, "advertise")) == []
    assert list_drops(bench.tick(3.5, "advertise")) == ["no_list", "no_list"]
    short, holder = make_publisher()
    short.node.on_publish(0.0, Event(EventId(ME, 5), {"topic": "jam"}, lease_s=0.5))
    short.port.take()
    assert list_drops(short.receive(0.5, holder, SubscriptionList(JAM, ()))) == ["lease_over"]


# Bad input.


def test_invalid_messages_are_dropped_with_a_reason() -> None:
    bench = Bench(holder="place", list_bytes=200)
    good = make_subscription(2)
    far = Position(1e9, 0.0)
    long = Subscription(SubscriptionId(2, 1), "topic = 'jam'", state=bytes(500))
    cases = [
        (3, Refresh(JAM, make_entry(good, HERE)), "forged_subscriber"),
        (2, Refresh(JAM, make_entry(good, far)), "absurd_position"),
        (2, Refresh(JAM, make_entry(good, Position(math.nan, 0.0))), "absurd_position"),
        (2, Refresh(JAM, make_entry(good, None)), "absurd_position"),
        (2, Refresh(JAM, make_entry(long, HERE)), "subscription_too_long"),
        (2, Refresh(JAM, make_entry(make_subscription(2, "topic ="), HERE)), "filter_unreadable"),
        (2, Advertise(JAM, far), "absurd_position"),
        (2, SubscriptionList(JAM, (make_entry(good, HERE),)), "not_asked"),
    ]
    for origin, message, reason in cases:
        effects = bench.receive(1.0, origin, message)
        assert (list_drops(effects), list_routed(effects), list_broadcasts(effects)) == ([reason], [], [])
    assert len(bench.node.table) == 0
    assert list_drops(bench.hear(1.0, 2, Advertise(JAM, HERE))) == ["not_routed"]
    assert list_drops(Bench().hear(1.0, 2, Refresh(JAM, make_entry(good)))) == ["not_routed"]


def test_the_table_of_a_holder_is_bounded() -> None:
    bench = Bench(max_held=50)
    reasons = [
        reason
        for node in range(200)
        for reason in list_drops(bench.receive(1.0, node, Refresh(f"s:{node}", make_entry(make_subscription(node)))))
    ]
    assert (len(bench.node.table), reasons) == (50, ["table_full"] * 150)
    assert list_drops(bench.receive(4.0, 7, Refresh(JAM, make_entry(make_subscription(7))))) == []


def test_a_list_is_accepted_from_holders_only_and_bounded() -> None:
    bench, holder = make_publisher(max_held=3)
    entries = tuple(make_entry(make_subscription(node)) for node in range(20, 30))
    stranger = (holder + 5) % 10
    assert list_drops(bench.receive(0.5, stranger, SubscriptionList(JAM, entries))) == ["not_a_holder"]
    effects = bench.receive(0.5, holder, SubscriptionList(JAM, entries))
    assert list_drops(effects) == ["table_full"] * 7
    assert len(list_routed(effects)) == 3
    broken = (make_entry(make_subscription(20, "topic =")),)
    assert list_drops(bench.receive(0.6, holder, SubscriptionList(JAM, broken))) == ["filter_unreadable"]
