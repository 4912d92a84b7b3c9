"""One network connection of an MQTT client. Packets are handled in order, and read no faster than they are handled."""

import asyncio
import socket
from collections import deque
from typing import Protocol

from carrycast.node.gateways.mqtt import codec, properties as packet_type
from carrycast.node.gateways.mqtt.codec import check_fixed_header, decode_packet
from carrycast.node.gateways.mqtt.config import MqttSection
from carrycast.node.gateways.mqtt.fields import PacketSplitter, TruncatedBody
from carrycast.node.gateways.mqtt.packet_handler import PacketHandler
from carrycast.node.gateways.mqtt.packets import V5, V311
from carrycast.node.gateways.mqtt.reason_codes import CONNECT_REFUSED_311, PacketError, Reason, malformed_packet
from carrycast.node.gateways.mqtt.session import MqttContext
from carrycast.node.gateways.mqtt.sessions import SessionTable
from carrycast.node.recorder import LOG

ROOM_S = 0.005
"""The interval at which a waiting publisher checks whether the node is still busy."""
MAX_UNREAD_BYTES = 1 << 20
"""The most unread bytes of a client; then nothing more is sent until it reads."""
KERNEL_BYTES = 1 << 18
CHUNK_BYTES = 1 << 16
"""The most bytes that are collected for one write."""
MAX_PENDING = 1000
"""The most publications of one client that the node has not acknowledged yet; then no more are read."""
LINGER_S = 1.0
"""How long a client may take to read DISCONNECT."""


class ConnectionListener(Protocol):
    """The gateway, to which connections report."""

    def on_connected(self, connection: "MqttConnection") -> None: ...

    def on_identified(self, connection: "MqttConnection") -> None: ...

    def on_disconnected(self, connection: "MqttConnection") -> None: ...


