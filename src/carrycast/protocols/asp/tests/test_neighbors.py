"""Delivery to a neighbor or notice of its loss [001 §4.1]: retransmission, several links, full queues, pending
messages."""

import msgspec
import pytest

from carrycast.core.model import Failure, Subscription
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import Send, SetTimer
from carrycast.protocols.asp.messages import Announcement, PathKind, Publication, ShortAnnouncement
from carrycast.protocols.asp.tests.bench import SINK, Broker, C, announcement, event, publication, subscribe

BROKEN = (1, subscribe(7, 0.1, PathKind.PATH_BROKEN))


def make_relay(retries: int = 1) -> Broker:
    """Make a broker between an announcer, 1, and a subscriber, 2."""
    broker = Broker(1, 2, retries=retries)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    return broker


def publish(broker: Broker, number: int) -> Send:
    """Receive a publication from 1, and return the send that it causes."""
    broker.asp.on_message(2.0, 1, publication(number, event(0, number)), "radio")
    [sent] = broker.sends()
    return sent


def timers(broker: Broker) -> dict[object, float]:
    return {effect.key: effect.delay_s for effect in broker.port.take() if isinstance(effect, SetTimer)}


# Retransmission.


def test_a_message_that_failed_is_sent_once_more_before_its_neighbor_is_removed() -> None:
    broker = make_relay()
    first = publish(broker, 2)
    broker.fail(first)
    [second] = broker.sends()
    assert (second.target, second.message, second.via) == (2, first.message, "radio")
    broker.fail(second)
    assert broker.effects() == [BROKEN]


def test_a_retransmission_has_a_shorter_remaining_lease() -> None:
    broker = make_relay()
    first = publish(broker, 2)
    broker.fail(first, now=2.5)
    [second] = broker.sends()
    assert isinstance(first.message, Publication)
    assert isinstance(second.message, Publication)
    assert second.message.remaining_s == pytest.approx(first.message.remaining_s - 0.5)


def test_a_retransmission_that_arrives_keeps_the_path() -> None:
    broker = make_relay()
    broker.fail(publish(broker, 2))
    [second] = broker.sends()
    broker.fail(second, None)
    assert broker.effects() == []
    assert publish(broker, 3).target == 2


def test_without_retries_the_first_failure_removes_the_neighbor() -> None:
    broker = make_relay(retries=0)
    broker.fail(publish(broker, 2))
    assert broker.effects() == [BROKEN]


def fail_and_drop(broker: Broker, send: Send) -> None:
    """A send fails, and discovery drops the link because of it: hosts report in this order."""
    broker.fail(send)
    broker.asp.on_link_down(2.0, Link(send.target, "radio", 0.01), Failure.UNREACHABLE)


def test_a_link_dropped_because_of_a_failure_is_retained_until_the_retransmission_ends() -> None:
    broker = make_relay()
    fail_and_drop(broker, publish(broker, 2))
    [second] = broker.sends()
    broker.fail(second, None)
    assert broker.effects() == []
    assert publish(broker, 3).target == 2, "the retransmission has arrived, so 2 is still a neighbor"


def test_a_retained_link_that_fails_is_lost_until_discovery_finds_it() -> None:
    broker = make_relay()
    fail_and_drop(broker, publish(broker, 2))
    [second] = broker.sends()
    broker.fail(second)
    effects = broker.port.take()
    assert [effect.message for effect in effects if isinstance(effect, Send)] == [BROKEN[1]]
    assert not [effect for effect in effects if isinstance(effect, SetTimer)], "no timer brings it back"


def test_a_retained_link_that_discovery_finds_again_is_suspended_when_it_fails() -> None:
    broker = make_relay()
    fail_and_drop(broker, publish(broker, 2))
    [second] = broker.sends()
    broker.asp.on_link_up(2.0, Link(2, "radio", 0.01))
    broker.fail(second)
    assert ("back", (2, "radio")) in timers(broker), "suspended, since discovery has not lost it"


def test_without_retries_the_loss_of_a_neighbor_is_reported_once() -> None:
    broker = make_relay(retries=0)
    fail_and_drop(broker, publish(broker, 2))
    assert broker.effects() == [BROKEN]


