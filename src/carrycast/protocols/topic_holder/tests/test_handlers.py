"""Topic holders handler by handler: subscriber, publisher, holder, and what each refuses."""

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
    broadcast,
    drops,
    entry,
    jam,
    routed,
    subscription,
)

PLACES = pytest.mark.parametrize("holder", ["node", "place"])


# A subscriber.


@PLACES
def test_a_subscription_goes_to_its_holder_every_second_with_where_the_subscriber_is(holder: str) -> None:
    """[003 §3.2.1, §5]"""
    bench = Bench(holder=holder)
    mine = subscription(ME, "topic = 'jam' and length > 2", rank="major")
    bench.node.on_subscribe(0.0, mine)
    (timer,) = bench.port.take()
    assert isinstance(timer, SetTimer)
    assert (timer.key, 0 <= timer.delay_s < 1) == ("refresh", True)
    (target,) = bench.node.holders.find_all(0.0, JAM)
    for count in (1, 2):
        effects = bench.tick(count, "refresh")
        here = HERE if holder == "place" else None
        assert routed(effects) == [(target, Refresh(JAM, entry(mine, here, count)))]
        assert SetTimer("refresh", 1.0) in effects
    bench.node.on_stop(3.0)
    assert bench.port.take() == [CancelTimer("refresh")]


def test_a_filter_of_several_topics_goes_to_the_holder_of_each_and_what_it_need_not_tell_stays() -> None:
    bench = Bench(holders=2)
    whole = Subscription(SubscriptionId(ME, 1), "topic in ('a', 'b')", history=True, state=b"much")
    bench.node.on_subscribe(0.0, whole)
    sent = routed(bench.tick(1.0, "refresh"))
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
def test_what_no_holder_can_know_of_is_served_by_its_own_node_alone(filter: str, reason: str) -> None:
    bench = Bench()
    bench.node.on_subscribe(0.0, subscription(ME, filter))
    effects = bench.port.take()
    assert drops(effects) == [reason]
    assert not any(isinstance(effect, SetTimer) for effect in effects)
    if reason == "topic_not_pinned":
        event = jam(ME, length=3)
        bench.node.on_publish(1.0, event)
        assert Deliver(SubscriptionId(ME, 1), event, 0) in bench.port.take()


def test_a_filter_that_nothing_matches_is_no_reason_to_speak() -> None:
    bench = Bench()
    bench.node.on_subscribe(0.0, subscription(ME, "topic = 'a' and topic = 'b'"))
    assert bench.port.take() == []


def test_interests_change_and_end_without_a_word_to_holders() -> None:
    """[003 §3.4] Logical mobility is handled by soft state."""
    bench = Bench()
    bench.node.on_subscribe(0.0, subscription(ME))
    bench.node.on_subscribe(0.5, subscription(ME, "topic = 'fire'"))
    bench.port.take()
    (sent,) = routed(bench.tick(1.0, "refresh"))
    assert isinstance(sent[1], Refresh)
    assert sent[1].topic == "s:fire"
    assert drops(bench.get(1.5, 5, Notification(jam(), 1, 50.0))) == ["not_wanted"], "its old holder does not know yet"
    bench.node.on_unsubscribe(1.6, SubscriptionId(ME, 1))
    assert bench.tick(2.0, "refresh") == []


def test_who_is_nowhere_subscribes_again_when_it_is_somewhere() -> None:
    bench = Bench(here=None, holder="place")
    bench.node.on_subscribe(0.0, subscription(ME))
    bench.port.take()
    assert bench.tick(1.0, "refresh") == [SetTimer("refresh", 1.0)]
    bench.host.here = HERE
    assert len(routed(bench.tick(2.0, "refresh"))) == 1


def test_an_event_is_delivered_once_with_the_hops_of_both_ways() -> None:
    bench = Bench()
    bench.node.on_subscribe(0.0, subscription(ME))
    bench.port.take()
    assert bench.get(1.0, 5, Notification(jam(), 4, 50.0), 2) == [Deliver(SubscriptionId(ME, 1), jam(), 6)]
    assert drops(bench.get(1.1, 5, Notification(jam(), 4, 50.0), 2)) == ["already_delivered"]
    far = bench.get(1.2, 5, Notification(jam(sequence=2), 65535, 50.0), 9)
    assert far == [Deliver(SubscriptionId(ME, 1), jam(sequence=2), 65535)]


