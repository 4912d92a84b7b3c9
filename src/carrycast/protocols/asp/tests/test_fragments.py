"""Messages that do not fit in a packet, at one broker."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec
import pytest

from carrycast.core.model import Event, EventId, Subscription, SubscriptionId
from carrycast.core.parts.fragments import MAX_FRAGMENTS
from carrycast.core.protocol import Host
from carrycast.core.protocol.effects import Deliver
from carrycast.core.wire import Codec, DecodeError, Flaw, Layer
from carrycast.errors import UserError
from carrycast.protocols.asp.broker import packet_size
from carrycast.protocols.asp.messages import Announcement, AnnouncementFlag, Fragment, MissingFragments, Publication
from carrycast.protocols.asp.protocol import Asp
from carrycast.protocols.asp.tests.bench import SINK, Broker, C, announcement, event, list_kinds, subscribe
from carrycast.sim.testing import IsolatedHost, isolate_protocol

T = TypeVar("T")


def make_sink(fragment_bytes: int = 500, packet_bytes: int = 1492, host: Host | None = None) -> Broker:
    """Make a sink of a large stream that 1 has described."""
    broker = Broker(1, 2, host=host, fragment_bytes=fragment_bytes, packet_bytes=packet_bytes)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "true"))
    broker.hear(1, announcement(0.02, flags=AnnouncementFlag.DESCRIPTIVE))
    return broker


def make_fragment(index: int, count: int = 2, counter: int = 2) -> Fragment:
    return Fragment(C, counter, index, count, 1, 60.0, b"no event")


def test_a_duplicate_fragment_is_dropped_with_a_reason() -> None:
    broker = make_sink()
    assert broker.hear(1, make_fragment(0)) == []
    assert broker.hear(1, make_fragment(0)) == ["fragment_repeated"]
    assert broker.hear(1, make_fragment(1, count=3)) == ["fragment_repeated"], "it has another count"


class RejectingCodec(Codec):
    """The codec of an environment that rejects events in fragments."""

    def decoder(self, kinds: Sequence[type[T]]) -> Callable[[bytes], T]:
        def refuse(body: bytes) -> T:
            super(RejectingCodec, self).decoder(kinds)(body)
            raise DecodeError(Flaw.OTHER_PROTOCOL)

        return refuse


def test_an_event_that_the_environment_rejects_is_dropped_with_its_reason() -> None:
    host = IsolatedHost()
    host.set_codec(RejectingCodec(Layer.DISSEMINATION, "asp", Asp.messages))
    broker = make_sink(host=host)
    body = msgspec.msgpack.encode(event(0, 2))
    broker.hear(1, Fragment(C, 2, 0, 2, 1, 60.0, body[:9]))
    assert broker.hear(1, Fragment(C, 2, 1, 2, 1, 60.0, body[9:])) == ["frame_other_protocol"]


def test_fragments_of_a_malformed_event_are_dropped_with_a_reason() -> None:
    broker = make_sink()
    broker.hear(1, make_fragment(0))
    assert broker.hear(1, make_fragment(1)) == ["fragments_malformed"]


def test_a_request_for_unknown_fragments_is_dropped_with_a_reason() -> None:
    broker = make_sink()
    assert broker.hear(2, MissingFragments(C, 9, (0, 1))) == ["fragments_unknown"]
    assert broker.hear(2, MissingFragments(C + 1, 2, (0, 1))) == ["fragments_unknown"]


@pytest.mark.parametrize(("packet_bytes", "asked"), [(200, 56), (1492, 256)])
def test_missing_fragments_are_requested_in_numbers_that_fit_a_packet(packet_bytes: int, asked: int) -> None:
    broker = make_sink(fragment_bytes=100, packet_bytes=packet_bytes)
    broker.hear(1, make_fragment(0, MAX_FRAGMENTS))
    stream = broker.asp.broker.table.entries()[0].stream.id
    broker.asp.on_timer(3.0, ("fragments", (stream, 2)))
    [(target, message)] = [effect for effect in broker.effects() if isinstance(effect, tuple)]
    assert target == 1
    assert isinstance(message, MissingFragments)
    assert message.missing == tuple(range(1, 1 + asked))
    assert packet_size(message) <= packet_bytes


def test_a_message_with_too_many_fragments_is_dropped_at_its_source() -> None:
    source = Broker(1, node=0, fragment_bytes=16, packet_bytes=200)
    source.asp.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "true"))
    huge = Event(EventId(0, 1), {"topic": "t"}, payload=bytes(16 * MAX_FRAGMENTS))
    source.asp.on_publish(1.0, huge)
    effects = source.effects()
    assert list_kinds(effects) == [Announcement], "it is described"
    assert effects[1:] == ["publication_too_large", Deliver(SubscriptionId(0, 0), huge, 0)]


def test_a_publication_too_large_for_a_packet_reaches_only_local_sinks() -> None:
    source = Broker(1, node=0, packet_bytes=200)
    source.asp.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "true"))
    source.asp.on_publish(1.0, event(0, 1))
    source.effects()
    source.hear(1, subscribe(7, 0.1, id=source.asp.broker.table.entries()[0].id))
    big = Event(EventId(0, 2), {"topic": "t"}, payload=bytes(300))
    source.asp.on_publish(2.0, big)
    assert source.effects() == ["publication_too_large", Deliver(SubscriptionId(0, 0), big, 0)]
    source.asp.on_publish(3.0, event(0, 3))
    assert list_kinds(source.effects()) == [Publication], "the stream goes on"


def test_fragments_larger_than_a_packet_are_rejected() -> None:
    isolate_protocol("asp", fragment_bytes=652, packet_bytes=700)
    with pytest.raises(UserError, match=r"fragment_bytes \(653\) must leave 48 of the packet_bytes \(700\)"):
        isolate_protocol("asp", fragment_bytes=653, packet_bytes=700)
