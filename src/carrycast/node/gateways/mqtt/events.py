"""Conversion of Application Messages to events and back.

The attributes of an event are the topic as `topic`, the members of a JSON payload, the User Properties, and, under
names that begin with `mqtt.`, the other properties of the message, so that it leaves the network as it entered. A
payload that is too long for an event is compressed (DEFLATE, RFC 1951).
"""

import base64
import math
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from carrycast.core.model import MAX_ATTRIBUTES, MAX_NAME_LENGTH, MAX_TEXT_LENGTH, Event, Scalar
from carrycast.node.gateways.mqtt.config import MAX_PACKET_BYTES
from carrycast.node.gateways.mqtt.packets import ApplicationMessage
from carrycast.node.gateways.mqtt.topic_filters import TOPIC

QOS = "mqtt.qos"
"""The attribute with the QoS, which every event from an MQTT client has."""
RETAIN = "mqtt.retain"
USER = "mqtt.user"
RESERVED = "mqtt."
VALUE = "value"
"""The attribute of a payload that is a JSON number, string or boolean."""
MAX_JSON_BYTES = 16_384
"""A longer payload is not parsed: its attributes would make the event too long for a datagram."""
MAX_DEPTH = 8
MAX_CONTENT_ATTRIBUTES = MAX_ATTRIBUTES - 32
"""Attributes from the payload and User Properties; the others are for the properties of MQTT."""
MAX_TOPIC_BYTES = 65_535
ENCODING = "mqtt.encoding"
"""The attribute of an event whose payload is compressed."""
DEFLATE = "deflate"

_json_decode = msgspec.json.Decoder().decode
_json_encode = msgspec.json.Encoder().encode
_pairs_decode = msgspec.json.Decoder(list[tuple[str, str]]).decode

_PROPERTY_ATTRIBUTES = {
    "payload_format_indicator": "mqtt.format",
    "content_type": "mqtt.content_type",
    "response_topic": "mqtt.response_topic",
}


def make_event_attributes(message: ApplicationMessage, look_inside: bool = True) -> tuple[dict[str, Scalar], bool]:
    """Return the attributes of the event for a message, and whether all members of its payload are among them.

    A User Property wins over a member of the payload with the same name, and the topic over both. Without
    `look_inside`, neither the payload nor User Properties become attributes.
    """
    attributes: dict[str, Scalar] = {}
    complete = _add_json_payload(message.payload, attributes) if look_inside else False
    properties = message.properties
    pairs = properties.get("user_property", ())
    for name, value in pairs if look_inside else ():
        if _is_free(name, attributes) and len(value) <= MAX_TEXT_LENGTH:
            attributes[name] = _parse_scalar(value)
    attributes[TOPIC] = message.topic
    attributes[QOS] = message.qos
    if message.retain:
        attributes[RETAIN] = True
    for name, attribute in _PROPERTY_ATTRIBUTES.items():
        if name in properties:
            attributes[attribute] = properties[name]
    if "correlation_data" in properties:
        attributes["mqtt.correlation"] = base64.b64encode(properties["correlation_data"]).decode()
    if pairs:
        text = _json_encode(pairs).decode()
        for part, at in enumerate(range(0, len(text), MAX_TEXT_LENGTH)):
            attributes[f"{USER}.{part}"] = text[at : at + MAX_TEXT_LENGTH]
    return attributes, complete


def choose_lease_s(message: ApplicationMessage, otherwise_s: float) -> float:
    """Return the lease of the event: the Message Expiry Interval, at least a second."""
    expiry_s = message.properties.get("message_expiry_interval_s")
    return otherwise_s if expiry_s is None else max(1.0, float(expiry_s))


def make_application_message(event: Event) -> ApplicationMessage | None:
    """Return the message for an event, without its expiry; None if the event has no valid topic."""
    attributes = event.attributes
    topic = attributes.get(TOPIC)
    if not isinstance(topic, str) or not is_topic(topic):
        return None
    properties: dict[str, Any] = {}
    qos = attributes.get(QOS)
    if type(qos) is not int or qos not in (0, 1, 2):
        return _convert_foreign(topic, event, properties)
    for name, attribute in _PROPERTY_ATTRIBUTES.items():
        value = attributes.get(attribute)
        if value in (0, 1) if name == "payload_format_indicator" else isinstance(value, str) and "\0" not in value:
            properties[name] = value
    properties |= _decode_correlation(attributes.get("mqtt.correlation"))
    text = "".join(str(attributes[name]) for name in _user_property_names(attributes))
    if text:
        properties |= _decode_user_properties(text)
    # A payload that claims to be compressed and is not stays as it is.
    is_compressed = attributes.get(ENCODING) == DEFLATE and decompress_payload(event.payload) is not None
    return ApplicationMessage(topic, event.payload, qos, attributes.get(RETAIN) is True, properties, is_compressed)