@pytest.mark.parametrize("cause", [Failure.SILENT, Failure.OUT_OF_REACH, Failure.RESTARTED])
def test_a_link_lost_for_another_cause_is_removed_at_once(cause: Failure) -> None:
    broker = make_relay()
    first = publish(broker, 2)
    broker.asp.on_link_down(2.0, Link(2, "radio", 0.01), cause)
    assert broker.effects() == [BROKEN]
    broker.fail(first)
    assert broker.effects() == [], "the neighbor is lost, so nothing is retransmitted"


def test_each_failed_message_is_retransmitted_and_the_loss_is_reported_once() -> None:
    broker = make_relay()
    sends = [publish(broker, 2), publish(broker, 3)]
    for send in sends:
        broker.fail(send)
    again = broker.sends()
    assert [send.message for send in again] == [send.message for send in sends]
    for send in again:
        broker.fail(send)
    assert broker.effects() == [BROKEN]


def test_messages_to_a_node_that_was_only_heard_are_retransmitted_too() -> None:
    broker = Broker(1)
    broker.hear(1, announcement(0.02))
    broker.asp.on_message(1.0, 9, subscribe(7, 0.1), "radio")
    broker.effects()
    broker.fail(publish(broker, 2))
    [second] = broker.sends()
    assert second.target == 9
    broker.fail(second)
    assert broker.effects() == [BROKEN]


def test_a_superseded_subscription_is_not_retransmitted() -> None:
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


def test_a_message_that_fails_on_the_cheapest_link_is_sent_over_the_other_with_its_cost() -> None:
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
    assert third.via == "radio", "a message over the last link is retransmitted"


def test_with_broadcast_a_retransmission_over_another_link_keeps_its_metric() -> None:
    broker = Broker(2, announce_by="broadcast", announcement_cache=True)
    broker.asp.on_link_up(0.0, Link(2, "ethernet", 0.001))
    neighbors = broker.asp.broker.neighbors
    short = ShortAnnouncement(C, 0.5, 1)
    neighbors.send(0.0, 2, short)
    [first] = broker.sends()
    broker.fail(first)
    [second] = broker.sends()
    assert (second.via, second.message) == ("radio", short)


def test_a_suspended_link_is_used_again_when_a_message_arrives_over_it() -> None:
    broker = make_relay()
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


def test_a_subscription_that_a_full_queue_rejects_is_sent_later() -> None:
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
    # The announcer is lost; when it is back, it gets the pending subscription.
    broker.asp.on_timer(3.0, ("back", (1, "radio")))
    assert broker.effects() == [(1, subscribe(7, 0.1))]


def test_a_superseded_message_or_a_stop_cancels_the_wait_for_a_queue() -> None:
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


def test_an_announcement_that_waited_for_a_queue_has_a_shorter_lease_and_validity() -> None:
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


def test_an_announcement_whose_lease_ends_while_it_waits_is_dropped_with_a_reason() -> None:
    broker = Broker(1, 2)
    short = msgspec.structs.replace(announcement(0.02), remaining_s=0.04)
    broker.asp.on_message(1.0, 1, short, "radio")
    [sent] = broker.sends()
    broker.fail(sent, Failure.QUEUE_FULL)
    [key] = timers(broker)
    assert isinstance(key, tuple)
    broker.asp.on_timer(1.05, key)
    assert broker.effects() == ["lease_over"]


def test_a_message_over_flapping_links_is_given_up() -> None:
    broker = make_relay()
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
    broker = make_relay()
    broker.fail(publish(broker, 2), Failure.QUEUE_FULL)
    assert timers(broker) == {}


# Pending messages.


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
    assert broker.effects() == [], "it has arrived, so it is not sent again"


def test_a_subscription_for_an_announcer_that_is_lost_waits_for_its_return() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert broker.hear(2, subscribe(7, 0.1)) == ["neighbor_unreachable"]
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(7, 0.1))]


def test_a_message_from_a_lost_announcer_brings_it_back() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    broker.hear(2, subscribe(7, 0.1))
    assert broker.hear(1, publication(2, event(0, 2)))[0] == (1, subscribe(7, 0.1))


def test_a_pending_subscription_is_cancelled_by_its_unsubscription() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    broker.hear(2, subscribe(7, 0.1))
    broker.hear(2, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == []


def test_a_better_announcer_gets_the_pending_subscriptions() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    broker.hear(2, subscribe(7, 0.1))
    effects = broker.hear(3, ShortAnnouncement(C, 0.01, 1))
    assert (3, subscribe(7, 0.1)) in effects
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == []
