"""The packet handler of one connection: responds to the packets of a client, and sends messages to it."""

import math
from typing import Any, Protocol

from msgspec.structs import replace

from carrycast.errors import UserError, WorkError
from carrycast.node.gateways.mqtt import codec, properties as packet_type
from carrycast.node.gateways.mqtt.config import MqttSection
from carrycast.node.gateways.mqtt.packets import (
    V5,
    AckPacket,
    ApplicationMessage,
    ConnectPacket,
    DisconnectPacket,
    Packet,
    PingreqPacket,
    PublishPacket,
    SubscribePacket,
    SubscriptionOptions,
    UnsubscribePacket,
)
from carrycast.node.gateways.mqtt.reason_codes import SUBSCRIPTION_FAILED_311, PacketError, Reason, protocol_error
from carrycast.node.gateways.mqtt.session import MqttContext, MqttSession
from carrycast.node.gateways.mqtt.sessions import ClientConnection, SessionTable
from carrycast.node.gateways.mqtt.sys_statistics import is_sys_topic
from carrycast.node.gateways.mqtt.topic_filters import SHARE, combine_conditions

TOPIC_ALIASES = 64
"""The Topic Alias Maximum of this server, and the most aliases that it uses towards a client."""
CONDITION = "filter"
"""The User Property of SUBSCRIBE that holds a condition."""
MAX_FOUR_BYTE_INTEGER = 0xFFFFFFFF
PERMANENT = (Reason.NOT_AUTHORIZED, Reason.IMPLEMENTATION_ERROR, Reason.PACKET_TOO_LARGE)
"""Reasons for which a publication would be rejected again."""


class PacketOutput(ClientConnection, Protocol):
    """The connection, as its packet handler uses it."""

    @property
    def is_congested(self) -> bool:
        """Whether the client does not read what it is sent."""

    def send(self, data: bytes) -> None: ...

    def process_packets(self) -> None:
        """Continue with the received packets."""


