"""The table `[mqtt]` of a node's configuration. The text below a field is its meaning in the reference of the docs."""

import hmac
import ipaddress
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from carrycast.core.matching import TopicFilter, parse_topic_filter, topics_cover
from carrycast.core.model import Scalar, check_attributes
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.node.link import Port, Section

NOTHING_GRANTED = (
    "mqtt.anonymous = true lets clients without a user connect and grants them no topic; write [mqtt.anonymous] with "
    'publish = ["TOPIC"] and subscribe = ["TOPIC"]'
)
Topics = Annotated[tuple[str, ...], Meta(max_length=1000)]
Seconds = Annotated[float, Meta(gt=0, le=1e9)]
MAX_PACKET_BYTES = 1 << 20
PACKET_BYTES = 1 << 18
"""Four times a datagram, because long payloads are compressed: enough for texts and tables."""


class AnonymousSection(Section, frozen=True):
    """`[mqtt.anonymous]`: the rights of clients without a user."""

    publish: Topics = ()
    """Topic filters of the topics that they may publish to."""
    subscribe: Topics = ()
    """Topic filters of the topics that they may subscribe to."""
    attributes: dict[str, Scalar] = msgspec.field(default_factory=dict)
    """Their attributes for the access policies of events."""


class UserSection(Section, frozen=True):
    """One `[mqtt.users.NAME]`: a user with a password, who may use all topics by default."""

    password: Annotated[str, Meta(min_length=1, max_length=1024)]
    """The password of the user."""
    publish: Topics = ("#",)
    """Topic filters of the topics that the user may publish to."""
    subscribe: Topics = ("#",)
    """Topic filters of the topics that the user may subscribe to."""
    attributes: dict[str, Scalar] = msgspec.field(default_factory=dict)
    """The attributes of this user for the access policies of events."""


class MqttSection(Section, frozen=True):
    """`[mqtt]`: the listener for MQTT clients. The default limits suit a small device: each client is a socket, each
    session takes room in the store."""

    port: Port = 1883
    """The TCP port for MQTT clients."""
    host: str = "127.0.0.1"
    """The IP address to listen on. One that other machines can reach needs `users` or `anonymous`."""
    users: dict[str, UserSection] = msgspec.field(default_factory=dict)
    """The users that may connect, by name."""
    anonymous: bool | AnonymousSection = False
    """Whether clients without a user may connect where there are users: with the rights of the table, or with `true`
    without any right."""
    level: Literal["accepted", "stored"] | None = None
    """When a publication of QoS 1 or 2 is acknowledged; by default `stored` if the protocol keeps events on disk."""
    lease_s: Seconds | None = None
    """The lease of a message without a Message Expiry Interval; by default without an end."""
    max_clients: Annotated[int, Meta(ge=1, le=65_536)] = 512
    """The most connected clients."""
    max_sessions: Annotated[int, Meta(ge=1, le=65_536)] = 1000
    """The most sessions, including those of disconnected clients."""
    max_subscriptions: Annotated[int, Meta(ge=1, le=10_000)] = 100
    """The most subscriptions of one client."""
    max_packet_bytes: Annotated[int, Meta(ge=1024, le=MAX_PACKET_BYTES)] = PACKET_BYTES
    """The longest packet that a client may send."""
    max_queued: Annotated[int, Meta(ge=1, le=1_000_000)] = 1000
    """The most messages that wait in memory for a connected client that reads slowly."""
    max_retained: Annotated[int, Meta(ge=0, le=1_000_000)] = 10_000
    """The most retained messages. With 0 this node retains none: clients of MQTT 5 are told so, and messages of other
    clients are retained by nodes that do."""
    receive_maximum: Annotated[int, Meta(ge=1, le=65_535)] = 100
    """The most in-flight publications of one client of MQTT 5: with QoS 1 until PUBACK, with QoS 2 until PUBCOMP."""
    session_s: Annotated[float, Meta(ge=0, le=1e9)] = 7 * 86_400.0
    """The longest Session Expiry Interval."""
    connect_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    """How long a new connection may take to send CONNECT, and a packet to arrive completely."""