def test_the_subscribers_own_node_looks_at_the_policy_too() -> None:
    bench = Bench()
    bench.node.on_subscribe(0.0, subscription(ME, rank="minor"))
    bench.port.take()
    assert drops(bench.get(1.0, 5, Notification(jam(access="rank = 'major'"), 1, 50.0))) == ["not_wanted"]


def test_who_a_subscriber_is_and_where_it_is_may_change_too() -> None:
    """[003 §3.4] Logical mobility: the next refresh says it, and till then its own node knows better."""
    bench = Bench(holder="place")
    bench.node.on_subscribe(0.0, subscription(ME, rank="major"))
    bench.tick(1.0, "refresh")
    bench.node.on_subscribe(1.2, subscription(ME, rank="minor"))
    bench.host.here = Position(70.0, 80.0)
    assert drops(bench.get(1.5, 5, Notification(jam(access="rank = 'major'"), 1, 50.0))) == ["not_wanted"]
    ((_, refresh),) = routed(bench.tick(2.0, "refresh"))
    assert refresh == Refresh(JAM, entry(subscription(ME, rank="minor"), Position(70.0, 80.0), 2))


@pytest.mark.parametrize("mode", ["broker", "rendezvous"])
def test_the_newest_word_of_a_subscriber_decides_for_whom_an_event_is(mode: str) -> None:
    """[003 §3.4] Filter, attributes and place, at the holder and in the publisher's list."""
    bench = Bench(holder="place", mode=mode)
    old, new = Position(1.0, 1.0), Position(2.0, 2.0)
    said = [
        entry(subscription(2, "topic = 'jam' and length > 2", rank="minor"), old, 1),
        entry(subscription(2, "topic = 'jam' and length < 2", rank="major"), new, 2),
    ]
    if mode == "rendezvous":
        bench.node.on_publish(0.0, jam(ME, sequence=9))
    for one in (said[1], said[0]):
        # They overtook each other.
        message = Refresh(JAM, one) if mode == "broker" else SubscriptionList(JAM, (one,))
        bench.get(1.0, 2, message)
    cases = [("rank = 'major'", 1, [Place(new, 0.0, 2)]), ("rank = 'minor'", 1, []), ("rank = 'major'", 3, [])]
    for sequence, (access, length, targets) in enumerate(cases):
        event = jam(ME, access, sequence, length=length)
        if mode == "broker":
            effects = bench.get(1.5, 9, Publication(jam(9, access, sequence, length=length), 0, 50.0))
        else:
            bench.node.on_publish(1.5, event)
            effects = bench.port.take()
        assert [target for target, _ in routed(effects)] == targets


def test_a_flood_of_invented_events_is_remembered_up_to_a_bound() -> None:
    bench = Bench(max_seen=50)
    for sequence in range(200):
        bench.get(1.0, 8, Publication(jam(sequence=sequence), 0, 90.0))
    assert len(bench.node.handled) == 50
    assert drops(bench.get(1.0, 8, Publication(jam(sequence=199), 0, 90.0))) == ["already_handled"]


# A broker.


@PLACES
def test_a_broker_serves_those_whose_predicate_and_attributes_fit_and_only_while_they_refresh(holder: str) -> None:
    """[003 §2, §3.2.1]"""
    bench = Bench(holder=holder)
    there = Position(300.0, 0.0)
    wanted = [
        subscription(2, "topic = 'jam' and length > 2", rank="major"),
        subscription(3, "topic = 'jam' and length > 5", rank="major"),
        subscription(4, rank="minor"),
        subscription(5),
        subscription(8, rank="major"),
    ]
    for one in wanted:
        bench.get(1.0, one.subscriber, Refresh(JAM, entry(one, there)))
    event = jam(access="rank = 'major'", length=3)
    sent = routed(bench.get(2.0, 8, Publication(event, 0, 90.0), 4))
    target = Place(there, 0.0, 2) if holder == "place" else 2
    assert sent == [(target, Notification(event, 4, 90.0))], "not to the publisher: it has it"
    assert routed(bench.get(4.0, 8, Publication(jam(sequence=2, length=9), 0, 90.0))) == [], "timed out after 3 s"


def test_a_node_with_two_subscriptions_gets_one_message_where_it_was_last() -> None:
    bench = Bench(holder="place")
    first, last = Position(1.0, 1.0), Position(2.0, 2.0)
    bench.get(1.0, 2, Refresh(JAM, entry(subscription(2, number=1), last, count=7)))
    bench.get(1.0, 2, Refresh(JAM, entry(subscription(2, number=2), first, count=6)))
    sent = routed(bench.get(2.0, 8, Publication(jam(), 0, 90.0)))
    assert [target for target, _ in sent] == [Place(last, 0.0, 2)]


