"""Bad input: each is dropped with a reason, and the broker continues."""

import msgspec
import pytest

from carrycast.core.model import Event, EventId, Failure, Processor, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Link
from carrycast.core.protocol.effects import Deliver, Note, Process
from carrycast.core.wire import Message
from carrycast.protocols.asp.messages import (
    Announcement,
    AnnouncementRequest,
    Digest,
    PathKind,
    Publication,
    ShortAnnouncement,
)
from carrycast.protocols.asp.tests.bench import (
    CELSIUS,
    KELVIN,
    ME,
    SINK,
    Broker,
    C,
    announcement,
    event,
    list_kinds,
    make_station,
    publication,
    subscribe,
)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (announcement(-0.1), "metric_invalid"),
        (announcement(float("nan")), "metric_invalid"),
        (announcement(float("inf")), "metric_invalid"),
        (announcement(2.0), "metric_too_large"),
        (announcement(validity_s=0.0), "validity_invalid"),
        (announcement(validity_s=float("nan")), "validity_invalid"),
        (announcement(validity_s=1e300), "validity_invalid"),
        (ShortAnnouncement(C, 0.01, 1), "short_announcement_unknown"),
        (ShortAnnouncement(C, float("nan"), 1), "metric_invalid"),
        (subscribe(7, 0.1), "subscription_unknown_id"),
        (subscribe(7, 0.1, PathKind.UNSUBSCRIBE), "subscription_unknown_id"),
        (publication(2, CELSIUS), "publication_unknown_id"),
    ],
)
def test_an_invalid_message_is_dropped_with_a_reason(message: Message, reason: str) -> None:
    broker = Broker(1, 2, max_metric_s=1.0)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "true"))
    assert broker.hear(1, message) == [reason]


def test_a_subscription_with_an_invalid_metric_makes_no_path() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    assert broker.hear(2, subscribe(7, float("nan"))) == ["metric_invalid"]
    assert broker.hear(1, publication(2, event(0, 2))) == []


def test_a_subscription_from_the_best_announcer_is_rejected() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    assert broker.hear(1, subscribe(7, 0.1)) == ["subscription_loop"]


def test_of_two_contents_with_one_id_the_first_stays() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.05))
    impostor = event(9, 1, unit="F", value=1.0)
    assert broker.hear(2, announcement(0.01, of=impostor)) == ["id_collision"]
    assert broker.hear(2, announcement(0.01, sequence=2, of=impostor)) == ["id_collision"]
    assert broker.hear(2, subscribe(7, 0.1)) == [(1, subscribe(7, 0.1))]


def test_equal_results_of_two_processors_are_no_collision() -> None:
    broker = Broker(1, 2)
    one = event(7, 1, unit="K", value=293.6500001)
    other = event(8, 1, unit="K", value=293.6499999)
    broker.hear(1, announcement(0.05, of=one))
    assert broker.hear(2, announcement(0.01, of=other)) == [(1, ShortAnnouncement(C, 0.02, 1))]


def test_a_message_too_large_to_be_announced_reaches_only_local_sinks() -> None:
    source = Broker(1, node=0, packet_bytes=200)
    source.asp.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "true"))
    big = Event(EventId(0, 1), {"topic": "t"}, payload=bytes(300))
    source.asp.on_publish(1.0, big)
    assert source.effects() == ["announcement_too_large", Deliver(SubscriptionId(0, 0), big, 0)]
    source.asp.on_publish(2.0, event(0, 2))
    assert list_kinds(source.effects()) == [Announcement], "the stream continues"


@pytest.mark.parametrize(
    ("cost_s", "error", "reason"),
    [
        (0.1, "kelvin raised ValueError", "processor_failed"),
        (float("nan"), "", "processor_cost_invalid"),
        (-1.0, "", "processor_cost_invalid"),
    ],
)
def test_a_processor_that_fails_is_reported_and_skipped(cost_s: float, error: str, reason: str) -> None:
    broker = Broker(1, 2)
    broker.asp.on_processor(0.0, KELVIN)
    broker.hear(1, announcement(0.05))
    broker.asp.on_processed(1.1, 1, b"", [event(ME, 1, unit="K")], cost_s, error)
    assert broker.effects() == [reason]
    assert broker.hear(2, subscribe(7, 0.1)) == [(1, subscribe(7, 0.1))], "its node continues"


def test_a_failed_call_on_a_publication_costs_that_message_only() -> None:
    broker, _, id = make_station()
    broker.hear(3, subscribe(7, 0.3, id=id))
    broker.hear(1, publication(2, event(0, 2, unit="C")))
    broker.asp.on_processed(2.0, 2, b"", [], 0.1, "kelvin raised ValueError")
    assert broker.effects() == ["processor_failed"]
    third = event(0, 3, unit="C")
    assert broker.hear(1, publication(3, third)) == [Process("kelvin", b"", (third,), 3)]
    broker.asp.on_processed(3.0, 3, b"", [event(ME, 2, unit="K"), event(ME, 3, unit="K")], 0.1, "")
    effects = broker.effects()
    assert list_kinds(effects) == [Publication]
    assert effects[1:] == ["result_unannounced"], "more results than were announced"


