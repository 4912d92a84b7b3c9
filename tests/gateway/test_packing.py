"""Long payloads on their way: as short as they can be, as they were at the end, and no larger than a packet."""

import os
import zlib

import pytest

from carrycast.core.model import Event, EventId
from carrycast.node.gateways.mqtt import codec
from carrycast.node.gateways.mqtt.config import MAX_PACKET_BYTES
from carrycast.node.gateways.mqtt.events import ENCODING, compress_payload, decompress_payload, make_application_message
from carrycast.node.gateways.mqtt.packets import V5


@pytest.mark.parametrize("payload", [b"", b"x", b"Hello" * 40_000, os.urandom(1000), bytes(MAX_PACKET_BYTES)])
def test_what_is_packed_is_read_as_it_was(payload: bytes) -> None:
    assert decompress_payload(compress_payload(payload)) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"Hello",
        compress_payload(b"Hello" * 100)[:-1],
        compress_payload(b"Hello") + b"more",
        compress_payload(bytes(MAX_PACKET_BYTES + 1)),
        zlib.compress(bytes(1 << 30)),
    ],
    ids=["nothing", "plain", "cut off", "more behind it", "a byte too long", "a gigabyte in a megabyte"],
)
def test_what_is_not_packed_or_becomes_too_long_goes_on_as_it_is(payload: bytes) -> None:
    assert decompress_payload(payload) is None
    message = make_application_message(
        Event(EventId(1, 1), {"topic": "t", "mqtt.qos": 0, ENCODING: "deflate"}, payload)
    )
    assert message is not None
    assert codec.encode_publish(V5, message).endswith(payload)
