"""Packets of the server to bytes."""

from collections.abc import Sequence

from carrycast.node.gateways.mqtt import properties as kinds
from carrycast.node.gateways.mqtt.octets import variable
from carrycast.node.gateways.mqtt.packets import V5, Message
from carrycast.node.gateways.mqtt.packing import unpacked
from carrycast.node.gateways.mqtt.properties import NONE, Properties, write_properties

PONG = bytes((kinds.PINGRESP << 4, 0))


def _packet(head: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((head,)) + variable(len(body)) + body


def connack(version: int, session_present: bool, reason: int, properties: Properties = NONE) -> bytes:
    """A client is let in, or not."""
    said = bytes((session_present, reason))
    return _packet(kinds.CONNACK << 4, said, write_properties(properties) if version == V5 else b"")


def publish(version: int, message: Message, packet_id: int = 0, again: bool = False) -> bytes:
    """A message for a subscriber."""
    head = kinds.PUBLISH << 4 | again << 3 | message.qos << 1 | message.retain
    topic = message.topic.encode()
    payload = unpacked(message.payload) if message.packed else message.payload
    return _packet(
        head,
        len(topic).to_bytes(2, "big"),
        topic,
        packet_id.to_bytes(2, "big") if message.qos else b"",
        write_properties(message.properties) if version == V5 else b"",
        payload or b"",
    )


def ack(version: int, kind: int, packet_id: int, reason: int = 0) -> bytes:
    """PUBACK, PUBREC, PUBREL or PUBCOMP. A reason is left out where it is success."""
    head = kind << 4 | (2 if kind == kinds.PUBREL else 0)
    id = packet_id.to_bytes(2, "big")
    if version == V5 and reason:
        return bytes((head, 3)) + id + bytes((reason,))
    return bytes((head, 2)) + id


def suback(version: int, packet_id: int, reasons: Sequence[int], told: str = "") -> bytes:
    """What became of each wish: the QoS that it gets, or why it gets none."""
    return _answers(kinds.SUBACK, version, packet_id, reasons, told)


def unsuback(version: int, packet_id: int, reasons: Sequence[int]) -> bytes:
    """What became of each filter; MQTT 3.1.1 does not say."""
    return _answers(kinds.UNSUBACK, version, packet_id, reasons if version == V5 else (), "")


def _answers(kind: int, version: int, packet_id: int, reasons: Sequence[int], told: str) -> bytes:
    properties: Properties = {"reason": told} if told else NONE
    said = write_properties(properties) if version == V5 else b""
    return _packet(kind << 4, packet_id.to_bytes(2, "big"), said, bytes(reasons))


def disconnect(reason: int, told: str = "") -> bytes:
    """The server hangs up, and says why; only to MQTT 5."""
    return _packet(kinds.DISCONNECT << 4, bytes((reason,)), write_properties({"reason": told} if told else NONE))
