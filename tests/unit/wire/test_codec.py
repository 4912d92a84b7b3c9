"""Any bytes decode to a message or raise a DecodeError with a reason."""

import struct
from enum import StrEnum

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.model import AccessPolicy, Event, EventId, Position
from carrycast.core.model.event import MAX_PAYLOAD_BYTES
from carrycast.core.wire import (
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    Codec,
    DecodeError,
    EventMessage,
    Flaw,
    Layer,
    Message,
    Parcel,
    ParcelMessage,
    Traffic,
    classify,
    layer_of,
)


class Carrier(EventMessage, frozen=True, gc=False, tag=1):
    """Carries an event."""


class Greeting(Message, frozen=True, gc=False, tag=2):
    """Says where it comes from."""

    name: str
    position: Position


class Routed(ParcelMessage, frozen=True, gc=False, tag=1):
    """Carries a parcel."""


CODEC = Codec(Layer.DISSEMINATION, "sample", (Carrier, Greeting))
EVENT = Event(EventId(1, 2), {"topic": "x"}, b"payload", 3.0, 60.0)
FRAME = CODEC.encode(Carrier(EVENT, 1, 60.0))


def flaw(frame: bytes, codec: Codec = CODEC) -> StrEnum:
    with pytest.raises(DecodeError) as caught:
        codec.decode(frame)
    return caught.value.flaw


def frame_of(body: object, codec: Codec = CODEC) -> bytes:
    """A frame with an honest header and any body."""
    return codec.encode(Greeting("", Position(0, 0)))[:HEADER_BYTES] + msgspec.msgpack.encode(body)


def test_the_header_is_magic_version_layer_and_the_hash_of_the_name() -> None:
    assert struct.unpack(">BBBI", FRAME[:HEADER_BYTES])[:3] == (0xDC, 1, Layer.DISSEMINATION)
    assert HEADER_BYTES == 7


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (bytes(MAX_FRAME_BYTES + 1), Flaw.TOO_LONG),
        (b"", Flaw.TRUNCATED),
        (FRAME[:HEADER_BYTES], Flaw.TRUNCATED),
        (b"\x00" + FRAME[1:], Flaw.NOT_OURS),
        (FRAME[:1] + b"\x02" + FRAME[2:], Flaw.VERSION),
        (FRAME[:2] + b"\x00" + FRAME[3:], Flaw.LAYER),
        (FRAME[:2] + b"\xff" + FRAME[3:], Flaw.LAYER),
        (FRAME[:3] + b"\x00\x00\x00\x00" + FRAME[7:], Flaw.OTHER_PROTOCOL),
        (FRAME[:-1], Flaw.MALFORMED),
        (FRAME + b"\x00", Flaw.MALFORMED),
    ],
)
def test_every_flaw_has_a_name(frame: bytes, expected: Flaw) -> None:
    assert flaw(frame) is expected


def test_no_flaw_is_without_a_test() -> None:
    marks = getattr(test_every_flaw_has_a_name, "pytestmark")  # noqa: B009 - pytest's own attribute, unknown to types
    assert {expected for _, expected in marks[0].args[1]} == set(Flaw)


def test_another_protocol_of_the_same_messages_is_told_apart_by_its_name() -> None:
    other = Codec(Layer.DISSEMINATION, "another", (Carrier, Greeting))
    assert flaw(other.encode(Carrier(EVENT, 1, 1.0))) is Flaw.OTHER_PROTOCOL


EVENT_BODY = [[1, 2], {"topic": "x"}, b"", 3.0, 60.0, None, []]


def event_body(**changes: object) -> list[object]:
    places = {"id": 0, "attributes": 1, "payload": 2, "time_s": 3, "lease_s": 4, "access": 5, "derived_from": 6}
    body: list[object] = list(EVENT_BODY)
    for name, value in changes.items():
        body[places[name]] = value
    return body


@pytest.mark.parametrize(
    "body",
    [
        [1, event_body(), -1, 60.0],
        [1, event_body(), 65_536, 60.0],
        [1, event_body(), 1, 0.0],
        [1, event_body(), 1, -1.0],
        [1, event_body(), 1, float("nan")],
        [1, event_body(), 1.5, 1.0],
        [1, event_body(), "1", 1.0],
        [1, event_body()],
        [3, event_body(), 1, 1.0],
        ["1", event_body(), 1, 1.0],
        [],
        {},
        7,
        [1, event_body(id=[-1, 0]), 1, 1.0],
        [1, event_body(id=[2**63, 0]), 1, 1.0],
        [1, event_body(id=[1]), 1, 1.0],
        [1, event_body(attributes={"": 1}), 1, 1.0],
        [1, event_body(attributes={"a" * 129: 1}), 1, 1.0],
        [1, event_body(attributes={"a": float("nan")}), 1, 1.0],
        [1, event_body(attributes={"a": float("inf")}), 1, 1.0],
        [1, event_body(attributes={"a": 2**63}), 1, 1.0],
        [1, event_body(attributes={"a": None}), 1, 1.0],
        [1, event_body(attributes={"a": [1]}), 1, 1.0],
        [1, event_body(attributes={"a": "x" * 4097}), 1, 1.0],
        [1, event_body(attributes={str(n): n for n in range(257)}), 1, 1.0],
        [1, event_body(attributes={1: 1}), 1, 1.0],
        [1, event_body(payload=bytes(MAX_PAYLOAD_BYTES + 1)), 1, 1.0],
        [1, event_body(payload="text"), 1, 1.0],
        [1, event_body(time_s=float("nan")), 1, 1.0],
        [1, event_body(time_s=float("inf")), 1, 1.0],
        [1, event_body(lease_s=0.0), 1, 1.0],
        [1, event_body(lease_s=-5.0), 1, 1.0],
        [1, event_body(lease_s=float("nan")), 1, 1.0],
        [1, event_body(access=["x" * 4097]), 1, 1.0],
        [1, event_body(derived_from=[[0, 0]] * 65), 1, 1.0],
        [2, "x", [float("nan"), 0.0]],
        [2, "x", [float("inf"), 0.0]],
        [2, "x", [2e9, 0.0]],
        [2, "x", [0.0]],
    ],
)
def test_a_field_out_of_its_bounds_is_refused(body: object) -> None:
    assert flaw(frame_of(body)) is Flaw.MALFORMED


