"""The packet codec: decodes the packets of clients and encodes the packets of the server.

Decoding is strict: a packet that the standard forbids raises `PacketError` with the reason code of the standard.
"""

from collections.abc import Sequence

from carrycast.node.gateways.mqtt import properties as packet_type
from carrycast.node.gateways.mqtt.events import decompress_payload
from carrycast.node.gateways.mqtt.fields import FieldReader, decode_string, encode_variable_byte_integer
from carrycast.node.gateways.mqtt.packets import (
    V5,
    V311,
    AckPacket,
    ApplicationMessage,
    AuthPacket,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingreqPacket,
    PublishPacket,
    SubscribePacket,
    SubscriptionOptions,
    UnsubscribePacket,
)
from carrycast.node.gateways.mqtt.properties import NONE, Properties, decode_properties, encode_properties
from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason, malformed_packet, protocol_error

FLAGS = {packet_type.PUBREL: 2, packet_type.SUBSCRIBE: 2, packet_type.UNSUBSCRIBE: 2}
"""The flags of the fixed header, of packets where they are not 0 [MQTT 5, 2.1.3]."""
BRIDGE = 0x80
VERSIONS = {b"MQIsdp": 3, b"MQTT": V311}
"""Versions by protocol name. A server of 3.1.1 accepts all that 3.1 allows."""
MAX_TOPIC_FILTERS = 1000
"""The most Topic Filters of one packet. Each makes a subscription, and a packet of 64 KB could have 16,000."""

PINGRESP_PACKET = bytes((packet_type.PINGRESP << 4, 0))


def decode_packet(first_byte: int, body: bytes, version: int) -> Packet:
    """Decode a packet of a client from its first byte and its body; `version` is 0 before CONNECT."""
    kind = first_byte >> 4
    if kind == packet_type.PUBLISH:
        return _decode_publish(first_byte, body, version)
    check_fixed_header(first_byte)
    reader = FieldReader(body)
    if kind in packet_type.ACKS:
        return _decode_ack(kind, reader, version)
    packet: Packet
    if kind == packet_type.CONNECT:
        packet = _decode_connect(reader)
    elif kind == packet_type.SUBSCRIBE:
        packet = _decode_subscribe(reader, version)
    elif kind == packet_type.UNSUBSCRIBE:
        packet = _decode_unsubscribe(reader, version)
    elif kind == packet_type.PINGREQ:
        packet = PingreqPacket()
    elif kind == packet_type.DISCONNECT:
        packet = _decode_disconnect(reader, version)
    elif kind == packet_type.AUTH and version == V5:
        packet = AuthPacket()
        reader.read_rest()
    else:
        raise protocol_error(f"a client sends no packet of kind {kind}")
    reader.check_end()
    return packet


def check_fixed_header(first_byte: int) -> None:
    """Check the flags of the fixed header."""
    kind = first_byte >> 4
    if kind != packet_type.PUBLISH and first_byte & 15 != FLAGS.get(kind, 0):
        raise malformed_packet("the first byte has flags that no such packet has")


def _decode_publish(first_byte: int, body: bytes, version: int) -> PublishPacket:
    qos = first_byte >> 1 & 3
    dup = bool(first_byte & 8)
    if qos == 3:
        raise malformed_packet("there is no QoS 3")
    if dup and qos == 0:
        raise malformed_packet("DUP is set with QoS 0")
    end = 2 + int.from_bytes(body[:2], "big")
    if len(body) < end + (2 if qos else 0):
        raise malformed_packet("the packet ends too early")
    topic = decode_string(body[2:end])
    packet_id = 0
    if qos:
        packet_id = _check_packet_id(int.from_bytes(body[end : end + 2], "big"))
        end += 2
    properties = NONE
    if version == V5:
        reader = FieldReader(body, end)
        properties = decode_properties(reader, packet_type.PUBLISH)
        end = reader.at
        _check_message_properties(properties)
        if "subscription_identifier" in properties:
            raise protocol_error("a client sends no Subscription Identifier in PUBLISH")
    if "+" in topic or "#" in topic or (not topic and "topic_alias" not in properties):
        raise PacketError(Reason.TOPIC_INVALID, "a topic has at least one character and no wildcard")
    return PublishPacket(ApplicationMessage(topic, body[end:], qos, bool(first_byte & 1), properties), packet_id, dup)


