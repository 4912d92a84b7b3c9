"""The three phases at one broker, handler by handler, worked by hand from the paper's text."""

from random import Random

import pytest

from driftcast.dissemination.asp.messages import (
    Announcement,
    Flag,
    PathKind,
    PathMessage,
    Publication,
    ShortAnnouncement,
)
from driftcast.dissemination.asp.protocol import Asp
from driftcast.dissemination.asp.rules import announcement_id, derived_subscriber, stream_id
from driftcast.dissemination.asp.settings import AspSettings
from driftcast.model import Event, EventId, NodeId, Processor, Scalar, Subscription, SubscriptionId
from driftcast.protocol import Fact, Link, RecordingPort
from driftcast.protocol.effects import Deliver, Note, Process, Send
from driftcast.testing import LoneHost
from driftcast.wire import Message

ME = 5
SINK = SubscriptionId(ME, 0)
KELVIN = Processor("kelvin", "unit = 'C'")


def event(source: NodeId, number: int, **attributes: Scalar) -> Event:
    return Event(EventId(source, number), {"topic": "t", **attributes})


CELSIUS = event(0, 1, unit="C", value=20.5)
C = announcement_id(CELSIUS, (0,), 3)


class Broker:
    """One broker with some neighbors, each at a cost of 10 ms, and what it does."""

    def __init__(self, *neighbors: NodeId, node: NodeId = ME, **settings: object) -> None:
        self.port = RecordingPort()
        self.asp = Asp(node, AspSettings(**settings), self.port, LoneHost(), Random(1))  # type: ignore[arg-type] # by name
        for neighbor in neighbors:
            self.asp.on_link_up(0.0, Link(neighbor, "radio", 0.01))
        self.port.take()

    def hear(self, sender: NodeId, message: Message, now: float = 1.0) -> list[object]:
        self.asp.on_message(now, sender, message, "radio")
        return self.effects()

    def effects(self) -> list[object]:
        """Sends as (target, message), drops as their reasons; timers and kept copies are left out."""
        found: list[object] = []
        for effect in self.port.take():
            if isinstance(effect, Send):
                found.append((effect.target, effect.message))
            elif isinstance(effect, Note) and effect.fact.kind == "drop":
                found.append(effect.fact.reason)
            elif isinstance(effect, Deliver | Process):
                found.append(effect)
        return found

    @property
    def subscriber(self) -> int:
        return self.asp._broker.subscriber


def announcement(metric_s: float = 0.02, sequence: int = 1, of: Event = CELSIUS, **fields: float) -> Announcement:
    values: dict[str, object] = {"id": C, "stream": stream_id(0, ["t"]), "validity_s": 10.0, "counter": 1, **fields}
    return Announcement(of, 1, 60.0, metric_s=metric_s, sequence=sequence, **values)  # type: ignore[arg-type] # by name


def publication(counter: int, of: Event, id: int = C, hops: int = 1) -> Publication:
    return Publication(of, hops, 60.0, id=id, counter=counter)


def subscribe(subscriber: int, metric_s: float, kind: PathKind = PathKind.SUBSCRIBE, id: int = C) -> PathMessage:
    return PathMessage(id, subscriber, metric_s, kind)


# [001 §4.2] The announcement phase.


def test_a_full_announcement_goes_to_every_neighbor_but_its_sender_with_the_link_added() -> None:
    broker = Broker(1, 2, 3)
    sent = broker.hear(1, announcement(0.02))
    assert [target for target, _ in sent] == [2, 3]  # type: ignore[misc] # pairs
    [(_, first), _] = sent  # type: ignore[misc] # pairs
    assert isinstance(first, Announcement)
    assert (first.metric_s, first.validity_s, first.hops, first.event) == (pytest.approx(0.03), 10.0, 2, CELSIUS)


def test_heard_again_with_a_better_metric_it_goes_on_without_its_message_and_not_to_sinks() -> None:
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


def test_heard_again_with_no_better_metric_it_goes_nowhere() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    assert broker.hear(2, announcement(0.02)) == []
    assert broker.hear(3, ShortAnnouncement(C, 0.025, 1)) == []


def test_a_higher_sequence_prolongs_the_announcement_and_is_flooded_anew() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    assert len(broker.hear(1, announcement(0.09, sequence=2), now=9.0)) == 1, "even with a worse metric"
    broker.asp.on_timer(11.0, "expiry")
    assert broker.hear(2, subscribe(7, 0.1), now=12.0) == [(1, subscribe(7, 0.1))]
    assert broker.hear(1, announcement(0.02), now=12.0) == [], "one of before is no news"