def read_mqtt_section(table: Mapping[str, object], where: str) -> MqttSection:
    """Read and check the table. Raises UserError if it is wrong."""
    section = parse_settings(dict(table), MqttSection, where, "mqtt")
    try:
        address = ipaddress.ip_address("127.0.0.1" if section.host == "localhost" else section.host)
    except ValueError:
        raise UserError(f"{where}: mqtt.host: {section.host!r} is no IP address of this machine") from None
    if not address.is_loopback and _is_unrestricted(section):
        raise UserError(
            f"{where}: mqtt: anybody who reaches {section.host} could connect; name [mqtt.users.NAME] with a password, "
            f"or [mqtt.anonymous] with the topics that anybody may publish and subscribe to"
        )
    for name, user in section.users.items():
        _check_rights(user, f"{where}: mqtt.users.{name}")
    if isinstance(section.anonymous, AnonymousSection):
        _check_rights(section.anonymous, f"{where}: mqtt.anonymous")
    return section


def _check_rights(granted: UserSection | AnonymousSection, where: str) -> None:
    for key, topics in (("publish", granted.publish), ("subscribe", granted.subscribe)):
        for text in topics:
            try:
                parse_topic_filter(text)
            except ValueError as error:
                raise UserError(f"{where}.{key}: {text!r}: expected {error}") from None
    try:
        check_attributes(granted.attributes)
    except ValueError as error:
        raise UserError(f"{where}.attributes: {error}") from None


def _is_unrestricted(section: MqttSection) -> bool:
    """Whether neither users nor anonymous rights are configured: then every program of this machine has all rights."""
    return not section.users and section.anonymous is False


class AccessRights:
    """The Topic Filters that a client may publish and subscribe to; nothing is granted by default."""

    def __init__(self, granted: UserSection | AnonymousSection | None = None) -> None:
        self.attributes: Mapping[str, Scalar] = {} if granted is None else granted.attributes
        self._publish = [] if granted is None else [parse_topic_filter(text) for text in granted.publish]
        self._subscribe = [] if granted is None else [parse_topic_filter(text) for text in granted.subscribe]

    def may_publish(self, topic: str) -> bool:
        return _is_covered(TopicFilter(tuple(topic.split("/"))), self._publish)

    def may_subscribe(self, topics: TopicFilter) -> bool:
        return _is_covered(topics, self._subscribe)


class _AllRights(AccessRights):
    def may_publish(self, topic: str) -> bool:
        return True

    def may_subscribe(self, topics: TopicFilter) -> bool:
        return True


def _is_covered(topics: TopicFilter, by: list[TopicFilter]) -> bool:
    return any(topics_cover(one, topics) for one in by)


def find_rights(section: MqttSection, user: str | None) -> AccessRights:
    """Return the rights of a user, or of a client without one, in the current configuration."""
    if _is_unrestricted(section):
        return _AllRights()
    if user is not None and section.users:
        return AccessRights(section.users.get(user))
    return AccessRights(section.anonymous if isinstance(section.anonymous, AnonymousSection) else None)


def authenticate(section: MqttSection, user: str | None, password: bytes | None) -> AccessRights | None:
    """Return the rights of a client with these credentials, or None if they are wrong."""
    if not section.users or (user is None and section.anonymous is not False):
        # If no users are configured, the name that a client gives is ignored.
        return find_rights(section, None)
    user_section = section.users.get(user or "")
    # Passwords of unknown users are compared, too, so that the time does not reveal which users exist.
    expected = (user_section.password if user_section is not None else "-").encode()
    same = hmac.compare_digest(expected, password or b"")
    return AccessRights(user_section) if user_section is not None and same else None