def test_an_event_is_handled_once_however_often_it_comes() -> None:
    bench = Bench()
    bench.get(1.0, 2, Refresh(JAM, entry(subscription(2))))
    assert len(routed(bench.get(2.0, 8, Publication(jam(), 0, 90.0)))) == 1
    assert drops(bench.get(2.1, 8, Publication(jam(), 0, 90.0))) == ["already_handled"]


# Proximity.


def test_who_captures_a_subscription_within_k_tells_those_around_it_and_an_event_nobody() -> None:
    """[003 §3.5]"""
    bench = Bench(holder="place")
    home = bench.node.holders.find_place(JAM)
    refresh = Refresh(JAM, entry(subscription(2), HERE))
    bench.host.here = Position(home.x_m + 125.0, home.y_m)
    assert broadcast(bench.get(1.0, 2, refresh)) == [refresh]
    assert broadcast(bench.get(1.5, 8, Publication(jam(), 0, 90.0))) == []
    bench.host.here = Position(home.x_m + 125.1, home.y_m)
    assert broadcast(bench.get(2.0, 2, refresh)) == [], "the nearest, but not within K"
    assert broadcast(Bench(here=home, holder="place", capture_m=0).get(1.0, 2, refresh)) == []
    assert broadcast(Bench().get(1.0, 2, refresh)) == []


def test_what_is_broadcast_is_held_and_told_to_nobody() -> None:
    bench = Bench(holder="place")
    bench.host.here = bench.node.holders.find_place(JAM)
    assert bench.hear(1.0, 9, Refresh(JAM, entry(subscription(2), HERE))) == []
    assert [target for target, _ in routed(bench.get(2.0, 8, Publication(jam(), 0, 90.0)))] == [Place(HERE, 0.0, 2)]


# A publisher.


@PLACES
def test_a_publisher_sends_its_event_to_the_broker(holder: str) -> None:
    """[003 §3.2.1]"""
    bench = Bench(holder=holder)
    event = jam(ME)
    bench.node.on_publish(0.0, event)
    (target,) = bench.node.holders.find_all(0.0, JAM)
    assert routed(bench.port.take()) == [(target, Publication(event, 0, 100.0))]


def test_an_event_without_a_topic_reaches_its_own_node_alone() -> None:
    bench = Bench()
    event = Event(EventId(ME, 1), {"length": 3})
    bench.node.on_publish(0.0, event)
    assert drops(bench.port.take()) == ["no_topic"]
    assert drops(bench.get(1.0, 8, Publication(event, 0, 50.0))) == ["no_topic"]


def test_without_holders_events_go_nowhere_by_name() -> None:
    bench = Bench(role="nobody")
    bench.node.on_publish(0.0, jam(ME))
    assert drops(bench.port.take()) == ["no_holder"]


def test_the_next_node_by_hash_stands_in_for_one_that_cannot_be_reached() -> None:
    """[003 §3.4]"""
    bench = Bench(next_holders=2)
    event = jam(ME)
    bench.node.on_publish(0.0, event)
    ((first, message),) = routed(bench.port.take())
    assert isinstance(first, int)
    order = [(first + step) % 10 for step in range(3)]
    for failed, onward in itertools.pairwise(order):
        bench.node.on_unreachable(1.0, failed, message)
        assert routed(bench.port.take()) == [(onward, message)]
    bench.node.on_unreachable(1.0, order[2], message)
    assert drops(bench.port.take()) == ["no_holder"]
    bench.node.on_unreachable(1.5, first, Advertise(JAM, None))
    assert drops(bench.port.take()) == ["no_holder"], "all three are passed over for 30 s"
    assert list(bench.node.holders.find_all(30.9, JAM)) == [first], "if none stands, the first is tried"
    bench.node.on_unreachable(31.6, order[1], message)
    assert routed(bench.port.take()) == [(first, message)], "the first stands again"


def test_a_link_that_breaks_does_not_part_publishers_and_subscribers() -> None:
    """[003 §3.4] "Unless a failure occurs, the broker is fixed": a packet given back says nothing of a failure."""
    bench = Bench()
    bench.node.on_publish(0.0, jam(ME))
    ((first, message),) = routed(bench.port.take())
    bench.node.on_unreachable(1.0, first, message)
    assert drops(bench.port.take()) == ["no_holder"]
    assert list(bench.node.holders.find_all(1.0, JAM)) == [first]