class PacketHandler:
    """Handles the packets of one connection. It is the `PacketSender` of the session's in-flight messages."""

    def __init__(self, context: MqttContext, sessions: SessionTable, section: MqttSection, out: PacketOutput) -> None:
        self._context = context
        self._sessions = sessions
        self._section = section
        self._out = out
        self.version = 0
        """The protocol version; 0 before CONNECT."""
        self.session: MqttSession | None = None
        self.keep_alive_s = math.inf
        """The longest time without a packet of the client: 1.5 times its Keep Alive."""
        self.pending = 0
        """Publications that the node has not acknowledged yet."""
        self._in_flight: set[int] = set()
        """Packet Identifiers of publications of QoS 1 and 2 over this connection, until PUBACK, PUBCOMP or a PUBREC
        with an error: as many as count against the server's Receive Maximum [MQTT 5, 4.9]."""
        self._bridge = False
        self._aliases: dict[int, str] = {}
        self._sent_aliases: dict[str, int] = {}
        self._limits: packet_type.Properties = packet_type.NONE

    def handle(self, packet: Packet) -> None:
        """Handle a packet. A PacketError ends the connection."""
        session = self.session
        if session is None:
            if not isinstance(packet, ConnectPacket):
                raise protocol_error("the first packet is CONNECT")
            self._connect(packet)
        elif isinstance(packet, PublishPacket):
            self._publish(session, packet)
        elif isinstance(packet, AckPacket):
            self._on_acknowledgement(session, packet)
        elif isinstance(packet, SubscribePacket):
            self._subscribe(session, packet)
        elif isinstance(packet, UnsubscribePacket):
            reasons = [session.unsubscribe(text) for text in packet.filters]
            session.save()
            self._out.send(codec.encode_unsuback(self.version, packet.packet_id, reasons))
        elif isinstance(packet, PingreqPacket):
            self._out.send(codec.PINGRESP_PACKET)
        elif isinstance(packet, DisconnectPacket):
            self._disconnect(session, packet)
        else:
            raise protocol_error("CONNECT is sent once")

    def may_skip(self, first_byte: int) -> bool:
        """Whether an oversized packet with this first byte is discarded without closing the connection: a message of a
        bridge, which would reconnect and send it again for ever."""
        return self._bridge and self.session is not None and first_byte >> 4 == packet_type.PUBLISH

    def discard_oversized(self, packet: Packet) -> None:
        """Discard an oversized message of a bridge, of which only the beginning was kept."""
        assert isinstance(packet, PublishPacket)
        assert self.session is not None
        self._context.node_context.node.note_drop("mqtt_packet_too_large")
        if packet.message.qos:
            self.pending += 1
            self._in_flight.add(packet.packet_id)
            self._acknowledge_publication(self.session, packet, Reason.PACKET_TOO_LARGE)
        else:
            self._is_discarded(self.session, packet.message.topic, Reason.PACKET_TOO_LARGE)

    def on_disconnected(self, with_will: bool) -> None:
        """End the session's use of this connection."""
        if self.session is not None:
            self._sessions.disconnect(self.session, self._out, with_will)

    def _connect(self, packet: ConnectPacket) -> None:
        self.version, self._bridge = packet.version, packet.is_bridge
        admission = self._sessions.admit(packet, self._out)
        session = self.session = admission.session
        self._limits = packet.properties
        if packet.keep_alive_s:
            # [MQTT-3.1.2-22]
            self.keep_alive_s = packet.keep_alive_s * 1.5
        connack: dict[str, Any] = {
            "receive_maximum": self._section.receive_maximum,
            "maximum_packet_size": self._section.max_packet_bytes,
            "topic_alias_maximum": TOPIC_ALIASES,
        }
        if packet.properties.get("session_expiry_interval_s", 0) != session.expiry_s:
            connack["session_expiry_interval_s"] = int(session.expiry_s)
        if admission.is_id_assigned:
            connack["assigned_client_identifier"] = session.client_id
        if self._section.max_retained == 0:
            connack["retain_available"] = 0
        self._out.send(codec.encode_connack(self.version, admission.session_present, Reason.SUCCESS, connack))
        session.in_flight.connect(self)
        session.attach()

    def _disconnect(self, session: MqttSession, packet: DisconnectPacket) -> None:
        expiry_s = packet.properties.get("session_expiry_interval_s")
        if expiry_s is not None:
            if expiry_s and not session.expiry_s:
                raise protocol_error("a session that was to end with its connection cannot go on")
            session.expiry_s = min(float(expiry_s), self._section.session_s)
        self.on_disconnected(with_will=packet.reason != Reason.SUCCESS)
        self._out.close(Reason.SUCCESS)

    # Publications of the client.

    def _publish(self, session: MqttSession, packet: PublishPacket) -> None:
        message, packet_id = packet.message, packet.packet_id
        self._resolve_alias(message)
        # A client of MQTT 3.1.1 cannot know; its message is published, and retained by nodes that retain messages.
        if message.retain and self._section.max_retained == 0 and self.version == V5:
            raise PacketError(Reason.RETAIN_NOT_SUPPORTED, "nothing is retained here")
        kind = packet_type.PUBACK if message.qos == 1 else packet_type.PUBREC
        if message.qos:
            self._in_flight.add(packet_id)
            if self.version == V5 and len(self._in_flight) > self._section.receive_maximum:
                raise PacketError(
                    Reason.RECEIVE_MAXIMUM_EXCEEDED, "more in-flight publications than the Receive Maximum"
                )
        if message.qos == 2 and packet_id in session.received:
            # The first one may not be on disk yet.
            self._ack_on_disk(kind, packet_id)
            return
        if message.qos:
            self.pending += 1

        answers: list[Reason] = []

        def on_published(reason: Reason) -> None:
            answers.append(reason)
            if message.qos:
                self._acknowledge_publication(session, packet, reason)

        self._context.publisher.publish(session.client_id, session.rights, message, on_published)
        if message.qos == 2 and (not answers or answers[0] < Reason.UNSPECIFIED):
            # In one commit with the event: otherwise a crash could lose it or publish it twice.
            session.add_received(packet_id)

    def _acknowledge_publication(self, session: MqttSession, packet: PublishPacket, reason: Reason) -> None:
        self.pending -= 1
        kind = packet_type.PUBACK if packet.message.qos == 1 else packet_type.PUBREC
        if reason >= Reason.UNSPECIFIED:
            if kind == packet_type.PUBREC:
                session.release(packet.packet_id)
            if self.version != V5:
                # MQTT 3.1.1 has no reason codes [MQTT-3.3.5-2], and an acknowledgement means that it is kept.
                if not self._is_discarded(session, packet.message.topic, reason):
                    self._out.close(reason)
                    return
                reason = Reason.SUCCESS
        self.send_ack(kind, packet.packet_id, reason)
        self._out.process_packets()

    def _is_discarded(self, session: MqttSession, topic: str, reason: Reason) -> bool:
        """Whether a publication that is permanently rejected is acknowledged all the same: a bridge's own status under
        `$SYS`, and messages of a bridge, which would send them again for ever and so block all messages behind them."""
        if reason not in PERMANENT or not (self._bridge or is_sys_topic(topic)):
            return False
        if not is_sys_topic(topic):
            why = f"{reason.name.lower()}; it is discarded, so that later messages are not blocked"
            self._context.rejections.log(session.client_id, f"a message to {topic[:100]!r}", why)
            self._context.node_context.node.note_drop("mqtt_bridge_discarded")
        return True

    def _resolve_alias(self, message: ApplicationMessage) -> None:
        alias = message.properties.get("topic_alias")
        if alias is None:
            return
        if not 0 < alias <= TOPIC_ALIASES:
            raise PacketError(Reason.TOPIC_ALIAS_INVALID, f"topic aliases are 1 to {TOPIC_ALIASES}")
        if message.topic:
            self._aliases[alias] = message.topic
        elif alias in self._aliases:
            message.topic = self._aliases[alias]
        else:
            raise protocol_error("an unknown topic alias")

    def _on_acknowledgement(self, session: MqttSession, packet: AckPacket) -> None:
        if packet.kind != packet_type.PUBREL:
            session.in_flight.on_ack(packet)
            return
        was_known = session.release(packet.packet_id)
        reason = Reason.SUCCESS if was_known else Reason.PACKET_ID_NOT_FOUND
        if was_known and session.is_persistent:
            # After PUBCOMP the identifier may be used again; after a restart that must not look like a duplicate.
            self._ack_on_disk(packet_type.PUBCOMP, packet.packet_id)
        else:
            self.send_ack(packet_type.PUBCOMP, packet.packet_id, reason)

    def _ack_on_disk(self, kind: int, packet_id: int) -> None:
        """Acknowledge when all writes so far are on disk. If that fails the client gets no answer, and sends again."""

        def on_synced(lost: WorkError | None) -> None:
            if lost is None:
                self.send_ack(kind, packet_id)

        self._context.node_context.group_commit.when_synced(on_synced)

    # Subscriptions of the client.

    def _subscribe(self, session: MqttSession, packet: SubscribePacket) -> None:
        pairs = packet.properties.get("user_property", ())
        conditions = [value for name, value in pairs if name == CONDITION]
        ids = packet.properties.get("subscription_identifier")
        reasons: list[int] = []
        description = ""
        for options in packet.subscriptions:
            try:
                reasons.append(self._subscribe_one(session, options, conditions, ids[0] if ids else None))
            except PacketError as error:
                if error.reason is Reason.PROTOCOL_ERROR:
                    raise
                description = description or f"{options.filter[:100]}: {error.description}"[:1000]
                self._context.rejections.log(
                    session.client_id, f"the subscription {options.filter[:100]!r}", error.description
                )
                self._context.node_context.node.note_drop("mqtt_subscription")
                reasons.append(error.reason if self.version == V5 else SUBSCRIPTION_FAILED_311)
        if not self._limits.get("request_problem_information", 1) or "maximum_packet_size" in self._limits:
            description = ""
        session.save()
        self._out.send(codec.encode_suback(self.version, packet.packet_id, reasons, description))
        session.in_flight.send_pending()

    def _subscribe_one(
        self, session: MqttSession, options: SubscriptionOptions, conditions: list[str], subscription_id: int | None
    ) -> int:
        if self._bridge:
            # No Local and Retain As Published, as bridges need them [MQTT 5, 3.8.3.1].
            options = replace(options, no_local=not options.filter.startswith(SHARE), retain_as_published=True)
        try:
            return session.subscribe(options, combine_conditions(conditions), subscription_id)
        except (UserError, WorkError) as error:
            raise PacketError(Reason.QUOTA_EXCEEDED, str(error)) from None

    # For the in-flight messages.

    @property
    def receive_maximum(self) -> int:
        """The Receive Maximum of the client; 0 while it does not read."""
        return 0 if self._out.is_congested else int(self._limits.get("receive_maximum", 65_535))

    def send_message(self, message: ApplicationMessage, until_s: float, packet_id: int, dup: bool) -> bool:
        """Send a message. Return False if it exceeds the client's Maximum Packet Size."""
        if self.version == V5:
            message = self._with_properties(message, until_s)
        data = codec.encode_publish(self.version, message, packet_id, dup)
        if not self._fits(data):
            # The client does not get this packet, and so not its Topic Alias.
            self._sent_aliases.pop(message.topic, None)
            return False
        self._out.send(data)
        return True

    def send_disconnect(self, reason: Reason, description: str) -> None:
        """Send DISCONNECT, with a Reason String unless that is too large for the client [MQTT-3.14.2-3]."""
        data = codec.encode_disconnect(reason, description)
        self._out.send(data if self._fits(data) else codec.encode_disconnect(reason))

    def _fits(self, data: bytes) -> bool:
        max_bytes: int = self._limits.get("maximum_packet_size", MAX_FOUR_BYTE_INTEGER)
        return len(data) <= max_bytes

    def send_ack(self, kind: int, packet_id: int, reason: int = 0) -> None:
        """Send PUBACK, PUBREC, PUBREL or PUBCOMP."""
        if kind in (packet_type.PUBACK, packet_type.PUBCOMP) or (
            kind == packet_type.PUBREC and reason >= Reason.UNSPECIFIED
        ):
            self._in_flight.discard(packet_id)
        self._out.send(codec.encode_ack(self.version, kind, packet_id, reason))

    def _with_properties(self, message: ApplicationMessage, until_s: float) -> ApplicationMessage:
        """Return the message with the rest of its Message Expiry Interval, and with a Topic Alias."""
        properties = dict(message.properties)
        if until_s != math.inf:
            left_s = math.ceil(until_s - self._context.node_context.node.recorder.time_s())
            properties["message_expiry_interval_s"] = min(MAX_FOUR_BYTE_INTEGER, max(0, left_s))
        topic, most = message.topic, min(TOPIC_ALIASES, self._limits.get("topic_alias_maximum", 0))
        alias = self._sent_aliases.get(topic)
        if alias is not None:
            properties["topic_alias"], topic = alias, ""
        elif len(self._sent_aliases) < most:
            properties["topic_alias"] = self._sent_aliases[topic] = len(self._sent_aliases) + 1
        return replace(message, topic=topic, properties=properties)
