"""Bytes of a client to packets. Strict: what the standard forbids is an error with the reason that it names."""

from carrycast.node.gateways.mqtt import properties as kinds
from carrycast.node.gateways.mqtt.octets import Cursor, readable
from carrycast.node.gateways.mqtt.packets import (
    V5,
    V311,
    Ack,
    Auth,
    Connect,
    Disconnect,
    Message,
    Packet,
    Ping,
    Publish,
    Subscribe,
    Unsubscribe,
    Wish,
)
from carrycast.node.gateways.mqtt.properties import NONE, Properties, read_properties
from carrycast.node.gateways.mqtt.reasons import PacketError, Reason, malformed, protocol_error

FLAGS = {kinds.PUBREL: 2, kinds.SUBSCRIBE: 2, kinds.UNSUBSCRIBE: 2}
"""The lower half of the first byte, where it is not 0 [MQTT 5, 2.1.3]."""
BRIDGE = 0x80
VERSIONS = {b"MQIsdp": 3, b"MQTT": V311}
"""By the name of the protocol. What differs between 3.1 and 3.1.1 is for clients: 3.1.1 allows more of them."""
MAX_WISHES = 1000
"""Topic filters of one packet. Each costs a subscription, and a packet of 64 KB could name 16,000."""


def decode(head: int, body: bytes, version: int) -> Packet:
    """The packet of a first byte and a body, as a client of that version (0 before it has said) may send it."""
    kind = head >> 4
    if kind == kinds.PUBLISH:
        return _publish(head, body, version)
    check_head(head)
    cursor = Cursor(body)
    if kind in kinds.ACKS:
        return _ack(kind, cursor, version)
    packet: Packet
    if kind == kinds.CONNECT:
        packet = _connect(cursor)
    elif kind == kinds.SUBSCRIBE:
        packet = _subscribe(cursor, version)
    elif kind == kinds.UNSUBSCRIBE:
        packet = _unsubscribe(cursor, version)
    elif kind == kinds.PINGREQ:
        packet = Ping()
    elif kind == kinds.DISCONNECT:
        packet = _disconnect(cursor, version)
    elif kind == kinds.AUTH and version == V5:
        packet = Auth()
        cursor.rest()
    else:
        raise protocol_error(f"a client sends no packet of kind {kind}")
    cursor.done()
    return packet


def check_head(head: int) -> None:
    """Whether a packet may begin so."""
    kind = head >> 4
    if kind != kinds.PUBLISH and head & 15 != FLAGS.get(kind, 0):
        raise malformed("the first byte has flags that no such packet has")


def _publish(head: int, body: bytes, version: int) -> Publish:
    qos = head >> 1 & 3
    again = bool(head & 8)
    if qos == 3:
        raise malformed("there is no QoS 3")
    if again and qos == 0:
        raise malformed("nothing of QoS 0 comes again")
    end = 2 + int.from_bytes(body[:2], "big")
    if len(body) < end + (2 if qos else 0):
        raise malformed("the packet ends too early")
    topic = readable(body[2:end])
    packet_id = 0
    if qos:
        packet_id = _checked_id(int.from_bytes(body[end : end + 2], "big"))
        end += 2
    properties = NONE
    if version == V5:
        cursor = Cursor(body, end)
        properties = read_properties(cursor, kinds.PUBLISH)
        end = cursor.at
        _check_message_properties(properties)
        if "subscription_id" in properties:
            raise protocol_error("a client says no subscription_id of what it publishes")
    if "+" in topic or "#" in topic or (not topic and "topic_alias" not in properties):
        raise PacketError(Reason.TOPIC_INVALID, "a topic has at least one character and no wildcard")
    return Publish(Message(topic, body[end:], qos, bool(head & 1), properties), packet_id, again)


def _checked_id(packet_id: int) -> int:
    if packet_id == 0:
        raise protocol_error("a packet id is not 0")
    return packet_id


def _check_message_properties(properties: Properties) -> None:
    topic = properties.get("response_topic")
    if topic is not None and ("+" in topic or "#" in topic):
        raise protocol_error("a response topic has no wildcard")