def _check_packet_id(packet_id: int) -> int:
    if packet_id == 0:
        raise protocol_error("a packet id is not 0")
    return packet_id


def _check_message_properties(properties: Properties) -> None:
    topic = properties.get("response_topic")
    if topic is not None and ("+" in topic or "#" in topic):
        raise protocol_error("a response topic has no wildcard")


def _decode_ack(kind: int, reader: FieldReader, version: int) -> AckPacket:
    packet_id, reason = _check_packet_id(reader.read_two_byte_integer()), 0
    if version == V5 and reader.remaining:
        reason = reader.read_byte()
        if reader.remaining:
            decode_properties(reader, kind)
    reader.check_end()
    return AckPacket(kind, packet_id, reason)


def _decode_connect(reader: FieldReader) -> ConnectPacket:
    version, bridge = _decode_version(reader)
    flags, keep_alive_s = reader.read_byte(), reader.read_two_byte_integer()
    has_user, has_password, will_qos = bool(flags & 128), bool(flags & 64), flags >> 3 & 3
    if flags & 1 or will_qos == 3 or (not flags & 4 and flags & 0b111000):
        raise malformed_packet("the flags of CONNECT contradict each other")
    if version == V311 and has_password and not has_user:
        raise malformed_packet("a password without a user")
    properties = decode_properties(reader, packet_type.CONNECT) if version == V5 else NONE
    if "authentication_data" in properties and "authentication_method" not in properties:
        raise protocol_error("authentication_data without a method")
    client_id = reader.read_string()
    will = _decode_will(reader, version, will_qos, bool(flags & 32)) if flags & 4 else None
    user = reader.read_string() if has_user else None
    password = reader.read_binary() if has_password else None
    return ConnectPacket(version, client_id, bool(flags & 2), keep_alive_s, will, user, password, properties, bridge)


def _decode_version(reader: FieldReader) -> tuple[int, bool]:
    """Return the protocol version, and whether the client is a bridge. Bridges of mosquitto and others set the highest
    bit of versions 3.1 and 3.1.1; MQTT 5 has Subscription Options for the same purpose."""
    name, version = reader.read_binary(), reader.read_byte()
    if name not in VERSIONS:
        raise malformed_packet("this is not MQTT")
    if (name, version) == (b"MQTT", V5):
        return V5, False
    if version & ~BRIDGE != VERSIONS[name]:
        raise PacketError(Reason.UNSUPPORTED_VERSION, "MQTT 3.1, 3.1.1 and 5 are spoken here")
    return V311, bool(version & BRIDGE)


def _decode_will(reader: FieldReader, version: int, qos: int, retain: bool) -> ApplicationMessage:
    properties = decode_properties(reader, packet_type.WILL) if version == V5 else NONE
    _check_message_properties(properties)
    topic = reader.read_string()
    if not topic or "+" in topic or "#" in topic:
        raise PacketError(Reason.TOPIC_INVALID, "a will's topic has at least one character and no wildcard")
    return ApplicationMessage(topic, reader.read_binary(), qos, retain, properties)


def _decode_subscribe(reader: FieldReader, version: int) -> SubscribePacket:
    packet_id = _check_packet_id(reader.read_two_byte_integer())
    properties = decode_properties(reader, packet_type.SUBSCRIBE) if version == V5 else NONE
    subscriptions: list[SubscriptionOptions] = []
    while reader.remaining or not subscriptions:
        filter, options = reader.read_string(), reader.read_byte()
        _check_count(len(subscriptions))
        if options & 3 == 3 or options & (0b11000000 if version == V5 else 0b11111100):
            raise malformed_packet("options of a subscription that do not exist")
        handling = options >> 4 & 3
        if handling == 3:
            raise protocol_error("there is no retain handling 3")
        subscriptions.append(SubscriptionOptions(filter, options & 3, bool(options & 4), bool(options & 8), handling))
    return SubscribePacket(packet_id, subscriptions, properties)