def test_an_announcement_that_is_not_prolonged_is_forgotten() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02), now=1.0)
    broker.asp.on_timer(11.0, "expiry")
    assert broker.hear(2, subscribe(7, 0.1), now=11.0) == ["subscription_unknown_id"]


def test_a_sink_gets_the_announced_message_and_subscribes_only_if_its_filter_fits() -> None:
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


def test_a_subscription_marks_its_sender_and_goes_to_the_best_announcer() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    assert broker.hear(2, subscribe(7, 0.1)) == [(1, subscribe(7, 0.1))]
    # A worse one of the same subscriber changes nothing, a better one does.
    assert broker.hear(3, subscribe(7, 0.2)) == []
    assert broker.hear(3, subscribe(7, 0.05)) == [(1, subscribe(7, 0.05))]
    second = event(0, 2, unit="C")
    assert broker.hear(1, publication(2, second)) == [(3, publication(2, second, hops=2))]


def test_an_unsubscribe_counts_only_with_the_metric_of_the_path() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    assert broker.hear(2, subscribe(7, 0.2, PathKind.UNSUBSCRIBE)) == ["path_unknown"]
    unsubscribed = broker.hear(2, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))
    assert unsubscribed == [(1, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))]
    assert broker.hear(1, publication(2, event(0, 2))) == []


def test_when_the_active_path_is_taken_back_the_one_that_waited_takes_over() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    broker.hear(3, subscribe(7, 0.2))
    assert broker.hear(2, subscribe(7, 0.1, PathKind.UNSUBSCRIBE)) == [], "upstream everything stays as it is"
    second = event(0, 2)
    assert broker.hear(1, publication(2, second)) == [(3, publication(2, second, hops=2))]


def test_the_end_of_the_last_local_subscription_that_fits_takes_the_path_back() -> None:
    broker = Broker(1)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "unit = 'C'"))
    broker.asp.on_subscribe(0.0, Subscription(SubscriptionId(ME, 1), "topic = 't'"))
    broker.hear(1, announcement(0.02))
    broker.asp.on_unsubscribe(2.0, SINK)
    assert broker.effects() == []
    broker.asp.on_unsubscribe(2.0, SubscriptionId(ME, 1))
    assert broker.effects() == [(1, subscribe(broker.subscriber, 0.02, PathKind.UNSUBSCRIBE))]


# [001 §4.4] The publication phase.


def test_a_publication_goes_once_to_each_neighbor_with_active_paths_and_never_twice() -> None:
    broker = Broker(1, 2, 3)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    broker.hear(2, subscribe(8, 0.1))
    broker.hear(3, subscribe(9, 0.1))
    second = event(0, 2)
    passed = broker.hear(1, publication(2, second))
    assert passed == [(2, publication(2, second, hops=2)), (3, publication(2, second, hops=2))]
    assert broker.hear(1, publication(2, second)) == ["publication_repeated"]