class MessageCache:
    """Converts events to messages, and keeps the last message for the other subscribers of the same event."""

    def __init__(self) -> None:
        self._last: tuple[Event, ApplicationMessage | None] | None = None

    def convert(self, event: Event) -> ApplicationMessage | None:
        """Return the message for an event."""
        if self._last is None or self._last[0] is not event:
            self._last = event, make_application_message(event)
        return self._last[1]


def is_topic(text: str) -> bool:
    """Whether a message may have this topic."""
    if not text or "+" in text or "#" in text or "\0" in text:
        return False
    return len(text) * 4 <= MAX_TOPIC_BYTES or len(text.encode()) <= MAX_TOPIC_BYTES


def _convert_foreign(topic: str, event: Event, properties: dict[str, Any]) -> ApplicationMessage:
    """Convert an event that is not from MQTT. Its attributes become User Properties, and the payload if it has none."""
    content = {name: value for name, value in event.attributes.items() if name != TOPIC and "\0" not in name}
    payload = event.payload or _json_encode(content)
    properties["user_property"] = [
        (name, _format_value(value)) for name, value in content.items() if "\0" not in str(value)
    ]
    return ApplicationMessage(topic, payload, 2, False, properties)


def _format_value(value: Scalar) -> str:
    return value if isinstance(value, str) else _json_encode(value).decode()


def _parse_scalar(text: str) -> Scalar:
    """Return the value of a User Property: a number or a boolean if its JSON is the same text, else the text."""
    try:
        value = _json_decode(text.encode())
    except (msgspec.DecodeError, RecursionError):
        return text
    if isinstance(value, int | float) and _is_valid_scalar(value) and _format_value(value) == text:
        return value
    return text


def _is_valid_scalar(value: object) -> bool:
    if isinstance(value, bool):
        return True
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and len(value) <= MAX_TEXT_LENGTH


def _is_free(name: str, attributes: Mapping[str, Scalar]) -> bool:
    if not 0 < len(name) <= MAX_NAME_LENGTH or name.startswith(RESERVED):
        return False
    return name in attributes or len(attributes) < MAX_CONTENT_ATTRIBUTES


def _add_json_payload(payload: bytes, attributes: dict[str, Scalar]) -> bool:
    """Add the members of a JSON payload, and return whether all were added. Names of nested objects are joined by
    dots."""
    if not payload or payload[0] not in b'{"-0123456789tf \t\r\n':
        return True
    if len(payload) > MAX_JSON_BYTES:
        return payload[0] not in b"{"
    try:
        value = _json_decode(payload)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return True
    if isinstance(value, dict):
        return _flatten(value, "", attributes, MAX_DEPTH)
    if _is_valid_scalar(value):
        attributes[VALUE] = value
    return True


def _flatten(value: dict[str, object], prefix: str, attributes: dict[str, Scalar], depth: int) -> bool:
    """Add the scalars of an object, and return False if one is left out. Lists and nulls are ignored."""
    complete = True
    for key, inner in value.items():
        name = prefix + key
        if isinstance(inner, dict):
            complete &= depth > 1 and _flatten(inner, name + ".", attributes, depth - 1)
        elif isinstance(inner, str | int | float):
            if _is_valid_scalar(inner) and _is_free(name, attributes):
                attributes[name] = inner
            else:
                complete = False
    return complete


def _decode_correlation(text: Scalar | None) -> dict[str, Any]:
    try:
        return {"correlation_data": base64.b64decode(text, validate=True)} if isinstance(text, str) else {}
    except ValueError:
        return {}


def _user_property_names(attributes: Mapping[str, Scalar]) -> list[str]:
    names: list[str] = []
    while f"{USER}.{len(names)}" in attributes:
        names.append(f"{USER}.{len(names)}")
    return names


def _decode_user_properties(text: str) -> dict[str, Any]:
    """Decode the User Properties of an event of another node. That node may be malicious, so invalid ones are left
    out."""
    try:
        pairs = _pairs_decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return {}
    kept = [pair for pair in pairs if all("\0" not in one and len(one.encode()) <= 65_535 for one in pair)]
    return {"user_property": kept} if kept else {}


def compress_payload(payload: bytes) -> bytes:
    """Compress a payload by DEFLATE."""
    return zlib.compress(payload)


def decompress_payload(payload: bytes) -> bytes | None:
    """Decompress a payload. Return None if it is invalid, or longer than any message may be."""
    inflating = zlib.decompressobj()
    try:
        found = inflating.decompress(payload, MAX_PACKET_BYTES)
    except zlib.error:
        return None
    return found if inflating.eof and not inflating.unused_data else None