def test_of_refreshes_that_come_back_the_newest_goes_on() -> None:
    bench = Bench(next_holders=2)
    bench.node.on_subscribe(0.0, subscription(ME))
    sent = [routed(bench.tick(now, "refresh"))[0] for now in (1.0, 2.0)]
    assert isinstance(sent[0][0], int)
    bench.node.on_unreachable(22.0, *sent[0])
    assert drops(bench.port.take()) == ["outdated"]
    bench.node.on_unreachable(22.0, *sent[1])
    assert routed(bench.port.take()) == [((sent[0][0] + 1) % 10, sent[1][1])]


def test_a_subscriber_or_a_place_that_cannot_be_reached_has_no_next_one() -> None:
    bench = Bench()
    bench.node.on_unreachable(1.0, 4, Notification(jam(), 1, 50.0))
    bench.node.on_unreachable(1.0, 4, SubscriptionList(JAM, ()))
    bench.node.on_unreachable(1.0, Place(HERE), Advertise(JAM, None))
    assert drops(bench.port.take()) == ["unreachable"] * 3


# Rendezvous.


def test_a_rendezvous_node_lists_the_topic_without_evaluation() -> None:
    """[003 §3.2.2]"""
    bench = Bench(holder="place", mode="rendezvous")
    jams = [entry(subscription(node, f"topic = 'jam' and length > {node}"), HERE) for node in (2, 4)]
    for one in jams:
        bench.get(1.0, one.subscription.subscriber, Refresh(JAM, one))
    bench.get(1.0, 5, Refresh("s:fire", entry(subscription(5, "topic = 'fire'"), HERE)))
    there = Position(7.0, 7.0)
    assert routed(bench.get(2.0, 9, Advertise(JAM, there))) == [
        (Place(there, 0.0, 9), SubscriptionList(JAM, tuple(jams)))
    ]
    assert routed(bench.get(2.0, 9, Advertise("s:none", there))) == [
        (Place(there, 0.0, 9), SubscriptionList("s:none", ()))
    ]


def test_a_list_too_long_for_a_message_goes_in_several() -> None:
    bench = Bench(mode="rendezvous")
    for node in range(2, 102):
        wanted = subscription(node, f"topic = 'jam' and x = '{'y' * 90}'")
        bench.get(1.0, node, Refresh(JAM, entry(wanted)))
    lists = [message for _, message in routed(bench.get(2.0, 200, Advertise(JAM, None)))]
    assert all(isinstance(part, SubscriptionList) for part in lists)
    parts = [part for part in lists if isinstance(part, SubscriptionList)]
    assert [part.more for part in parts] == [True] * (len(parts) - 1) + [False]
    assert sum(len(part.entries) for part in parts) == 100
    assert 8 <= max(len(part.entries) for part in parts) <= 1400 // 130


def publisher(**settings: object) -> tuple[Bench, int]:
    """A rendezvous publisher that waits for its list, and the node it asks."""
    bench = Bench(HERE, mode="rendezvous", **settings)
    bench.node.on_publish(0.0, jam(ME, length=3))
    effects = bench.port.take()
    ((holder, message),) = routed(effects)
    assert message == Advertise(JAM, None)
    assert SetTimer("advertise", 1.0) in effects
    assert isinstance(holder, int)
    return bench, holder


def test_the_first_event_waits_for_a_list_and_later_ones_do_not() -> None:
    """[003 §3.2.2] The publisher evaluates, and sends directly."""
    bench, holder = publisher()
    entries = [entry(subscription(node, f"topic = 'jam' and length > {node}")) for node in (2, 4)]
    whole = SubscriptionList(JAM, tuple(entries))
    assert routed(bench.get(0.25, holder, SubscriptionList(JAM, tuple(entries[1:]), more=True))) == []
    first = routed(bench.get(0.25, holder, whole))
    assert first == [(2, Notification(jam(ME, length=3), 0, 99.75))], "it is as old as it waited"
    again = jam(ME, sequence=2, length=9)
    bench.node.on_publish(1.0, again)
    assert routed(bench.port.take()) == [(2, Notification(again, 0, 100.0)), (4, Notification(again, 0, 100.0))]
    bench.node.on_publish(3.25, jam(ME, sequence=3, length=9))
    assert [message for _, message in routed(bench.port.take())] == [Advertise(JAM, None)], "the list is too old"