def test_a_source_announces_first_and_publishes_then_until_the_announcement_expires() -> None:
    source = Broker(1, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    [(_, announced)] = source.effects()  # type: ignore[misc] # one pair
    assert isinstance(announced, Announcement)
    assert (announced.id, announced.metric_s, announced.counter) == (C, 0.01, 1)
    source.hear(1, subscribe(7, 0.05))
    second = event(0, 2, unit="C", value=21.0)
    source.asp.on_publish(2.0, second)
    assert source.effects() == [(1, publication(2, second))]
    third = event(0, 3, unit="C", value=22.0)
    source.asp.on_publish(11.0, third)
    [(_, again)] = source.effects()  # type: ignore[misc] # one pair
    assert isinstance(again, Announcement)
    assert again.id == announcement_id(third, (0,), 3) != C, "the id follows the content"
    assert (again.stream, again.counter) == (announced.stream, 3)


def test_the_same_content_announced_again_has_the_same_id_and_a_higher_sequence() -> None:
    source = Broker(1, node=0)
    for now, number in ((1.0, 1), (11.0, 2)):
        source.asp.on_publish(now, event(0, number, unit="C", value=20.5))
    [(_, first), (_, second)] = source.effects()  # type: ignore[misc] # two pairs
    assert isinstance(first, Announcement)
    assert isinstance(second, Announcement)
    assert first.id == second.id
    assert first.sequence < second.sequence


def test_a_source_that_starts_anew_has_higher_sequences_and_counters() -> None:
    host = LoneHost()
    host.incarnation = 1
    port = RecordingPort()
    source = Asp(0, AspSettings(), port, host, Random(1))
    source.on_link_up(0.0, Link(1, "radio", 0.01))
    source.on_publish(1.0, CELSIUS)
    [announced] = port.take_messages()
    assert isinstance(announced, Announcement)
    assert min(announced.sequence, announced.counter) > 1 << 32


def test_streams_are_told_apart_by_their_attributes() -> None:
    source = Broker(1, node=0, stream_attributes=("topic", "room"))
    for number, room in enumerate(("a", "b", "a"), 1):
        source.asp.on_publish(1.0, event(0, number, room=room))
    assert [type(message) for _, message in source.effects()] == [Announcement, Announcement]  # type: ignore[misc] # pairs


# [001 §4.1, §4.3] Neighbors that cannot be reached.


def test_a_publication_that_cannot_be_delivered_breaks_the_path_and_the_source_announces_again() -> None:
    source = Broker(1, 2, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    source.asp.on_publish(2.0, event(0, 2))
    [sent] = [effect for effect in source.port.take() if isinstance(effect, Send)]
    assert sent.token is not None
    source.asp.on_sent(2.1, sent.token, "unreachable")
    source.effects()
    source.asp.on_publish(3.0, event(0, 3))
    assert [target for target, _ in source.effects()] == [2], "to those that are neighbors still"  # type: ignore[misc] # pairs
    source.asp.on_timer(3.1, ("back", (1, "radio")))
    source.asp.on_publish(13.0, event(0, 4))
    assert [target for target, _ in source.effects()] == [2, 1], "and after a while to all"  # type: ignore[misc] # pairs


def test_a_full_queue_breaks_no_path() -> None:
    source = Broker(1, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    source.asp.on_publish(2.0, event(0, 2))
    [sent] = [effect for effect in source.port.take() if isinstance(effect, Send)]
    assert sent.token is not None
    source.asp.on_sent(2.1, sent.token, "queue_full")
    source.asp.on_publish(3.0, event(0, 3))
    assert [type(message) for _, message in source.effects()] == [Publication]  # type: ignore[misc] # pairs


def test_a_lost_neighbor_on_an_active_path_is_reported_toward_the_source() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    broker.hear(2, subscribe(7, 0.1))
    broker.asp.on_link_down(2.0, Link(2, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.PATH_BROKEN))]
    # The next broker passes it on, and only for the path that leads to who says so.
    upstream = Broker(1, ME, node=4)
    upstream.hear(1, announcement(0.02))
    upstream.hear(ME, subscribe(7, 0.1))
    assert upstream.hear(3, subscribe(7, 0.1, PathKind.PATH_BROKEN)) == ["path_unknown"]
    assert upstream.hear(ME, subscribe(7, 0.1, PathKind.PATH_BROKEN)) == [(1, subscribe(7, 0.1, PathKind.PATH_BROKEN))]


def test_a_neighbor_with_two_links_is_lost_with_the_second() -> None:
    broker = Broker(1, 2)
    broker.asp.on_link_up(0.0, Link(2, "ethernet", 0.001))
    broker.asp.on_message(1.0, 1, announcement(0.02), "radio")
    [sent] = [effect for effect in broker.port.take() if isinstance(effect, Send)]
    assert sent.via == "ethernet"
    assert isinstance(sent.message, Announcement)
    assert sent.message.metric_s == pytest.approx(0.021)
    broker.hear(2, subscribe(7, 0.1))
    broker.asp.on_link_down(2.0, Link(2, "ethernet", 0.001))
    assert broker.effects() == []
    broker.asp.on_link_down(2.0, Link(2, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.PATH_BROKEN))]


# [001 §4.1, §4.2] Processors.


def station(**settings: object) -> tuple[Broker, Event, int]:
    """A broker that has made Kelvin out of the announcement; the result and its id."""
    broker = Broker(1, 2, 3, **settings)
    broker.asp.on_processor(0.0, KELVIN)
    assert Process("kelvin", b"", (CELSIUS,), 1) in broker.hear(1, announcement(0.05))
    kelvin = Event(EventId(ME, 1), {"topic": "t", "unit": "K", "value": 293.65}, derived_from=(CELSIUS.id,))
    broker.asp.on_processed(1.1, 1, b"", [kelvin], 0.2, "")
    return broker, kelvin, announcement_id(kelvin, (C,), 3)


def test_a_result_is_announced_to_all_with_the_cost_of_processing() -> None:
    broker, kelvin, id = station()
    sent = broker.effects()
    assert [target for target, _ in sent] == [1, 2, 3]  # type: ignore[misc] # pairs
    _, message = sent[0]  # type: ignore[misc] # a pair
    assert isinstance(message, Announcement)
    assert (message.id, message.event, message.stages) == (id, kelvin, 1)
    assert message.metric_s == pytest.approx(0.05 + 0.2 + 0.01)


def test_the_processing_of_a_short_announcement_is_simulated_by_the_broker() -> None:
    broker, _, id = station()
    broker.effects()
    effects = broker.hear(2, ShortAnnouncement(C, 0.02, 1))
    assert not [effect for effect in effects if isinstance(effect, Process)]
    shorts = {(target, m.id): m.metric_s for target, m in effects}  # type: ignore[misc] # pairs
    assert shorts == {
        (1, C): pytest.approx(0.03),
        (3, C): pytest.approx(0.03),
        (1, id): pytest.approx(0.23),
        (2, id): pytest.approx(0.23),
        (3, id): pytest.approx(0.23),
    }


def test_a_subscription_to_a_result_goes_on_to_its_inputs_and_publications_pass_the_processor() -> None:
    broker, _, id = station()
    broker.effects()
    derived = derived_subscriber(7, id)
    assert broker.hear(3, subscribe(7, 0.3, id=id)) == [(1, subscribe(derived, 0.3))]
    second = event(0, 2, unit="C", value=21.5)
    assert broker.hear(1, publication(2, second)) == [Process("kelvin", b"", (second,), 2)]
    result = Event(EventId(ME, 2), {"topic": "t", "unit": "K", "value": 294.65})
    broker.asp.on_processed(2.1, 2, b"", [result], 0.2, "")
    [(target, message)] = broker.effects()  # type: ignore[misc] # one pair
    assert isinstance(message, Publication)
    assert (target, message.id, message.counter, message.event) == (3, id, 2, result)
    # [001 §4.3] A broken path to the sink is a broken path of the input.
    broker.asp.on_link_down(3.0, Link(3, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(derived, 0.3, PathKind.PATH_BROKEN))]


def test_a_processor_that_is_on_no_active_path_gets_no_publications() -> None:
    broker, _, _ = station()
    broker.effects()
    assert broker.hear(1, publication(2, event(0, 2, unit="C"))) == []


def test_a_processor_of_two_inputs_waits_for_both() -> None:
    broker = Broker(1, 2)
    broker.asp.on_processor(0.0, Processor("mean", "topic in ('t', 'u')", inputs=2))
    other = Event(EventId(9, 1), {"topic": "u"})
    ids = (C, announcement_id(other, (9,), 3))
    broker.hear(1, announcement(0.05))
    effects = broker.hear(2, announcement(0.02, of=other, id=ids[1], stream=stream_id(9, ["u"])))
    assert effects[-1] == Process("mean", b"", (CELSIUS, other), 1)
    mean = Event(EventId(ME, 1), {"topic": "mean"})
    broker.asp.on_processed(1.1, 1, b"", [mean], 0.1, "")
    result = announcement_id(mean, sorted(ids), 3)
    announced = {target: m for target, m in broker.effects() if isinstance(m, Announcement)}  # type: ignore[misc] # pairs
    assert announced[1].metric_s == pytest.approx(0.05 + 0.02 + 0.1 + 0.01)
    subscribed = broker.hear(2, subscribe(7, 0.3, id=result))
    derived = derived_subscriber(7, result)
    assert subscribed == [(1, subscribe(derived, 0.3)), (2, subscribe(derived, 0.3, id=ids[1]))]
    # A new announcement of one input joins the newest message of the other.
    newer = event(0, 5, unit="C")
    broker.hear(1, publication(2, event(0, 2)))
    last = Event(EventId(9, 2), {"topic": "u"})
    assert broker.hear(2, publication(2, last, ids[1]))[-1] == Process("mean", b"", (event(0, 2), last), 2)
    effects = broker.hear(1, announcement(0.05, of=newer, id=announcement_id(newer, (0,), 3), counter=3))
    broker.asp.on_processed(2.0, 2, b"", [], 0.1, "")
    assert Process("mean", b"", (newer, last), 3) in effects + broker.effects()


# Bad input: each a drop with a name.


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
def test_a_bad_message_is_dropped_by_name(message: Message, reason: str) -> None:
    broker = Broker(1, 2, max_metric_s=1.0)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "true"))
    assert broker.hear(1, message) == [reason]