def _decode_unsubscribe(reader: FieldReader, version: int) -> UnsubscribePacket:
    packet_id = _check_packet_id(reader.read_two_byte_integer())
    if version == V5:
        decode_properties(reader, packet_type.UNSUBSCRIBE)
    filters: list[str] = []
    while reader.remaining or not filters:
        filters.append(reader.read_string())
        _check_count(len(filters) - 1)
    return UnsubscribePacket(packet_id, filters)


def _check_count(count: int) -> None:
    if count >= MAX_TOPIC_FILTERS:
        raise PacketError(Reason.QUOTA_EXCEEDED, f"a packet names at most {MAX_TOPIC_FILTERS} topic filters")


def _decode_disconnect(reader: FieldReader, version: int) -> DisconnectPacket:
    if version != V5 or not reader.remaining:
        return DisconnectPacket()
    reason = reader.read_byte()
    return DisconnectPacket(reason, decode_properties(reader, packet_type.DISCONNECT) if reader.remaining else NONE)


def _encode_packet(first_byte: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    return bytes((first_byte,)) + encode_variable_byte_integer(len(body)) + body


def encode_connack(version: int, session_present: bool, reason: int, properties: Properties = NONE) -> bytes:
    """Encode CONNACK."""
    header = bytes((session_present, reason))
    return _encode_packet(packet_type.CONNACK << 4, header, encode_properties(properties) if version == V5 else b"")


def encode_publish(version: int, message: ApplicationMessage, packet_id: int = 0, dup: bool = False) -> bytes:
    """Encode PUBLISH."""
    first_byte = packet_type.PUBLISH << 4 | dup << 3 | message.qos << 1 | message.retain
    topic = message.topic.encode()
    payload = decompress_payload(message.payload) if message.is_compressed else message.payload
    return _encode_packet(
        first_byte,
        len(topic).to_bytes(2, "big"),
        topic,
        packet_id.to_bytes(2, "big") if message.qos else b"",
        encode_properties(message.properties) if version == V5 else b"",
        payload or b"",
    )


def encode_ack(version: int, kind: int, packet_id: int, reason: int = 0) -> bytes:
    """Encode PUBACK, PUBREC, PUBREL or PUBCOMP. The reason code of success is left out."""
    first_byte = kind << 4 | (2 if kind == packet_type.PUBREL else 0)
    id = packet_id.to_bytes(2, "big")
    if version == V5 and reason:
        return bytes((first_byte, 3)) + id + bytes((reason,))
    return bytes((first_byte, 2)) + id


def encode_suback(version: int, packet_id: int, reasons: Sequence[int], description: str = "") -> bytes:
    """Encode SUBACK: for each Topic Filter the granted QoS, or the reason code."""
    return _encode_reasons(packet_type.SUBACK, version, packet_id, reasons, description)


def encode_unsuback(version: int, packet_id: int, reasons: Sequence[int]) -> bytes:
    """Encode UNSUBACK; in MQTT 3.1.1 without reason codes."""
    return _encode_reasons(packet_type.UNSUBACK, version, packet_id, reasons if version == V5 else (), "")


def _encode_reasons(kind: int, version: int, packet_id: int, reasons: Sequence[int], description: str) -> bytes:
    properties: Properties = {"reason_string": description} if description else NONE
    encoded = encode_properties(properties) if version == V5 else b""
    return _encode_packet(kind << 4, packet_id.to_bytes(2, "big"), encoded, bytes(reasons))


def encode_disconnect(reason: int, description: str = "") -> bytes:
    """Encode DISCONNECT of the server, which only MQTT 5 has."""
    return _encode_packet(
        packet_type.DISCONNECT << 4,
        bytes((reason,)),
        encode_properties({"reason_string": description} if description else NONE),
    )
