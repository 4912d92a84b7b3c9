"""The packets of MQTT 3.1, 3.1.1 and 5, as values. Version 3.1 is read and served as 3.1.1."""

from typing import TypeAlias

from msgspec import Struct

from carrycast.node.gateways.mqtt.properties import NONE, Properties

V311 = 4
V5 = 5


class ApplicationMessage(Struct, gc=False):
    """An Application Message: published by a client, as its will message, or to a subscriber."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE
    is_compressed: bool = False
    """Whether the payload is compressed (DEFLATE), as it travels through the network."""


class ConnectPacket(Struct):
    """CONNECT."""

    version: int
    client_id: str
    clean: bool
    keep_alive_s: int
    will: ApplicationMessage | None = None
    user: str | None = None
    password: bytes | None = None
    properties: Properties = NONE
    bridge: bool = False
    """Whether the client is a bridge of another broker, as the highest bit of its version says."""


class PublishPacket(Struct):
    """PUBLISH."""

    message: ApplicationMessage
    packet_id: int = 0
    """The Packet Identifier; 0 with QoS 0."""
    again: bool = False


class AckPacket(Struct):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: int
    packet_id: int
    reason: int = 0


class SubscriptionOptions(Struct):
    """One topic filter of a SUBSCRIBE with its Subscription Options [MQTT 5, 3.8.3.1]."""

    filter: str
    qos: int = 0
    no_local: bool = False
    as_published: bool = False
    retain_handling: int = 0


class SubscribePacket(Struct):
    """SUBSCRIBE."""

    packet_id: int
    subscriptions: list[SubscriptionOptions]
    properties: Properties = NONE


class UnsubscribePacket(Struct):
    """UNSUBSCRIBE."""

    packet_id: int
    filters: list[str]


class PingreqPacket(Struct):
    """PINGREQ."""


class DisconnectPacket(Struct):
    """DISCONNECT of a client."""

    reason: int = 0
    properties: Properties = NONE


class AuthPacket(Struct):
    """AUTH; this server supports no enhanced authentication."""


Packet: TypeAlias = (
    ConnectPacket
    | PublishPacket
    | AckPacket
    | SubscribePacket
    | UnsubscribePacket
    | PingreqPacket
    | DisconnectPacket
    | AuthPacket
)
"""The packets that a client sends."""
