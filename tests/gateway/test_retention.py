"""The reason codes for MQTT clients when the node cannot store more, and the lease of their messages."""

from pathlib import Path

from carrycast.node.api.client import connect as client
from carrycast.node.gateways.mqtt.fields import encode_string
from carrycast.node.gateways.mqtt.properties import encode_properties
from carrycast.node.gateways.mqtt.reason_codes import Reason
from tests.gateway.world import EPIDEMIC, Broker, Raw, broker, connect, packet

PUBACK = 4
SMALL = f"{EPIDEMIC}\nlog_bytes = {1 << 20}\nmax_lease_s = 60.0"


def kept(made: Broker) -> int:
    """Return the number of events that the node keeps after it acknowledged them as stored."""
    with client(made.control) as one:
        return one.status().retention["stored"].kept


def published(raw: Raw, id: int, payload: bytes, **properties: int) -> int:
    """The reason code that a client of MQTT 5 is told of a message with QoS 1."""
    head = encode_string("a") + id.to_bytes(2) + encode_properties(properties)
    raw.say(packet(0x32, head, payload))
    _, body = raw.expect(PUBACK)
    assert int.from_bytes(body[:2]) == id
    return body[2] if len(body) > 2 else 0


def test_a_message_that_cannot_be_stored_is_refused_with_the_reason(tmp_path: Path) -> None:
    """G-17"""
    with broker(tmp_path, protocol=SMALL) as made, Raw(made.port, connect("sensor")) as raw:
        raw.read_connack()
        codes = [published(raw, id, bytes(20_000)) for id in range(1, 40)]
        stored = codes.index(Reason.QUOTA_EXCEEDED)
        assert set(codes[:stored]) == {0}
        assert set(codes[stored:]) == {Reason.QUOTA_EXCEEDED}
        assert 20 < stored < 27, "half of a megabyte"
        assert made.drops("mqtt_refused") == len(codes) - stored
        assert kept(made) == stored


def test_an_expiry_that_is_longer_than_events_are_kept_is_cut(tmp_path: Path) -> None:
    """G-17"""
    with broker(tmp_path, protocol=SMALL) as made, Raw(made.port, connect("sensor")) as raw:
        raw.read_connack()
        assert published(raw, 1, b"x", message_expiry_interval_s=86_400) == 0
        assert kept(made) == 1