class MqttConnection(asyncio.Protocol):
    """Connects the socket to the packet handler."""

    def __init__(
        self, context: MqttContext, sessions: SessionTable, section: MqttSection, listener: ConnectionListener
    ) -> None:
        self._context = context
        self._listener = listener
        self._connect_s = section.connect_s
        self._loop = asyncio.get_running_loop()
        self._handler = PacketHandler(context, sessions, section, self)
        self._splitter = PacketSplitter(section.max_packet_bytes, self._check_first_byte, self._handler.may_skip)
        self._received_packets: deque[tuple[int, bytes]] = deque()
        self._broken: PacketError | None = None
        self._transport: asyncio.Transport | None = None
        self._closing = self._blocked = self._waiting = self._working = self._reading_paused = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._received_s = self._loop.time()
        """When the last complete packet arrived."""
        self._incomplete_since_s: float | None = None
        """Since when a packet is incomplete."""

    # From the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)
        # The default send buffer of the system may be megabytes.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        self._listener.on_connected(self)

    def data_received(self, data: bytes) -> None:
        if self._closing or self._broken is not None:
            return
        now_s = self._loop.time()
        try:
            for packet in self._splitter.feed(data):
                self._received_s, self._incomplete_since_s = now_s, None
                self._received_packets.append(packet)
        except PacketError as error:
            self._broken = error
        if self._splitter.is_skipping:
            self._received_s = now_s
        if not self._splitter.has_incomplete_packet:
            self._incomplete_since_s = None
        elif self._incomplete_since_s is None:
            self._incomplete_since_s = now_s
        self.process_packets()

    def _check_first_byte(self, first_byte: int) -> None:
        """Reject a stream that is not MQTT at its first byte."""
        if self._handler.session is None and not self._received_packets and first_byte >> 4 != packet_type.CONNECT:
            raise malformed_packet("the first packet is CONNECT")
        check_fixed_header(first_byte)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        # A lost transport cannot be aborted.
        self._transport = None
        self._received_packets.clear()
        self._listener.on_disconnected(self)
        self._handler.on_disconnected(with_will=True)

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        session = self._handler.session
        if session is not None and not self._closing:
            session.in_flight.send_pending()
        self.process_packets()

    # Received packets, in their order.

    def process_packets(self) -> None:
        """Handle received packets, as far as the client reads and the node can keep up."""
        if self._working or self._closing or self._transport is None:
            return
        self._working = True
        while self._received_packets and self._may_continue():
            self._handle(*self._received_packets.popleft())
        self._working = False
        self._resume_reading(self._transport)

    def _handle(self, first_byte: int, body: bytes) -> None:
        handler = self._handler
        was_identified = handler.session is not None
        try:
            packet = decode_packet(first_byte, body, handler.version)
            if isinstance(body, TruncatedBody):
                handler.discard_oversized(packet)
            else:
                handler.handle(packet)
        except PacketError as error:
            self._fail(error)
        except Exception as error:
            LOG.error("a packet of an MQTT client failed", exc_info=error)
            self._fail(PacketError(Reason.UNSPECIFIED, "the node failed on this; its log has the reason"))
        if not was_identified and handler.session is not None:
            self._listener.on_identified(self)

    def _resume_reading(self, transport: asyncio.Transport) -> None:
        """Continue reading, unless packets are waiting."""
        if self._closing:
            return
        if self._received_packets:
            self._reading_paused = True
            transport.pause_reading()
        elif self._broken is not None:
            self._fail(self._broken)
        elif self._reading_paused:
            # The client was not silent while reading was paused.
            self._reading_paused = False
            self._received_s = self._loop.time()
            self._incomplete_since_s = self._received_s if self._splitter.has_incomplete_packet else None
            transport.resume_reading()

    def _may_continue(self) -> bool:
        """Whether the next packet may be handled now. If not, `process_packets` is called again later."""
        if self._closing or self._blocked or self._handler.pending >= MAX_PENDING:
            return False
        if self._received_packets[0][0] >> 4 != packet_type.PUBLISH or not self._context.publisher.is_busy:
            return True
        if not self._waiting:
            self._waiting = True
            self._loop.call_later(ROOM_S, self._check_again)
        return False

    def _check_again(self) -> None:
        self._waiting = False
        self.process_packets()

    # To the socket.

    @property
    def is_congested(self) -> bool:
        """Whether the client does not read what it is sent."""
        return self._blocked or self._transport is None or self._closing

    def send(self, data: bytes) -> None:
        """Send bytes, in one write with others of this turn of the event loop."""
        if self._closing:
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes >= CHUNK_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._out and self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out.clear()
        self._out_bytes = 0

    def _fail(self, error: PacketError) -> None:
        """Close the connection of a client that violates the protocol or may not connect."""
        self._context.node_context.node.recorder.drop_datagram(f"mqtt_{error.reason.name.lower()}", None)
        session = self._handler.session
        if session is None:
            self._refuse(error.reason)
        elif error.reason is not Reason.KEEP_ALIVE_TIMEOUT:
            self._context.rejections.log(session.client_id, "a packet", f"{error.description}; the connection ends")
        self.close(error.reason, error.description)

    def _refuse(self, reason: Reason) -> None:
        """Send CONNACK with an error, if the client speaks MQTT."""
        version = self._handler.version
        if reason is Reason.UNSUPPORTED_VERSION:
            self.send(codec.encode_connack(V311, False, CONNECT_REFUSED_311[reason]))
        elif version == V5:
            self.send(codec.encode_connack(V5, False, reason))
        elif version == V311 and reason in CONNECT_REFUSED_311:
            self.send(codec.encode_connack(V311, False, CONNECT_REFUSED_311[reason]))

    def close(self, reason: Reason, description: str = "") -> None:
        """Close the connection, in MQTT 5 with DISCONNECT."""
        if self._closing or self._transport is None:
            return
        if reason is not Reason.SUCCESS and self._handler.session is not None and self._handler.version == V5:
            self._handler.send_disconnect(reason, description)
        self._flush()
        self._closing = True
        self._transport.close()
        # Do not wait longer for a client that does not read.
        self._loop.call_later(LINGER_S, self.abort)

    def abort(self) -> None:
        """Close the connection at once."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def check_timeouts(self, now_s: float) -> None:
        """Close the connection if the client is silent for too long (Keep Alive)."""
        if self._closing or self._reading_paused:
            return
        if self._incomplete_since_s is not None and now_s - self._incomplete_since_s > self._connect_s:
            self._fail(PacketError(Reason.KEEP_ALIVE_TIMEOUT, "the rest of a packet did not come"))
        elif self._handler.session is None:
            if now_s - self._received_s > self._connect_s:
                self._context.node_context.node.recorder.drop_datagram("mqtt_silent", None)
                self.abort()
        elif now_s - self._received_s > self._handler.keep_alive_s:
            self._fail(PacketError(Reason.KEEP_ALIVE_TIMEOUT, "nothing was heard for too long"))
