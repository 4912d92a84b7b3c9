"""Long payloads on their way: as short as they can be, as they were at the end, and no larger than a packet."""

import os
import zlib

import pytest

from carrycast.core.model import Event, EventId
from carrycast.node.gateways.mqtt import encoding
from carrycast.node.gateways.mqtt.config import MOST_PACKET_BYTES
from carrycast.node.gateways.mqtt.events import message_of
from carrycast.node.gateways.mqtt.packets import V5
from carrycast.node.gateways.mqtt.packing import ENCODING, packed, unpacked


@pytest.mark.parametrize("payload", [b"", b"x", b"Hello" * 40_000, os.urandom(1000), bytes(MOST_PACKET_BYTES)])
def test_what_is_packed_is_read_as_it_was(payload: bytes) -> None:
    assert unpacked(packed(payload)) == payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"Hello",
        packed(b"Hello" * 100)[:-1],
        packed(b"Hello") + b"more",
        packed(bytes(MOST_PACKET_BYTES + 1)),
        zlib.compress(bytes(1 << 30)),
    ],
    ids=["nothing", "plain", "cut off", "more behind it", "a byte too long", "a gigabyte in a megabyte"],
)
def test_what_is_not_packed_or_becomes_too_long_goes_on_as_it_is(payload: bytes) -> None:
    assert unpacked(payload) is None
    message = message_of(Event(EventId(1, 1), {"topic": "t", "mqtt.qos": 0, ENCODING: "deflate"}, payload))
    assert message is not None
    assert encoding.publish(V5, message).endswith(payload)
