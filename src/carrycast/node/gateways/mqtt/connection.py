"""One connection: its bytes become packets, in order and no faster than they are served; what breaks a rule ends it."""

import asyncio
import socket
from collections import deque
from typing import Protocol

from carrycast.node.gateways.mqtt import codec
from carrycast.node.gateways.mqtt import properties as packet_type
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
"""How often a node that is busy is looked at, if a publisher waits for it."""
MAX_UNREAD_BYTES = 1 << 20
"""What may wait for a client that does not read. Then it gets nothing more until it does."""
KERNEL_BYTES = 1 << 18
CHUNK_BYTES = 1 << 16
"""What is gathered for one write."""
MAX_PENDING = 1000
"""Publications of one client that the node has not answered for yet; then no more are read."""
LINGER_S = 1.0
"""How long a client may take to read why it was disconnected."""


class ConnectionListener(Protocol):
    """What a listener is told of its connections."""

    def on_connected(self, connection: "MqttConnection") -> None: ...

    def on_identified(self, connection: "MqttConnection") -> None: ...

    def on_disconnected(self, connection: "MqttConnection") -> None: ...


class MqttConnection(asyncio.Protocol):
    """Between the socket and the dialogue."""

    def __init__(
        self, context: MqttContext, sessions: SessionTable, section: MqttSection, arrivals: ConnectionListener
    ) -> None:
        self._context = context
        self._arrivals = arrivals
        self._connect_s = section.connect_s
        self._loop = asyncio.get_running_loop()
        self._dialogue = PacketHandler(context, sessions, section, self)
        self._frames = PacketSplitter(section.max_packet_bytes, self._check_head, self._dialogue.is_skipped)
        self._received_packets: deque[tuple[int, bytes]] = deque()
        self._broken: PacketError | None = None
        self._transport: asyncio.Transport | None = None
        self._closing = self._blocked = self._waiting = self._working = self._reading_paused = False
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._received_s = self._loop.time()
        """When the last whole packet came in."""
        self._incomplete_since_s: float | None = None
        """Since when part of a packet waits for its rest."""

    # From the socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=MAX_UNREAD_BYTES)
        # The system would let megabytes wait for who does not read.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BYTES)
        self._arrivals.on_connected(self)

    def data_received(self, data: bytes) -> None:
        if self._closing or self._broken is not None:
            return
        now_s = self._loop.time()
        try:
            for frame in self._frames.feed(data):
                self._received_s, self._incomplete_since_s = now_s, None
                self._received_packets.append(frame)
        except PacketError as error:
            self._broken = error
        if self._frames.is_skipping:
            self._received_s = now_s
        if not self._frames.has_incomplete_packet:
            self._incomplete_since_s = None
        elif self._incomplete_since_s is None:
            self._incomplete_since_s = now_s
        self.work()

    def _check_head(self, head: int) -> None:
        """What is not MQTT is not waited for."""
        if self._dialogue.session is None and not self._received_packets and head >> 4 != packet_type.CONNECT:
            raise malformed_packet("a client introduces itself first")
        check_fixed_header(head)

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        # One that is gone cannot be aborted any more.
        self._transport = None
        self._received_packets.clear()
        self._arrivals.on_disconnected(self)
        self._dialogue.leave(with_will=True)

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        session = self._dialogue.session
        if session is not None and not self._closing:
            session.in_flight.send_pending()
        self.work()

    # What came in, in its order.

    def work(self) -> None:
        """Serve what has come in, as far as the client reads its answers and the node can keep up."""
        if self._working or self._closing or self._transport is None:
            return
        self._working = True
        while self._received_packets and self._may_go_on():
            self._serve(*self._received_packets.popleft())
        self._working = False
        self._acknowledge(self._transport)

    def _serve(self, head: int, body: bytes) -> None:
        dialogue = self._dialogue
        on_identified = dialogue.session is not None
        try:
            packet = decode_packet(head, body, dialogue.version)
            if isinstance(body, TruncatedBody):
                dialogue.discard_oversized(packet)
            else:
                dialogue.serve(packet)
        except PacketError as error:
            self._fail(error)
        except Exception as error:
            LOG.error("a packet of an MQTT client failed", exc_info=error)
            self._fail(PacketError(Reason.UNSPECIFIED, "the node failed on this; its log has the reason"))
        if not on_identified and dialogue.session is not None:
            self._arrivals.on_identified(self)

    def _acknowledge(self, transport: asyncio.Transport) -> None:
        """Read on, unless something still waits to be served."""
        if self._closing:
            return
        if self._received_packets:
            self._reading_paused = True
            transport.pause_reading()
        elif self._broken is not None:
            self._fail(self._broken)
        elif self._reading_paused:
            # What the client said meanwhile was not heard, which is no silence of its.
            self._reading_paused = False
            self._received_s = self._loop.time()
            self._incomplete_since_s = self._received_s if self._frames.has_incomplete_packet else None
            transport.resume_reading()

    def _may_go_on(self) -> bool:
        """Whether the next packet may be served now. Who waits is woken: by the socket, by the node, or in a moment."""
        if self._closing or self._blocked or self._dialogue.pending >= MAX_PENDING:
            return False
        if self._received_packets[0][0] >> 4 != packet_type.PUBLISH or not self._context.publisher.busy:
            return True
        if not self._waiting:
            self._waiting = True
            self._loop.call_later(ROOM_S, self._look_again)
        return False

    def _look_again(self) -> None:
        self._waiting = False
        self.work()

    # To the socket.

    @property
    def congested(self) -> bool:
        """Whether the client does not read what it is sent."""
        return self._blocked or self._transport is None or self._closing

    def send(self, data: bytes) -> None:
        """With what else is said in this turn of the loop."""
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
        """The client broke a rule, or may not come in."""
        self._context.node_context.node.recorder.bad_datagram(f"mqtt_{error.reason.name.lower()}", None)
        session = self._dialogue.session
        if session is None:
            self._refuse(error.reason)
        elif error.reason is not Reason.KEEP_ALIVE_TIMEOUT:
            self._context.rejections.log(session.client_id, "a packet", f"{error.description}; the connection ends")
        self.close(error.reason, error.description)

    def _refuse(self, reason: Reason) -> None:
        """A connection that never came to be is answered, if it was one of MQTT at all."""
        version = self._dialogue.version
        if reason is Reason.UNSUPPORTED_VERSION:
            self.send(codec.encode_connack(V311, False, CONNECT_REFUSED_311[reason]))
        elif version == V5:
            self.send(codec.encode_connack(V5, False, reason))
        elif version == V311 and reason in CONNECT_REFUSED_311:
            self.send(codec.encode_connack(V311, False, CONNECT_REFUSED_311[reason]))

    def close(self, reason: Reason, description: str = "") -> None:
        """Hang up; a client of MQTT 5 is told why."""
        if self._closing or self._transport is None:
            return
        if reason is not Reason.SUCCESS and self._dialogue.session is not None and self._dialogue.version == V5:
            self._dialogue.send_disconnect(reason, description)
        self._flush()
        self._closing = True
        self._transport.close()
        # Who does not read is not waited for.
        self._loop.call_later(LINGER_S, self.abort)

    def abort(self) -> None:
        """Hang up without a word."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def check_timeouts(self, now_s: float) -> None:
        """Who is silent for too long is gone, if it was listened to."""
        if self._closing or self._reading_paused:
            return
        if self._incomplete_since_s is not None and now_s - self._incomplete_since_s > self._connect_s:
            self._fail(PacketError(Reason.KEEP_ALIVE_TIMEOUT, "the rest of a packet did not come"))
        elif self._dialogue.session is None:
            if now_s - self._received_s > self._connect_s:
                self._context.node_context.node.recorder.bad_datagram("mqtt_silent", None)
                self.abort()
        elif now_s - self._received_s > self._dialogue.keep_alive_s:
            self._fail(PacketError(Reason.KEEP_ALIVE_TIMEOUT, "nothing was heard for too long"))