def test_a_publisher_never_sends_to_a_subscriber_whose_attributes_do_not_satisfy_the_policy() -> None:
    bench, holder = publisher()
    entries = [entry(subscription(2, rank="minor")), entry(subscription(3, rank="major")), entry(subscription(4))]
    bench.get(0.5, holder, SubscriptionList(JAM, tuple(entries)))
    bench.node.on_publish(1.0, jam(ME, "rank = 'major'", 2))
    assert [target for target, _ in routed(bench.port.take())] == [3]


def test_a_publisher_asks_every_second_until_it_has_been_quiet_for_long() -> None:
    bench, holder = publisher()
    bench.get(0.5, holder, SubscriptionList(JAM, ()))
    for now in range(1, 30):
        effects = bench.tick(now, "advertise")
        assert [message for _, message in routed(effects)] == [Advertise(JAM, None)]
        assert SetTimer("advertise", 1.0) in effects
    assert bench.tick(30, "advertise") == []
    assert drops(bench.get(30.1, holder, SubscriptionList(JAM, ()))) == ["not_asked"]


def test_events_for_which_no_list_comes_are_dropped_by_name() -> None:
    bench, _ = publisher(max_waiting=2)
    for sequence in (2, 3):
        bench.node.on_publish(0.5, jam(ME, sequence=sequence))
    full = [effect.fact for effect in bench.port.take() if isinstance(effect, Note)]
    assert [(fact.reason, fact.event) for fact in full] == [("waiting_full", EventId(ME, 1))]
    assert drops(bench.tick(3.4, "advertise")) == []
    assert drops(bench.tick(3.5, "advertise")) == ["no_list", "no_list"]
    short, holder = publisher()
    short.node.on_publish(0.0, Event(EventId(ME, 5), {"topic": "jam"}, lease_s=0.5))
    short.port.take()
    assert drops(short.get(0.5, holder, SubscriptionList(JAM, ()))) == ["lease_over"]


# Bad input.


def test_forged_and_absurd_words_are_dropped_by_name() -> None:
    bench = Bench(holder="place", list_bytes=200)
    good = subscription(2)
    far = Position(1e9, 0.0)
    long = Subscription(SubscriptionId(2, 1), "topic = 'jam'", state=bytes(500))
    cases = [
        (3, Refresh(JAM, entry(good, HERE)), "forged_subscriber"),
        (2, Refresh(JAM, entry(good, far)), "absurd_position"),
        (2, Refresh(JAM, entry(good, Position(math.nan, 0.0))), "absurd_position"),
        (2, Refresh(JAM, entry(good, None)), "absurd_position"),
        (2, Refresh(JAM, entry(long, HERE)), "subscription_too_long"),
        (2, Refresh(JAM, entry(subscription(2, "topic ="), HERE)), "filter_unreadable"),
        (2, Advertise(JAM, far), "absurd_position"),
        (2, SubscriptionList(JAM, (entry(good, HERE),)), "not_asked"),
    ]
    for origin, message, reason in cases:
        effects = bench.get(1.0, origin, message)
        assert (drops(effects), routed(effects), broadcast(effects)) == ([reason], [], [])
    assert len(bench.node.table) == 0
    assert drops(bench.hear(1.0, 2, Advertise(JAM, HERE))) == ["not_routed"]
    assert drops(Bench().hear(1.0, 2, Refresh(JAM, entry(good)))) == ["not_routed"]


def test_a_flood_of_subscriptions_fills_no_more_than_the_table() -> None:
    bench = Bench(max_held=50)
    reasons = [
        reason
        for node in range(200)
        for reason in drops(bench.get(1.0, node, Refresh(f"s:{node}", entry(subscription(node)))))
    ]
    assert (len(bench.node.table), reasons) == (50, ["table_full"] * 150)
    assert drops(bench.get(4.0, 7, Refresh(JAM, entry(subscription(7))))) == []


def test_a_forged_list_is_believed_from_holders_only_and_up_to_a_bound() -> None:
    bench, holder = publisher(max_held=3)
    entries = tuple(entry(subscription(node)) for node in range(20, 30))
    stranger = (holder + 5) % 10
    assert drops(bench.get(0.5, stranger, SubscriptionList(JAM, entries))) == ["not_a_holder"]
    effects = bench.get(0.5, holder, SubscriptionList(JAM, entries))
    assert drops(effects) == ["table_full"] * 7
    assert len(routed(effects)) == 3
    broken = (entry(subscription(20, "topic =")),)
    assert drops(bench.get(0.6, holder, SubscriptionList(JAM, broken))) == ["filter_unreadable"]
