"""Delivery to a neighbor or notice of its loss [001 §4.1]: one retry, several links, full queues, what waits."""

import msgspec
import pytest

from carrycast.core.model import Failure, Subscription
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import Send, SetTimer
from carrycast.protocols.asp.messages import Announcement, PathKind, Publication, ShortAnnouncement
from carrycast.protocols.asp.tests.bench import SINK, Broker, C, announcement, event, publication, subscribe

BROKEN = (1, subscribe(7, 0.1, PathKind.PATH_BROKEN))


def relay(retries: int = 1) -> Broker:
    """Between an announcer, 1, and a subscriber, 2; everything so far has arrived."""
    broker = Broker(1, 2, retries=retries)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    return broker


def publish(broker: Broker, number: int) -> Send:
    """The one send that a publication from 1 makes."""
    broker.asp.on_message(2.0, 1, publication(number, event(0, number)), "radio")
    [sent] = broker.sends()
    return sent


def timers(broker: Broker) -> dict[object, float]:
    return {effect.key: effect.delay_s for effect in broker.port.take() if isinstance(effect, SetTimer)}


# The retry.


def test_a_message_that_failed_is_sent_once_more_before_its_neighbor_is_removed() -> None:
    broker = relay()
    first = publish(broker, 2)
    broker.fail(first)
    [second] = broker.sends()
    assert (second.target, second.message, second.via) == (2, first.message, "radio")
    broker.fail(second)
    assert broker.effects() == [BROKEN]


def test_a_message_that_is_sent_again_has_less_time_left() -> None:
    broker = relay()
    first = publish(broker, 2)
    broker.fail(first, now=2.5)
    [second] = broker.sends()
    assert isinstance(first.message, Publication)
    assert isinstance(second.message, Publication)
    assert second.message.remaining_s == pytest.approx(first.message.remaining_s - 0.5)


def test_a_retry_that_arrives_leaves_everything_as_it_was() -> None:
    broker = relay()
    broker.fail(publish(broker, 2))
    [second] = broker.sends()
    broker.fail(second, None)
    assert broker.effects() == []
    assert publish(broker, 3).target == 2


def test_without_retries_the_first_failure_removes_the_neighbor() -> None:
    broker = relay(retries=0)
    broker.fail(publish(broker, 2))
    assert broker.effects() == [BROKEN]


def fail_and_drop(broker: Broker, send: Send) -> None:
    """A send fails, and discovery drops the link for it: hosts tell it in this order."""
    broker.fail(send)
    broker.asp.on_link_down(2.0, Link(send.target, "radio", 0.01), Failure.UNREACHABLE)


def test_a_link_that_discovery_drops_because_of_a_failure_waits_for_the_retry() -> None:
    broker = relay()
    fail_and_drop(broker, publish(broker, 2))
    [second] = broker.sends()
    broker.fail(second, None)
    assert broker.effects() == []
    assert publish(broker, 3).target == 2, "the retry has arrived, so 2 is a neighbor"


def test_if_the_retry_fails_too_such_a_neighbor_is_lost_until_discovery_finds_it() -> None:
    broker = relay()
    fail_and_drop(broker, publish(broker, 2))
    [second] = broker.sends()
    broker.fail(second)
    effects = broker.port.take()
    assert [effect.message for effect in effects if isinstance(effect, Send)] == [BROKEN[1]]
    assert not [effect for effect in effects if isinstance(effect, SetTimer)], "no time brings it back by itself"


def test_a_link_that_discovery_finds_again_meanwhile_is_a_link_like_any_other() -> None:
    broker = relay()
    fail_and_drop(broker, publish(broker, 2))
    [second] = broker.sends()
    broker.asp.on_link_up(2.0, Link(2, "radio", 0.01))
    broker.fail(second)
    assert ("back", (2, "radio")) in timers(broker), "set aside, since discovery has not lost it"


def test_without_retries_a_failure_and_the_drop_for_it_lose_the_neighbor_once() -> None:
    broker = relay(retries=0)
    fail_and_drop(broker, publish(broker, 2))
    assert broker.effects() == [BROKEN]


@pytest.mark.parametrize("cause", [Failure.SILENT, Failure.OUT_OF_REACH, Failure.RESTARTED])
def test_a_link_that_is_lost_for_another_reason_is_lost_at_once(cause: Failure) -> None:
    broker = relay()
    first = publish(broker, 2)
    broker.asp.on_link_down(2.0, Link(2, "radio", 0.01), cause)
    assert broker.effects() == [BROKEN]
    broker.fail(first)
    assert broker.effects() == [], "nobody is there to try again for"


