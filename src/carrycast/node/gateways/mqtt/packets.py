"""The packets of MQTT 3.1, 3.1.1 and 5, as values. Version 3.1 is handled like 3.1.1."""

from typing import TypeAlias

from msgspec import Struct

from carrycast.node.gateways.mqtt.properties import NONE, Properties

V311 = 4
V5 = 5


class ApplicationMessage(Struct, gc=False):
    """An Application Message: published by a client, sent to a subscriber, or the Will Message of a client."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE
    is_compressed: bool = False
    """Whether the payload is compressed (DEFLATE), as it is within the network of nodes."""


class ConnectPacket(Struct):
    """CONNECT."""

    version: int
    client_id: str
    clean_start: bool
    keep_alive_s: int
    will: ApplicationMessage | None = None
    user: str | None = None
    password: bytes | None = None
    properties: Properties = NONE
    is_bridge: bool = False
    """Whether the client is a bridge of another broker, as the highest bit of its version says."""


class PublishPacket(Struct):
    """PUBLISH."""

    message: ApplicationMessage
    packet_id: int = 0
    """The Packet Identifier; 0 with QoS 0."""
    dup: bool = False
    """The DUP flag: whether the packet may be a retransmission."""


class AckPacket(Struct):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: int
    packet_id: int
    reason: int = 0


class SubscriptionOptions(Struct):
    """One Topic Filter of a SUBSCRIBE with its Subscription Options [MQTT 5, 3.8.3.1]."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
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