def test_a_subscription_with_a_metric_that_is_no_number_makes_no_path() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    assert broker.hear(2, subscribe(7, float("nan"))) == ["metric_invalid"]
    assert broker.hear(1, publication(2, event(0, 2))) == []


def test_a_subscription_from_the_best_announcer_itself_is_refused() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    assert broker.hear(1, subscribe(7, 0.1)) == ["subscription_loop"]


def test_two_contents_with_one_id_are_a_collision_and_the_first_stays() -> None:
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


def test_a_message_too_large_to_be_announced_is_dropped_by_name_but_reaches_local_sinks() -> None:
    source = Broker(1, node=0, packet_bytes=200)
    source.asp.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "true"))
    big = Event(EventId(0, 1), {"topic": "t"}, payload=bytes(300))
    source.asp.on_publish(1.0, big)
    assert source.effects() == ["announcement_too_large", Deliver(SubscriptionId(0, 0), big, 0)]
    source.asp.on_publish(2.0, event(0, 2))
    assert [type(m) for _, m in source.effects() if m] == [Announcement]  # type: ignore[misc] # the stream is not stuck


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
    assert broker.hear(2, subscribe(7, 0.1)) == [(1, subscribe(7, 0.1))], "its node goes on"


def test_a_failed_call_on_a_publication_costs_that_message_only() -> None:
    broker, _, id = station()
    broker.hear(3, subscribe(7, 0.3, id=id))
    broker.hear(1, publication(2, event(0, 2, unit="C")))
    broker.asp.on_processed(2.0, 2, b"", [], 0.1, "kelvin raised ValueError")
    assert broker.effects() == ["processor_failed"]
    third = event(0, 3, unit="C")
    assert broker.hear(1, publication(3, third)) == [Process("kelvin", b"", (third,), 3)]
    broker.asp.on_processed(3.0, 3, b"", [event(ME, 2, unit="K"), event(ME, 3, unit="K")], 0.1, "")
    effects = broker.effects()
    assert [type(m) for _, m in effects[:1]] == [Publication]  # type: ignore[misc] # pairs
    assert effects[1:] == ["result_unannounced"], "more results than were announced"


def test_a_processor_that_would_process_its_own_kind_for_ever_is_ended() -> None:
    broker = Broker(1, 2, max_stages=2)
    broker.asp.on_processor(0.0, Processor("increment", "topic = 't'"))
    effects = broker.hear(1, announcement(0.05, stages=2))
    assert "too_many_processors" in effects
    assert not [effect for effect in effects if isinstance(effect, Process)]


def test_an_outcome_for_a_processor_that_is_gone_is_passed_over() -> None:
    broker = Broker(1, 2)
    broker.asp.on_processor(0.0, KELVIN)
    broker.hear(1, announcement(0.05))
    broker.asp.on_processor_gone(1.0, "kelvin")
    broker.asp.on_processed(1.1, 1, b"", [event(ME, 1, unit="K")], 0.1, "")
    assert broker.effects() == ["processor_gone"]


def test_a_table_that_is_full_takes_nothing_more_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("driftcast.dissemination.asp.tables.MAX_ANNOUNCEMENTS", 1)
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.05))
    assert broker.hear(1, announcement(0.05, id=C + 1, of=event(0, 9))) == ["too_many_announcements"]


def test_by_broadcast_an_announcement_is_one_transmission_and_the_receiver_adds_the_link() -> None:
    broker = Broker(1, 2, announce_by="broadcast")
    broker.asp.on_message(1.0, 1, announcement(0.05), "radio")
    [message] = broker.port.take_messages()
    assert isinstance(message, Announcement)
    assert message.metric_s == pytest.approx(0.06)
    assert broker.hear(9, announcement(0.01, sequence=2)) == ["metric_invalid"], "a stranger's link has no cost"


def test_an_individual_message_is_flooded_and_wants_no_path() -> None:
    source = Broker(1, node=0, individual="always")
    source.asp.on_publish(1.0, CELSIUS)
    source.asp.on_publish(1.5, event(0, 2))
    messages = [message for _, message in source.effects()]  # type: ignore[misc] # pairs
    assert [message.flags for message in messages] == [Flag.INDIVIDUAL, Flag.INDIVIDUAL]
    sink = Broker(0, 2)
    sink.asp.on_subscribe(0.0, Subscription(SINK, "true"))
    effects = sink.hear(0, messages[0])
    assert [type(effect) for effect in effects] == [tuple, Deliver]
    assert sink.hear(2, messages[0]) == []
    assert sink.hear(2, subscribe(7, 0.1, id=messages[0].id)) == ["subscription_unknown_id"]


def test_notes_are_facts_of_the_trace() -> None:
    broker = Broker(1)
    broker.asp.on_message(1.0, 1, subscribe(7, 0.1), "radio")
    assert broker.port.take() == [Note(Fact("drop", peer=1, reason="subscription_unknown_id"))]