def test_of_several_messages_that_fail_each_is_tried_again_and_the_loss_is_told_once() -> None:
    broker = relay()
    sends = [publish(broker, 2), publish(broker, 3)]
    for send in sends:
        broker.fail(send)
    again = broker.sends()
    assert [send.message for send in again] == [send.message for send in sends]
    for send in again:
        broker.fail(send)
    assert broker.effects() == [BROKEN]


def test_a_neighbor_that_was_only_heard_is_given_the_same_retry() -> None:
    broker = Broker(1)
    broker.hear(1, announcement(0.02))
    broker.asp.on_message(1.0, 9, subscribe(7, 0.1), "radio")
    broker.effects()
    broker.fail(publish(broker, 2))
    [second] = broker.sends()
    assert second.target == 9
    broker.fail(second)
    assert broker.effects() == [BROKEN]


def test_a_retry_does_not_bring_back_what_has_been_taken_back_meanwhile() -> None:
    broker = Broker(1, 2)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "unit = 'C'"))
    broker.asp.on_message(1.0, 1, announcement(0.02), "radio")
    [_, subscribed] = broker.sends()
    assert subscribed.message == subscribe(broker.subscriber, 0.02)
    broker.asp.on_unsubscribe(1.0, SINK)
    [unsubscribed] = broker.sends()
    broker.fail(subscribed)
    assert broker.sends() == [], "it would arrive after the unsubscribe"
    broker.fail(unsubscribed)
    assert [send.message for send in broker.sends()] == [unsubscribed.message]


# Several links.


def test_what_fails_on_the_cheap_link_goes_over_the_other_with_its_cost() -> None:
    broker = Broker(1, 2)
    broker.asp.on_link_up(0.0, Link(2, "ethernet", 0.001))
    broker.asp.on_message(1.0, 1, announcement(0.02), "radio")
    [first] = broker.sends()
    assert first.via == "ethernet"
    broker.fail(first)
    [second] = broker.sends()
    assert second.via == "radio"
    assert isinstance(second.message, Announcement)
    assert second.message.metric_s == pytest.approx(0.02 + 0.01), "not 0.02 + 0.001, the link that failed"
    broker.fail(second)
    [third] = broker.sends()
    assert third.via == "radio", "the last link has its retry"


def test_by_broadcast_the_receiver_adds_the_link_so_nothing_is_changed() -> None:
    broker = Broker(2, announce_by="broadcast", announcement_cache=True)
    broker.asp.on_link_up(0.0, Link(2, "ethernet", 0.001))
    neighbors = broker.asp.broker.neighbors
    short = ShortAnnouncement(C, 0.5, 1)
    neighbors.send(0.0, 2, short)
    [first] = broker.sends()
    broker.fail(first)
    [second] = broker.sends()
    assert (second.via, second.message) == ("radio", short)


def test_a_link_set_aside_is_used_again_when_something_is_heard_over_it() -> None:
    broker = relay()
    broker.asp.on_link_up(0.0, Link(2, "ethernet", 0.001))
    first = publish(broker, 2)
    assert first.via == "ethernet"
    broker.fail(first)
    [second] = broker.sends()
    broker.fail(second, None)
    assert publish(broker, 3).via == "radio"
    broker.asp.on_message(2.0, 2, subscribe(7, 0.1), "ethernet")
    assert publish(broker, 4).via == "ethernet"


# Full queues.


def test_a_subscription_that_a_full_queue_did_not_take_is_sent_later() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.asp.on_message(1.0, 2, subscribe(7, 0.1), "radio")
    [sent] = broker.sends()
    for wait_s in (0.05, 0.1, 0.2, 0.4):
        broker.fail(sent, Failure.QUEUE_FULL)
        [(key, delay_s)] = timers(broker).items()
        assert delay_s == pytest.approx(wait_s)
        assert isinstance(key, tuple)
        broker.asp.on_timer(2.0, key)
        [sent] = broker.sends()
        assert (sent.target, sent.message) == (1, subscribe(7, 0.1))
    broker.fail(sent, Failure.QUEUE_FULL)
    assert broker.effects() == ["neighbor_congested"]
    # The announcer is lost by that; when it is back, it is told.
    broker.asp.on_timer(3.0, ("back", (1, "radio")))
    assert broker.effects() == [(1, subscribe(7, 0.1))]


