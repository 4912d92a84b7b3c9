"""Packet types, and the properties of MQTT 5: in which packets each is allowed, and its values [MQTT 5, 2.2.2]."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

from carrycast.node.gateways.mqtt.fields import FieldReader, encode_binary, encode_string, encode_variable_byte_integer
from carrycast.node.gateways.mqtt.reason_codes import PacketError, Reason, malformed_packet, protocol_error

Properties: TypeAlias = Mapping[str, Any]
"""By name; `user_property` is a list of pairs, `subscription_identifier` a list of numbers."""
NONE: Properties = {}

MAX_USER_PROPERTIES = 256
"""User Properties of one packet: as many as an event has attributes."""

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK = range(1, 10)
UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = range(10, 16)
WILL = 16
"""The Will Properties, within CONNECT."""
ACKS = (PUBACK, PUBREC, PUBREL, PUBCOMP)


class _DataType(NamedTuple):
    """The functions that decode and encode a property."""

    read: Callable[[FieldReader], Any]
    write: Callable[[Any], bytes]


def _read_string_pair(reader: FieldReader) -> tuple[str, str]:
    return reader.read_string(), reader.read_string()


_BYTE = _DataType(FieldReader.read_byte, lambda value: value.to_bytes(1, "big"))
_SHORT = _DataType(FieldReader.read_two_byte_integer, lambda value: value.to_bytes(2, "big"))
_LONG = _DataType(FieldReader.read_four_byte_integer, lambda value: value.to_bytes(4, "big"))
_VARIABLE = _DataType(FieldReader.read_variable_byte_integer, encode_variable_byte_integer)
_TEXT = _DataType(FieldReader.read_string, encode_string)
_BINARY = _DataType(FieldReader.read_binary, encode_binary)
_PAIR = _DataType(_read_string_pair, lambda value: encode_string(value[0]) + encode_string(value[1]))


class _Property(NamedTuple):
    number: int
    name: str
    kind: _DataType
    where: tuple[int, ...]
    least: int = 0
    most: int | None = None


_ALL = (
    _Property(0x01, "payload_format_indicator", _BYTE, (PUBLISH, WILL), most=1),
    _Property(0x02, "message_expiry_interval_s", _LONG, (PUBLISH, WILL)),
    _Property(0x03, "content_type", _TEXT, (PUBLISH, WILL)),
    _Property(0x08, "response_topic", _TEXT, (PUBLISH, WILL)),
    _Property(0x09, "correlation_data", _BINARY, (PUBLISH, WILL)),
    _Property(0x0B, "subscription_identifier", _VARIABLE, (PUBLISH, SUBSCRIBE), least=1),
    _Property(0x11, "session_expiry_interval_s", _LONG, (CONNECT, CONNACK, DISCONNECT)),
    _Property(0x12, "assigned_client_identifier", _TEXT, (CONNACK,)),
    _Property(0x13, "server_keep_alive_s", _SHORT, (CONNACK,)),
    _Property(0x15, "authentication_method", _TEXT, (CONNECT, CONNACK, AUTH)),
    _Property(0x16, "authentication_data", _BINARY, (CONNECT, CONNACK, AUTH)),
    _Property(0x17, "request_problem_information", _BYTE, (CONNECT,), most=1),
    _Property(0x18, "will_delay_interval_s", _LONG, (WILL,)),
    _Property(0x19, "request_response_information", _BYTE, (CONNECT,), most=1),
    _Property(0x1A, "response_information", _TEXT, (CONNACK,)),
    _Property(0x1C, "server_reference", _TEXT, (CONNACK, DISCONNECT)),
    _Property(0x1F, "reason_string", _TEXT, (CONNACK, *ACKS, SUBACK, UNSUBACK, DISCONNECT, AUTH)),
    _Property(0x21, "receive_maximum", _SHORT, (CONNECT, CONNACK), least=1),
    _Property(0x22, "topic_alias_maximum", _SHORT, (CONNECT, CONNACK)),
    _Property(0x23, "topic_alias", _SHORT, (PUBLISH,)),
    _Property(0x24, "maximum_qos", _BYTE, (CONNACK,), most=1),
    _Property(0x25, "retain_available", _BYTE, (CONNACK,), most=1),
    _Property(0x26, "user_property", _PAIR, tuple(one for one in range(1, 17) if one not in (PINGREQ, PINGRESP))),
    _Property(0x27, "maximum_packet_size", _LONG, (CONNECT, CONNACK), least=1),
    _Property(0x28, "wildcard_subscription_available", _BYTE, (CONNACK,), most=1),
    _Property(0x29, "subscription_identifiers_available", _BYTE, (CONNACK,), most=1),
    _Property(0x2A, "shared_subscription_available", _BYTE, (CONNACK,), most=1),
)
_BY_NUMBER = {one.number: one for one in _ALL}
_BY_NAME = {one.name: one for one in _ALL}
_MANY = frozenset({"user_property", "subscription_identifier"})


def decode_properties(reader: FieldReader, packet: int) -> Properties:
    """Decode the properties of a packet; a PacketError if one is not allowed there, or has a wrong value."""
    length = reader.read_variable_byte_integer()
    if length == 0:
        return NONE
    inner = reader.split_off(length)
    found: dict[str, Any] = {}
    while inner.remaining:
        # Property identifiers are Variable Byte Integers.
        one = _BY_NUMBER.get(inner.read_variable_byte_integer())
        if one is None:
            raise malformed_packet("a property that does not exist")
        if packet not in one.where:
            raise protocol_error(f"{one.name} is not allowed in this packet")
        value = one.kind.read(inner)
        if isinstance(value, int) and (value < one.least or (one.most is not None and value > one.most)):
            raise protocol_error(f"{one.name} must not be {value}")
        if one.name == "user_property":
            _append_user(found, value, packet)
        elif one.name in found:
            raise protocol_error(f"{one.name} is given twice")
        else:
            found[one.name] = [value] if one.name in _MANY else value
    return found


def _append_user(found: dict[str, Any], pair: tuple[str, str], packet: int) -> None:
    pairs = found.setdefault("user_property", [])
    if len(pairs) <= MAX_USER_PROPERTIES:
        pairs.append(pair)
    # Too many in a PUBLISH are rejected later; one more than allowed is kept to show that.
    if len(pairs) > MAX_USER_PROPERTIES and packet != PUBLISH:
        raise PacketError(Reason.QUOTA_EXCEEDED, f"a packet has at most {MAX_USER_PROPERTIES} user properties")


def encode_properties(properties: Properties) -> bytes:
    """Encode properties with their length."""
    if not properties:
        return b"\0"
    parts: list[bytes] = []
    for name, value in properties.items():
        one = _BY_NAME[name]
        number = bytes((one.number,))
        for each in value if name in _MANY else (value,):
            parts += (number, one.kind.write(each))
    body = b"".join(parts)
    return encode_variable_byte_integer(len(body)) + body
