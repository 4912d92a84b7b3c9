"""The three phases at one broker, handler by handler, worked by hand from the paper's text."""

from random import Random

import pytest

from carrycast.core.model import Event, EventId, Failure, Subscription, SubscriptionId
from carrycast.core.protocol import Link, RecordingPort
from carrycast.core.protocol.effects import Deliver
from carrycast.protocols.asp.messages import Announcement, AnnouncementFlag, PathKind, Publication, ShortAnnouncement
from carrycast.protocols.asp.protocol import Asp
from carrycast.protocols.asp.rules import announcement_id
from carrycast.protocols.asp.settings import AspSettings
from carrycast.protocols.asp.tests.bench import (
    CELSIUS,
    ME,
    SINK,
    Broker,
    C,
    announcement,
    event,
    list_kinds,
    publication,
    subscribe,
    take_announcements,
)
from carrycast.sim.testing import IsolatedHost

# [001 §4.2] The announcement phase.


def test_a_full_announcement_goes_to_all_neighbors_but_its_sender_with_the_link_cost() -> None:
    broker = Broker(1, 2, 3)
    sent = take_announcements(broker.hear(1, announcement(0.02)))
    assert list(sent) == [2, 3]
    assert sent[2].metric_s == pytest.approx(0.03)
    assert (sent[2].validity_s, sent[2].hops, sent[2].event) == (10.0, 2, CELSIUS)


def test_a_better_announcement_is_forwarded_as_a_short_one_and_not_delivered() -> None:
    broker = Broker(1, 2, 3)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "unit = 'C'"))
    broker.hear(1, announcement(0.05))
    effects = broker.hear(2, announcement(0.02))
    assert effects[:2] == [(1, ShortAnnouncement(C, 0.03, 1)), (3, ShortAnnouncement(C, 0.03, 1))]
    assert not [effect for effect in effects if isinstance(effect, Deliver)]
    # [001 §4.3] The best announcer has changed after a subscription was sent.
    assert effects[2:] == [
        (2, subscribe(broker.subscriber, 0.02)),
        (1, subscribe(broker.subscriber, 0.05, PathKind.UNSUBSCRIBE)),
    ]


def test_an_announcement_without_a_better_metric_is_not_forwarded() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    assert broker.hear(2, announcement(0.02)) == []
    assert broker.hear(3, ShortAnnouncement(C, 0.025, 1)) == []


def test_a_higher_sequence_prolongs_the_announcement_and_is_flooded() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    assert len(broker.hear(1, announcement(0.09, sequence=2), now=9.0)) == 1, "even with a worse metric"
    broker.asp.on_timer(11.0, "expiry")
    assert broker.hear(2, subscribe(7, 0.1), now=12.0) == [(1, subscribe(7, 0.1))]
    assert broker.hear(1, announcement(0.02), now=12.0) == [], "an older sequence is ignored"


def test_an_announcement_that_is_not_prolonged_is_forgotten() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02), now=1.0)
    broker.asp.on_timer(11.0, "expiry")
    assert broker.hear(2, subscribe(7, 0.1), now=11.0) == ["subscription_unknown_id"]


def test_a_sink_gets_the_announced_message_and_subscribes_if_its_filter_matches() -> None:
    broker = Broker(1)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "unit = 'C'"))
    effects = broker.hear(1, announcement(0.02))
    assert effects == [Deliver(SINK, CELSIUS, 1), (1, subscribe(broker.subscriber, 0.02))]
    other = Broker(1)
    other.asp.on_subscribe(0.0, Subscription(SINK, "unit = 'F'"))
    assert other.hear(1, announcement(0.02)) == []


def test_with_possible_interest_a_sink_subscribes_to_a_stream_that_may_match_later() -> None:
    broker = Broker(1, interest="possible")
    broker.asp.on_subscribe(0.0, Subscription(SINK, "topic = 't' and value > 30"))
    assert broker.hear(1, announcement(0.02)) == [(1, subscribe(broker.subscriber, 0.02))]
    warm = event(0, 2, unit="C", value=31.0)
    assert broker.hear(1, publication(2, warm)) == [Deliver(SINK, warm, 1)]
    assert broker.hear(1, publication(3, event(0, 3, unit="C", value=29.0))) == []
    stranger = Broker(1, interest="possible")
    stranger.asp.on_subscribe(0.0, Subscription(SINK, "topic = 'u' and value > 30"))
    assert stranger.hear(1, announcement(0.02)) == []


# [001 §4.3] The subscription phase.


def test_a_subscription_makes_an_active_path_and_is_forwarded_to_the_best_announcer() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    assert broker.hear(2, subscribe(7, 0.1)) == [(1, subscribe(7, 0.1))]
    # A worse subscription of the same subscriber changes nothing, a better one does.
    assert broker.hear(3, subscribe(7, 0.2)) == []
    assert broker.hear(3, subscribe(7, 0.05)) == [(1, subscribe(7, 0.05))]
    second = event(0, 2, unit="C")
    assert broker.hear(1, publication(2, second)) == [(3, publication(2, second, hops=2))]


def test_an_unsubscribe_needs_the_metric_of_the_path() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    assert broker.hear(2, subscribe(7, 0.2, PathKind.UNSUBSCRIBE)) == ["path_unknown"]
    unsubscribed = broker.hear(2, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))
    assert unsubscribed == [(1, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))]
    assert broker.hear(1, publication(2, event(0, 2))) == []


def test_the_standby_path_takes_over_when_the_active_path_is_unsubscribed() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    broker.hear(3, subscribe(7, 0.2))
    assert broker.hear(2, subscribe(7, 0.1, PathKind.UNSUBSCRIBE)) == [], "nothing changes upstream"
    second = event(0, 2)
    assert broker.hear(1, publication(2, second)) == [(3, publication(2, second, hops=2))]


def test_the_end_of_the_last_matching_local_subscription_unsubscribes_the_path() -> None:
    broker = Broker(1)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "unit = 'C'"))
    broker.asp.on_subscribe(0.0, Subscription(SubscriptionId(ME, 1), "topic = 't'"))
    broker.hear(1, announcement(0.02))
    broker.asp.on_unsubscribe(2.0, SINK)
    assert broker.effects() == []
    broker.asp.on_unsubscribe(2.0, SubscriptionId(ME, 1))
    assert broker.effects() == [(1, subscribe(broker.subscriber, 0.02, PathKind.UNSUBSCRIBE))]


# [001 §4.4] The publication phase.


def test_a_publication_goes_once_to_each_neighbor_with_active_paths() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    broker.hear(2, subscribe(8, 0.1))
    broker.hear(3, subscribe(9, 0.1))
    second = event(0, 2)
    passed = broker.hear(1, publication(2, second))
    assert passed == [(2, publication(2, second, hops=2)), (3, publication(2, second, hops=2))]
    assert broker.hear(1, publication(2, second)) == ["publication_repeated"]


def test_a_source_announces_and_then_publishes_until_the_announcement_expires() -> None:
    source = Broker(1, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    first = source.take_announcements()[1]
    assert (first.id, first.metric_s, first.counter) == (C, 0.01, 1)
    source.hear(1, subscribe(7, 0.05))
    second = event(0, 2, unit="C", value=21.0)
    source.asp.on_publish(2.0, second)
    assert source.effects() == [(1, Publication(second, 1, second.lease_s, id=C, counter=2))]
    third = event(0, 3, unit="C", value=22.0)
    source.asp.on_publish(11.0, third)
    again = source.take_announcements()[1]
    assert again.id == announcement_id(third, (0,), 3) != C, "the id follows the content"
    assert (again.stream, again.counter) == (first.stream, 3)


def test_the_same_content_announced_again_has_the_same_id_and_a_higher_sequence() -> None:
    source = Broker(1, node=0)
    source.asp.on_publish(1.0, event(0, 1, unit="C", value=20.5))
    first = source.take_announcements()[1]
    source.asp.on_publish(11.0, event(0, 2, unit="C", value=20.5))
    second = source.take_announcements()[1]
    assert first.id == second.id
    assert first.sequence < second.sequence


def test_a_restarted_source_has_higher_sequences_and_counters() -> None:
    host = IsolatedHost()
    host.incarnation = 1
    port = RecordingPort()
    source = Asp(0, AspSettings(), port, host, Random(1))
    source.on_link_up(0.0, Link(1, "radio", 0.01))
    source.on_publish(1.0, CELSIUS)
    [message] = port.take_messages()
    assert isinstance(message, Announcement)
    assert min(message.sequence, message.counter) > 1 << 32


def test_streams_are_distinguished_by_their_attributes() -> None:
    source = Broker(1, node=0, stream_attributes=("topic", "room"))
    for number, room in enumerate(("a", "b", "a"), 1):
        source.asp.on_publish(1.0, event(0, number, room=room))
    assert list_kinds(source.effects()) == [Announcement, Announcement]


# [001 §4.1, §4.3] Neighbors that cannot be reached.


def test_a_publication_that_cannot_be_delivered_breaks_the_path_and_the_source_announces_again() -> None:
    source = Broker(1, 2, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    source.asp.on_publish(2.0, event(0, 2))
    for _ in range(2):
        [sent] = source.sends()
        source.fail(sent)
    source.effects()
    source.asp.on_publish(3.0, event(0, 3))
    assert list(source.take_announcements()) == [2], "to the remaining neighbors"
    source.asp.on_timer(3.1, ("back", (1, "radio")))
    source.asp.on_publish(13.0, event(0, 4))
    assert list(source.take_announcements()) == [2, 1], "after `unreachable_s` to all"


def test_a_full_queue_breaks_no_path() -> None:
    source = Broker(1, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    source.asp.on_publish(2.0, event(0, 2))
    [sent] = source.sends()
    source.fail(sent, Failure.QUEUE_FULL)
    source.asp.on_publish(3.0, event(0, 3))
    assert list_kinds(source.effects()) == [Publication]


def test_a_lost_neighbor_on_an_active_path_is_reported_toward_the_source() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    broker.asp.on_link_down(2.0, Link(2, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.PATH_BROKEN))]
    # The next broker forwards it only if it comes from the neighbor of the path.
    upstream = Broker(1, ME, node=4)
    upstream.hear(1, announcement(0.02))
    upstream.hear(ME, subscribe(7, 0.1))
    assert upstream.hear(3, subscribe(7, 0.1, PathKind.PATH_BROKEN)) == ["path_unknown"]
    assert upstream.hear(ME, subscribe(7, 0.1, PathKind.PATH_BROKEN)) == [(1, subscribe(7, 0.1, PathKind.PATH_BROKEN))]


def test_a_neighbor_with_two_links_is_lost_with_the_second() -> None:
    broker = Broker(1, 2)
    broker.asp.on_link_up(0.0, Link(2, "ethernet", 0.001))
    broker.asp.on_message(1.0, 1, announcement(0.02), "radio")
    [sent] = broker.sends()
    broker.fail(sent, None)
    assert sent.via == "ethernet"
    assert isinstance(sent.message, Announcement)
    assert sent.message.metric_s == pytest.approx(0.021)
    broker.hear(2, subscribe(7, 0.1))
    broker.asp.on_link_down(2.0, Link(2, "ethernet", 0.001), Failure.SILENT)
    assert broker.effects() == []
    broker.asp.on_link_down(2.0, Link(2, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.PATH_BROKEN))]


# Broadcast and individual messages.


def test_with_broadcast_an_announcement_is_one_transmission_and_the_receiver_adds_the_link() -> None:
    broker = Broker(1, 2, announce_by="broadcast")
    broker.asp.on_message(1.0, 1, announcement(0.05), "radio")
    [message] = broker.port.take_messages()
    assert isinstance(message, Announcement)
    assert message.metric_s == pytest.approx(0.06)
    assert broker.hear(9, announcement(0.01, sequence=2)) == ["metric_invalid"], (
        "the link of a node that discovery has not found has no cost"
    )


def test_an_individual_message_is_flooded_without_a_path() -> None:
    source = Broker(1, node=0, individual="always")
    source.asp.on_publish(1.0, CELSIUS)
    source.asp.on_publish(1.5, event(0, 2))
    messages = [effect[1] for effect in source.effects() if isinstance(effect, tuple)]
    first, second = messages
    assert isinstance(first, Announcement)
    assert isinstance(second, Announcement)
    assert first.flags == second.flags == AnnouncementFlag.INDIVIDUAL
    sink = Broker(0, 2)
    sink.asp.on_subscribe(0.0, Subscription(SINK, "true"))
    effects = sink.hear(0, first)
    assert [type(effect) for effect in effects] == [tuple, Deliver]
    assert sink.hear(2, first) == []
    assert sink.hear(2, subscribe(7, 0.1, id=first.id)) == ["subscription_unknown_id"]


def test_with_unkeyed_only_messages_without_a_stream_attribute_are_individual() -> None:
    source = Broker(1, node=0, individual="unkeyed")
    source.asp.on_publish(1.0, Event(EventId(0, 1), {"alarm": True}))
    assert source.take_announcements()[1].flags == AnnouncementFlag.INDIVIDUAL
    source.asp.on_publish(1.0, event(0, 2))
    assert source.take_announcements()[1].flags == 0


def test_with_content_identity_equal_messages_of_two_sources_are_one_announcement() -> None:
    """[001 §4.2] The id is a hash of the message's content."""
    ids = {}
    for identity in ("origin", "content"):
        found = []
        for node in (0, 8):
            source = Broker(1, node=node, identity=identity)
            source.asp.on_publish(1.0, event(node, 1, unit="C", value=20.5))
            found.append(source.take_announcements()[1].id)
        ids[identity] = found
    assert ids["content"] == [announcement_id(CELSIUS, (), 3)] * 2
    assert ids["origin"] == [announcement_id(CELSIUS, (node,), 3) for node in (0, 8)]