def _ack(kind: int, cursor: Cursor, version: int) -> Ack:
    packet_id, reason = _checked_id(cursor.short()), 0
    if version == V5 and cursor.left:
        reason = cursor.byte()
        if cursor.left:
            read_properties(cursor, kind)
    cursor.done()
    return Ack(kind, packet_id, reason)


def _connect(cursor: Cursor) -> Connect:
    version, bridge = _version(cursor)
    flags, keep_alive_s = cursor.byte(), cursor.short()
    has_user, has_password, will_qos = bool(flags & 128), bool(flags & 64), flags >> 3 & 3
    if flags & 1 or will_qos == 3 or (not flags & 4 and flags & 0b111000):
        raise malformed("the flags of CONNECT contradict each other")
    if version == V311 and has_password and not has_user:
        raise malformed("a password without a user")
    properties = read_properties(cursor, kinds.CONNECT) if version == V5 else NONE
    if "authentication_data" in properties and "authentication_method" not in properties:
        raise protocol_error("authentication_data without a method")
    client_id = cursor.text()
    will = _will(cursor, version, will_qos, bool(flags & 32)) if flags & 4 else None
    user = cursor.text() if has_user else None
    password = cursor.binary() if has_password else None
    return Connect(version, client_id, bool(flags & 2), keep_alive_s, will, user, password, properties, bridge)


def _version(cursor: Cursor) -> tuple[int, bool]:
    """The version that is spoken, and whether a broker speaks it. Bridges of mosquitto and others set the highest bit
    of versions 3.1 and 3.1.1; the standard has subscription options for the same purpose since version 5."""
    name, version = cursor.binary(), cursor.byte()
    if name not in VERSIONS:
        raise malformed("this is not MQTT")
    if (name, version) == (b"MQTT", V5):
        return V5, False
    if version & ~BRIDGE != VERSIONS[name]:
        raise PacketError(Reason.UNSUPPORTED_VERSION, "MQTT 3.1, 3.1.1 and 5 are spoken here")
    return V311, bool(version & BRIDGE)


def _will(cursor: Cursor, version: int, qos: int, retain: bool) -> Message:
    properties = read_properties(cursor, kinds.WILL) if version == V5 else NONE
    _check_message_properties(properties)
    topic = cursor.text()
    if not topic or "+" in topic or "#" in topic:
        raise PacketError(Reason.TOPIC_INVALID, "a will's topic has at least one character and no wildcard")
    return Message(topic, cursor.binary(), qos, retain, properties)


def _subscribe(cursor: Cursor, version: int) -> Subscribe:
    packet_id = _checked_id(cursor.short())
    properties = read_properties(cursor, kinds.SUBSCRIBE) if version == V5 else NONE
    wishes: list[Wish] = []
    while cursor.left or not wishes:
        filter, options = cursor.text(), cursor.byte()
        _check_count(len(wishes))
        if options & 3 == 3 or options & (0b11000000 if version == V5 else 0b11111100):
            raise malformed("options of a subscription that do not exist")
        handling = options >> 4 & 3
        if handling == 3:
            raise protocol_error("there is no retain handling 3")
        wishes.append(Wish(filter, options & 3, bool(options & 4), bool(options & 8), handling))
    return Subscribe(packet_id, wishes, properties)


def _unsubscribe(cursor: Cursor, version: int) -> Unsubscribe:
    packet_id = _checked_id(cursor.short())
    if version == V5:
        read_properties(cursor, kinds.UNSUBSCRIBE)
    filters: list[str] = []
    while cursor.left or not filters:
        filters.append(cursor.text())
        _check_count(len(filters) - 1)
    return Unsubscribe(packet_id, filters)


def _check_count(count: int) -> None:
    if count >= MAX_WISHES:
        raise PacketError(Reason.QUOTA_EXCEEDED, f"a packet names at most {MAX_WISHES} topic filters")


def _disconnect(cursor: Cursor, version: int) -> Disconnect:
    if version != V5 or not cursor.left:
        return Disconnect()
    reason = cursor.byte()
    return Disconnect(reason, read_properties(cursor, kinds.DISCONNECT) if cursor.left else NONE)