def test_chains_of_processors_end_after_max_stages() -> None:
    broker = Broker(1, 2, max_stages=2)
    broker.asp.on_processor(0.0, Processor("increment", "topic = 't'"))
    effects = broker.hear(1, announcement(0.05, stages=2))
    assert "too_many_processors" in effects
    assert not [effect for effect in effects if isinstance(effect, Process)]


def test_a_full_table_rejects_further_announcements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.asp.announcement_table.MAX_ANNOUNCEMENTS", 1)
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.05))
    assert broker.hear(1, announcement(0.05, id=C + 1, of=event(0, 9))) == ["too_many_announcements"]


def test_notes_are_facts_of_the_trace() -> None:
    broker = Broker(1)
    broker.asp.on_message(1.0, 1, subscribe(7, 0.1), "radio")
    assert broker.port.take() == [Note(Fact("drop", peer=1, reason="subscription_unknown_id"))]


# Other drops.


def test_further_streams_of_a_node_with_too_many_are_delivered_only_locally(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.asp.broker.MAX_LOCAL_STREAMS", 1)
    source = Broker(1, node=0)
    source.asp.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "true"))
    source.asp.on_publish(1.0, CELSIUS)
    source.effects()
    other = Event(EventId(0, 2), {"topic": "another"})
    source.asp.on_publish(2.0, other)
    assert source.effects() == [Deliver(SubscriptionId(0, 0), other, 0), "too_many_streams"]


def test_a_request_for_an_unknown_announcement_is_dropped_with_a_reason() -> None:
    assert Broker(1).hear(1, AnnouncementRequest((C,))) == ["announcement_unknown"]


def test_a_result_of_a_replaced_announcement_is_dropped_with_a_reason() -> None:
    broker = Broker(1, 2)
    broker.asp.on_processor(0.0, KELVIN)
    broker.hear(1, announcement(0.05))
    broker.hear(1, announcement(0.05, sequence=2))
    broker.asp.on_processed(1.1, 1, b"", [event(ME, 1, unit="K")], 0.1, "")
    assert "announcement_over" in broker.effects()
    broker.asp.on_processed(1.2, 2, b"", [event(ME, 2, unit="K")], 0.1, "")
    assert list_kinds(broker.effects()) == [Announcement, Announcement], "the newer announcement has its own call"


def test_a_subscription_to_a_result_whose_input_has_expired_is_dropped() -> None:
    broker, _, id = make_station()
    broker.effects()
    broker.hear(1, announcement(0.05, sequence=2, validity_s=1.0), now=2.0)
    broker.asp.on_timer(3.5, "expiry")
    assert broker.hear(3, subscribe(7, 0.3, id=id), now=3.6) == ["input_unknown"]


def test_a_processor_queues_64_calls() -> None:
    broker, _, id = make_station()
    broker.effects()
    broker.hear(3, subscribe(7, 0.3, id=id))
    for counter in range(2, 2 + 1 + 64):
        assert "processor_busy" not in broker.hear(1, publication(counter, event(0, counter, unit="C")))
    assert broker.hear(1, publication(99, event(0, 99, unit="C"))) == ["processor_busy"]


def test_a_processor_with_a_malformed_filter_is_not_installed() -> None:
    broker = Broker(1, 2)
    broker.asp.on_processor(0.0, Processor("p", "topic = "))
    assert broker.effects() == ["processor_filter_invalid"]
    assert list_kinds(broker.hear(1, announcement(0.05))) == [Announcement]


def test_a_message_to_a_node_that_is_no_neighbor_is_dropped_with_a_reason() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.05))
    broker.asp.on_link_down(1.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert broker.hear(2, subscribe(7, 0.1)) == ["neighbor_unreachable"]


def test_a_message_whose_lease_has_expired_is_not_forwarded() -> None:
    broker = Broker(1, 2)
    over = msgspec.structs.replace(announcement(0.05), remaining_s=0.0)
    assert broker.hear(1, over) == ["lease_over"]
    broker.hear(1, announcement(0.05))
    late = msgspec.structs.replace(publication(2, event(0, 2)), remaining_s=0.0)
    assert broker.hear(1, late) == ["lease_over"]


def test_a_metric_too_large_for_a_digest_is_invalid() -> None:
    broker = Broker(1, 2, announcement_cache=True)
    assert broker.hear(1, announcement(1e300)) == ["metric_invalid"]
    broker.hear(1, announcement(1e9))
    broker.asp.on_link_up(2.0, Link(9, "radio", 0.01))
    assert list_kinds(broker.effects()) == [Digest]