def test_what_waits_for_a_queue_is_dropped_when_it_is_taken_back_and_when_the_broker_stops() -> None:
    for ends in ("unsubscribe", "stop"):
        broker = Broker(1, 2)
        broker.hear(1, announcement(0.02))
        broker.asp.on_message(1.0, 2, subscribe(7, 0.1), "radio")
        [sent] = broker.sends()
        broker.fail(sent, Failure.QUEUE_FULL)
        [key] = timers(broker)
        if ends == "stop":
            broker.asp.on_stop(2.0)
        else:
            broker.asp.on_message(2.0, 2, subscribe(7, 0.1, PathKind.UNSUBSCRIBE), "radio")
        assert [effect for effect in broker.port.take() if getattr(effect, "key", None) == key]


def test_an_announcement_that_waited_for_a_queue_has_less_time_left() -> None:
    broker = Broker(1, 2)
    broker.asp.on_message(1.0, 1, announcement(0.02), "radio")
    [sent] = broker.sends()
    broker.fail(sent, Failure.QUEUE_FULL)
    [key] = timers(broker)
    assert isinstance(key, tuple)
    broker.asp.on_timer(1.05, key)
    [again] = broker.sends()
    assert isinstance(again.message, Announcement)
    assert again.message.remaining_s == pytest.approx(60.0 - 0.05)
    assert again.message.validity_s == pytest.approx(10.0 - 0.05)


def test_an_announcement_whose_lease_ends_while_it_waits_is_dropped_by_name() -> None:
    broker = Broker(1, 2)
    short = msgspec.structs.replace(announcement(0.02), remaining_s=0.04)
    broker.asp.on_message(1.0, 1, short, "radio")
    [sent] = broker.sends()
    broker.fail(sent, Failure.QUEUE_FULL)
    [key] = timers(broker)
    assert isinstance(key, tuple)
    broker.asp.on_timer(1.05, key)
    assert broker.effects() == ["lease_over"]


def test_links_that_keep_coming_back_do_not_keep_a_message_for_ever() -> None:
    broker = relay()
    broker.asp.on_link_up(0.0, Link(2, "ethernet", 0.001))
    sends = [publish(broker, 2)]
    for _ in range(50):
        broker.fail(sends[-1])
        for interface in ("radio", "ethernet"):
            broker.asp.on_timer(2.0, ("back", (2, interface)))
        sent = broker.sends()
        if not sent:
            break
        sends += sent
    assert len(sends) == 1 + 4


def test_publications_do_not_wait_for_a_queue() -> None:
    broker = relay()
    broker.fail(publish(broker, 2), Failure.QUEUE_FULL)
    assert timers(broker) == {}


# What could not be said.


def test_a_subscription_that_never_arrived_is_sent_when_the_announcer_is_back() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.asp.on_message(1.0, 2, subscribe(7, 0.1), "radio")
    for _ in range(2):
        [sent] = broker.sends()
        assert sent.target == 1
        broker.fail(sent)
    assert broker.effects() == []
    broker.asp.on_timer(3.0, ("back", (1, "radio")))
    assert broker.effects() == [(1, subscribe(7, 0.1))]
    broker.asp.on_link_down(4.0, Link(1, "radio", 0.01), Failure.SILENT)
    broker.asp.on_link_up(5.0, Link(1, "radio", 0.01))
    assert broker.effects() == [], "it has arrived, so nothing is said twice"


def test_a_subscription_for_an_announcer_that_is_lost_waits_for_its_return() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert broker.hear(2, subscribe(7, 0.1)) == ["neighbor_unreachable"]
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(7, 0.1))]


def test_a_word_from_the_announcer_is_a_return_too() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    broker.hear(2, subscribe(7, 0.1))
    assert broker.hear(1, publication(2, event(0, 2)))[0] == (1, subscribe(7, 0.1))


def test_what_is_no_longer_wanted_does_not_wait() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    broker.hear(2, subscribe(7, 0.1))
    broker.hear(2, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == []


def test_a_better_announcer_takes_over_what_waited_for_the_lost_one() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    broker.hear(2, subscribe(7, 0.1))
    effects = broker.hear(3, ShortAnnouncement(C, 0.01, 1))
    assert (3, subscribe(7, 0.1)) in effects
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == []
