"""001: announcement, subscription, publication."""

from random import Random

import pytest

from driftcast.model import (
    Event,
    EventId,
    Processor,
    Subscription,
    SubscriptionId,
)
from driftcast.protocol import RecordingPort, Settings
from driftcast.protocol.effects import (
    Deliver,
    Process,
    Send,
)

from . import asp
from .fake_host import FakeHost
from .rounds import Round
from .samples import event, link

S = SubscriptionId(0, 1)


CELSIUS = Processor("to-kelvin", "unit = 'C'")


def test_a_stream_is_announced_subscribed_processed_and_published() -> None:
    """Source 0, station 1 with a processor and two interfaces to sink 2."""
    source_port, station_port, sink_port = RecordingPort(), RecordingPort(), RecordingPort()
    source = asp.Asp(0, Settings(), source_port, FakeHost(), Random(0))
    station = asp.Asp(1, Settings(), station_port, FakeHost(), Random(1))
    sink = asp.Asp(2, Settings(), sink_port, FakeHost(), Random(2))
    source.on_link_up(0.0, link(1))
    station.on_link_up(0.0, link(0))
    station.on_link_up(0.0, link(2, "radio", 0.01))
    station.on_link_up(0.0, link(2, "ethernet", 0.001))
    sink.on_link_up(0.0, link(1, "ethernet", 0.001))
    station.on_processor(0.0, CELSIUS)
    sink.on_subscribe(0.0, Subscription(S, "unit = 'K'"))

    # The first event announces the stream; the station floods it on and tries its processor.
    first = event(0, 1, topic="t", unit="C")
    source.on_publish(1.0, first)
    [announced] = source_port.take_messages()
    station.on_message(1.0, 0, announced, "radio")
    forwarded, process = station_port.take()
    assert isinstance(forwarded, Send)
    assert (forwarded.target, forwarded.via) == (2, "ethernet")
    assert process == Process("to-kelvin", b"", (first,), 1)
    sink.on_message(1.0, 1, forwarded.message, "radio")
    assert sink_port.take() == []

    # The result is announced with the processor's cost on top; the sink takes it and subscribes back.
    kelvin = Event(EventId(1, 1), {"topic": "t", "unit": "K"}, derived_from=(first.id,))
    station.on_processed(1.1, 1, b"", [kelvin], 0.1, "")
    results = station_port.take()
    assert [(r.target, r.via) for r in results if isinstance(r, Send)] == [(0, "radio"), (2, "ethernet")]
    result = results[1]
    assert isinstance(result, Send)
    assert isinstance(result.message, asp.Announcement)
    assert result.message.metric_s == pytest.approx(0.01 + 0.1 + 0.001)
    sink.on_message(1.2, 1, result.message, "radio")
    delivered, subscribed = sink_port.take()
    assert delivered == Deliver(S, kelvin, 2)
    assert isinstance(subscribed, Send)

    # A subscription to the result goes on as one to the processor's input.
    station.on_message(1.3, 2, subscribed.message, "radio")
    [upstream] = station_port.take_messages()
    assert isinstance(upstream, asp.PathMessage)
    assert isinstance(announced, asp.Announcement)
    assert (upstream.stream, upstream.kind) == (announced.stream, asp.Kind.SUBSCRIBE)
    source.on_message(1.4, 1, upstream, "radio")

    # From now on events follow the active path, with a token for the outcome.
    second = event(0, 2, topic="t", unit="C")
    source.on_publish(2.0, second)
    [published] = source_port.take()
    assert isinstance(published, Send)
    assert (published.target, published.token) == (1, 1)
    station.on_message(2.0, 0, published.message, "radio")
    assert station_port.take() == [Process("to-kelvin", b"", (second,), 2)]
    station.on_processed(2.1, 2, b"", [kelvin], 0.1, "")
    [onward] = station_port.take()
    assert isinstance(onward, Send)
    assert (onward.target, onward.token) == (2, 1), "sends have tokens of their own"

    # The path breaks behind the station: it says so upstream, and the next event is an announcement again.
    station.on_sent(2.2, 1, "unreachable")
    [broken] = station_port.take_messages()
    assert isinstance(broken, asp.PathMessage)
    assert broken.kind is asp.Kind.PATH_BROKEN
    source.on_message(2.3, 1, broken, "radio")
    source.on_publish(3.0, event(0, 3, topic="t", unit="C"))
    [again] = source_port.take_messages()
    assert isinstance(again, asp.Announcement)
    assert again.sequence == Round(1, 1)


def test_a_full_queue_breaks_no_path() -> None:
    port = RecordingPort()
    source = asp.Asp(0, Settings(), port, FakeHost(), Random(0))
    source.on_link_up(0.0, link(1))
    source.on_publish(1.0, event(0, 1, topic="t"))
    [announced] = port.take_messages()
    assert isinstance(announced, asp.Announcement)
    source.on_message(1.1, 1, asp.PathMessage(announced.stream, 5, 0.0, asp.Kind.SUBSCRIBE), "radio")
    for sequence, failure, expected in ((2, "queue_full", asp.Publication), (3, "unreachable", asp.Publication)):
        source.on_publish(2.0, event(0, sequence, topic="t"))
        assert [type(message) for message in port.take_messages()] == [expected]
        source.on_sent(2.1, sequence - 1, failure)
    source.on_publish(3.0, event(0, 4, topic="t"))
    assert [type(message) for message in port.take_messages()] == [asp.Announcement]


def test_a_source_that_starts_anew_announces_with_a_newer_sequence() -> None:
    before, after = FakeHost(), FakeHost()
    after.incarnation = 2
    hearer_port, announced = RecordingPort(), []
    hearer = asp.Asp(1, Settings(), hearer_port, FakeHost(), Random(1))
    hearer.on_link_up(0.0, link(2))
    for host in (before, after):
        port = RecordingPort()
        source = asp.Asp(0, Settings(), port, host, Random(0))
        source.on_link_up(0.0, link(1))
        source.on_publish(1.0, event(0, 1, topic="t"))
        announced += port.take_messages()
    for message in announced:
        hearer.on_message(1.0, 0, message, "radio")
        assert [type(passed) for passed in hearer_port.take_messages()] == [asp.Announcement]


def test_a_processor_has_one_call_running_and_hands_its_state_on() -> None:
    port = RecordingPort()
    node = asp.Asp(0, Settings(), port, FakeHost(), Random(0))
    node.on_processor(0.0, CELSIUS)
    first, second = event(0, 1, topic="t", unit="C"), event(0, 2, topic="u", unit="C")
    node.on_publish(1.0, first)
    node.on_publish(1.0, second)
    assert port.take() == [Process("to-kelvin", b"", (first,), 1)]
    node.on_processed(1.1, 1, b"one", [], 0.1, "")
    assert port.take() == [Process("to-kelvin", b"one", (second,), 2)]