def test_what_is_at_the_bounds_is_accepted() -> None:
    assert isinstance(CODEC.decode(frame_of([1, EVENT_BODY, 65_535, float("inf")])), Carrier)
    full = event_body(id=[2**63 - 1, 2**63 - 1], attributes={"a" * 128: "x" * 4096}, payload=bytes(MAX_PAYLOAD_BYTES))
    decoded = CODEC.decode(frame_of([1, full, 0, 5e-324]))
    assert isinstance(decoded, Carrier)
    assert CODEC.decode(CODEC.encode(decoded)) == decoded


def test_a_nest_of_arrays_is_refused_and_not_followed() -> None:
    assert flaw(FRAME[:HEADER_BYTES] + b"\x91" * 100_000) is Flaw.MALFORMED


def test_a_length_that_promises_more_than_there_is_takes_no_memory() -> None:
    assert flaw(FRAME[:HEADER_BYTES] + b"\xdd\xff\xff\xff\xff") is Flaw.MALFORMED
    assert flaw(FRAME[:HEADER_BYTES] + b"\xc6\xff\xff\xff\xff") is Flaw.MALFORMED


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_a_decode_error(noise: bytes) -> None:
    for frame in (noise, FRAME[:HEADER_BYTES] + noise):
        try:
            message = CODEC.decode(frame)
        except DecodeError:
            continue
        assert CODEC.decode(CODEC.encode(message)) == message


@pytest.mark.parametrize("place", range(len(FRAME)))
def test_any_byte_of_a_frame_may_be_any_other(place: int) -> None:
    for value in range(256):
        frame = FRAME[:place] + bytes([value]) + FRAME[place + 1 :]
        try:
            message = CODEC.decode(frame)
        except DecodeError:
            continue
        assert isinstance(message, Carrier | Greeting)


def test_sizes_are_exact() -> None:
    for message in (Carrier(EVENT, 1, 60.0), Greeting("x" * 1000, Position(1.0, 2.0))):
        assert CODEC.size(message) == len(CODEC.encode(message))


def test_a_tag_belongs_to_one_type() -> None:
    class Twin(Message, frozen=True, gc=False, tag=2):
        """Takes a tag that is taken."""

    class Nameless(Message, frozen=True, gc=False):
        """Has none."""

    for messages in ((Greeting, Twin), (Nameless,)):
        with pytest.raises(TypeError, match="each message type needs a tag of its own"):
            Codec(Layer.DISSEMINATION, "sample", messages)


def test_a_layer_without_messages_understands_none() -> None:
    silent = Codec(Layer.DISSEMINATION, "sample", ())
    assert flaw(FRAME, silent) is Flaw.MALFORMED


def test_the_layer_of_a_frame_can_be_told_before_decoding() -> None:
    assert layer_of(FRAME) == Layer.DISSEMINATION
    for frame, expected in ((b"\xdc", Flaw.TRUNCATED), (b"\x00" * 20, Flaw.NOT_OURS)):
        with pytest.raises(DecodeError) as caught:
            layer_of(frame)
        assert caught.value.flaw is expected


def test_a_message_counts_as_what_it_carries() -> None:
    assert classify(Carrier(EVENT, 1, 1.0)) == (Traffic.DATA, EVENT.id)
    assert classify(Greeting("x", Position(0, 0))) == (Traffic.CONTROL, None)
    assert classify(Routed(Parcel(b"", Traffic.DATA, EVENT.id))) == (Traffic.DATA, EVENT.id)
    assert classify(Routed(Parcel(b"", Traffic.CONTROL))) == (Traffic.CONTROL, None)


def test_an_access_policy_travels_with_its_event() -> None:
    event = Event(EventId(1, 2), {}, access=AccessPolicy("rank > 1"), derived_from=(EventId(0, 0),))
    decoded = CODEC.decode(CODEC.encode(Carrier(event, 1, 1.0)))
    assert isinstance(decoded, Carrier)
    assert decoded.event == event
