"""The packets of MQTT 3.1, 3.1.1 and 5, as values. Version 3.1 is read and served as 3.1.1."""

from typing import TypeAlias

from msgspec import Struct

from carrycast.node.gateways.mqtt.properties import NONE, Properties

V311 = 4
V5 = 5


class ApplicationMessage(Struct, gc=False):
    """What is published: by a client, by its will, or to a subscriber."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE
    is_compressed: bool = False
    """Whether the payload is deflated, as it came through the network."""


class ConnectPacket(Struct):
    """A client introduces itself."""

    version: int
    client_id: str
    clean: bool
    keep_alive_s: int
    will: ApplicationMessage | None = None
    user: str | None = None
    password: bytes | None = None
    properties: Properties = NONE
    bridge: bool = False
    """Whether another broker connects, as the highest bit of its version says."""


class PublishPacket(Struct):
    """An application message on its way."""

    message: ApplicationMessage
    packet_id: int = 0
    """0 with QoS 0."""
    again: bool = False


class AckPacket(Struct):
    """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    kind: int
    packet_id: int
    reason: int = 0


class SubscriptionOptions(Struct):
    """One topic filter of a SUBSCRIBE, with its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    as_published: bool = False
    retain_handling: int = 0


class SubscribePacket(Struct):
    """Some topic filters."""

    packet_id: int
    subscriptions: list[SubscriptionOptions]
    properties: Properties = NONE


class UnsubscribePacket(Struct):
    """Some topic filters, as they were subscribed to."""

    packet_id: int
    filters: list[str]


class PingreqPacket(Struct):
    """A client that has nothing else to say."""


class DisconnectPacket(Struct):
    """The client goes, and says why."""

    reason: int = 0
    properties: Properties = NONE


class AuthPacket(Struct):
    """A step of an authentication beyond passwords, of which this server knows none."""


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
"""What a client sends."""
