"""A reliable, ordered channel to each peer over a router or links that lose, duplicate and reorder packets.

The sender numbers packets per peer, fragments large messages, and retransmits until the receiver's selective
acknowledgement (RFC 2018); the receiver's reorder buffer delivers each message once and in order. A message that is not
acknowledged is given up with a reason; it may still have arrived. Every packet carries the lowest number that its
sender still retransmits, so that the receiver does not wait for packets that were given up.

A protocol defines its packets and acknowledgements with its own tags:

    class Packet(ChannelPacket, frozen=True, gc=False, kw_only=True, tag=7): ...
    class Ack(ChannelAck, frozen=True, gc=False, tag=8): ...
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.model import EventId, Failure, NodeId
from carrycast.core.parts.fragments import MAX_FRAGMENTS, Assembly, split
from carrycast.core.parts.outbox import MessagePolicy, PathSelector, PeerOutbox, PeerPath, Undelivered
from carrycast.core.protocol import Fact, Port, Token
from carrycast.core.wire import DecodeError, Flaw, Message, Parcel, ParcelMessage, Traffic, classify

WINDOW = 256
"""Packets in flight from one node to another; packets further ahead are dropped."""

MAX_PEERS = 1024
"""Peers remembered at a time; the least recently active one is evicted."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

Decode: TypeAlias = Callable[[bytes], Message]
"""Decodes a reassembled message: `host.decoder` of the message types that the channel carries."""


class ChannelPacket(ParcelMessage, frozen=True, gc=False, kw_only=True):
    """The base of a protocol's channel packets: a fragment of an encoded message, as a parcel with its age."""

    session: Count
    """The sender's incarnation: sequence numbers restart with it."""
    peer: Count | None
    """The receiver's incarnation, as far as the sender knows it."""
    number: Count
    first: Count
    """The lowest sequence number that the sender still retransmits."""
    index: Annotated[int, Meta(ge=0, lt=MAX_FRAGMENTS)]
    count: Annotated[int, Meta(ge=1, le=MAX_FRAGMENTS)]


class ChannelAck(Message, frozen=True, gc=False):
    """The base of a protocol's acknowledgements: cumulative up to `expected`, selective for those in `received`."""

    session: Count
    incarnation: Count
    expected: Count
    received: Annotated[tuple[Count, ...], Meta(max_length=WINDOW)]


class _Received(NamedTuple):
    packet: ChannelPacket
    since: float


class _Stream:
    """The receiving side of one session of one peer."""

    __slots__ = ("assembly", "expected", "received", "session", "since")

    def __init__(self, session: int, expected: int) -> None:
        self.session = session
        self.expected = expected
        self.received: dict[int, _Received] = {}
        self.assembly: Assembly | None = None
        """The message being reassembled."""
        self.since = 0.0
        """When that message was encoded, by this node's clock and without its transmission time."""


class ReorderBuffer:
    """Puts the packets of all peers in order and reassembles their messages."""

    def __init__(self, port: Port, read: Decode, incarnation: int) -> None:
        self._port = port
        self._incarnation = incarnation
        self._read = read
        self._streams: dict[NodeId, _Stream] = {}

    def __len__(self) -> int:
        """The number of packets that wait for earlier ones."""
        return sum(len(stream.received) for stream in self._streams.values())

    def take(self, now: float, peer: NodeId, packet: ChannelPacket) -> list[Message]:
        """Add a packet; returns the messages that it completes, in order."""
        flaw, stream = self._place(peer, packet)
        if stream is None:
            self._drop(flaw, peer, packet)
            return []
        self._skip(stream, packet.first)
        if packet.number < stream.expected or packet.number in stream.received:
            self._drop("channel_repeated", peer, packet)
        elif packet.number >= stream.expected + WINDOW:
            self._drop("channel_ahead", peer, packet)
        else:
            stream.received[packet.number] = _Received(packet, now)
        # Even a duplicate may state that missing packets were given up.
        complete = []
        while stream.expected in stream.received:
            received = stream.received.pop(stream.expected)
            stream.expected += 1
            message = self._put(now, peer, stream, received)
            if message is not None:
                complete.append(message)
        return complete

    def state(self, peer: NodeId) -> tuple[int, int, tuple[int, ...]] | None:
        """The acknowledgement for a peer: its session, the next expected number, and those received beyond it."""
        stream = self._streams.get(peer)
        return None if stream is None else (stream.session, stream.expected, tuple(sorted(stream.received)))

    def _place(self, peer: NodeId, packet: ChannelPacket) -> tuple[str, _Stream | None]:
        """The stream that a packet belongs to, or the reason to drop it."""
        if packet.index >= packet.count or packet.number - packet.index < packet.first:
            return "channel_malformed", None
        if packet.peer not in (None, self._incarnation):
            # The packet was for an earlier incarnation of this node.
            return "channel_past", None
        stream = self._streams.pop(peer, None)
        if stream is not None and packet.session < stream.session:
            self._streams[peer] = stream
            return "channel_past", None
        if stream is None or packet.session > stream.session:
            stream = _Stream(packet.session, packet.first)
            while len(self._streams) >= MAX_PEERS:
                del self._streams[next(iter(self._streams))]
        self._streams[peer] = stream
        return "", stream

    def _skip(self, stream: _Stream, first: int) -> None:
        """Skip the packets that the sender has given up."""
        if first > stream.expected:
            for number in [number for number in stream.received if number < first]:
                del stream.received[number]
            stream.expected = first
            stream.assembly = None

    def _put(self, now: float, peer: NodeId, stream: _Stream, received: _Received) -> Message | None:
        """Add the next fragment; returns the message if it is complete."""
        packet = received.packet
        encoded = received.since - packet.parcel.waited_s
        if packet.index == 0:
            stream.assembly, stream.since = Assembly(packet.count), encoded
        assembly = stream.assembly
        if assembly is None or not assembly.add(packet.index, packet.count, packet.parcel.body):
            self._drop("channel_malformed", peer, packet)
            stream.assembly = None
            return None
        stream.since = min(stream.since, encoded)
        if not assembly.complete:
            return None
        stream.assembly = None
        try:
            message = self._read(assembly.body())
        except DecodeError as error:
            self._drop("channel_malformed" if error.flaw is Flaw.MALFORMED else error.flaw, peer, packet)
            return None
        aged = message.age_by(now - stream.since)
        if aged is None:
            self._drop("lease_over", peer, packet)
        return aged

    def _drop(self, reason: str, peer: NodeId, packet: ChannelPacket) -> None:
        self._port.note(Fact("drop", event=packet.parcel.event, peer=peer, reason=reason))


PacketSender: TypeAlias = Callable[[NodeId, Message], None]
"""Sends a packet: `port.route`, or `port.send`."""


class ChannelTypes(NamedTuple):
    """A protocol's packet and acknowledgement types, and the decoder of the messages that the channel carries."""

    packet: type[ChannelPacket]
    ack: type[ChannelAck]
    read: Decode


class ChannelLimits(NamedTuple):
    """Time-outs and sizes. A message is retransmitted after `timeout_s`, doubled each time, at most `retries` times."""

    timeout_s: float = 1.0
    retries: int = 5
    fragment_bytes: int = 1200
    messages: int = 16
    """Messages in flight to a peer."""
    waiting: int = 256
    """Messages queued for a peer besides."""


class _AnyPath(PathSelector):
    """A selector without knowledge of paths: it assumes that every peer is reachable until a time-out."""

    def best_path(self, peer: NodeId) -> PeerPath | None:
        return PeerPath(None)

    def retry_path(self, peer: NodeId, path: PeerPath) -> PeerPath | None:
        return path

    def on_path_failed(self, peer: NodeId, path: PeerPath) -> None:
        pass


class _Outgoing:
    """A message in flight: its fragments from number `start` on, and which of them were acknowledged."""

    __slots__ = ("arrived", "event", "fragments", "since", "start", "token", "traffic", "tries", "unsent")

    def __init__(self, now: float, token: Token, start: int, fragments: list[bytes], message: Message) -> None:
        self.since = now
        self.token = token
        self.start = start
        self.fragments = fragments
        self.traffic: Traffic
        self.event: EventId | None
        self.traffic, self.event = classify(message)
        self.arrived: set[int] = set()
        self.unsent = start
        """The first sequence number not sent yet."""
        self.tries = 0

    @property
    def end(self) -> int:
        """The sequence number after its last fragment."""
        return self.start + len(self.fragments)


class _Peer:
    """The sending side of a channel to one peer."""

    __slots__ = ("expected", "incarnation", "number", "outgoing")

    def __init__(self, number: int) -> None:
        self.number = number
        """The next sequence number."""
        self.expected = 0
        """The peer's last cumulative acknowledgement."""
        self.incarnation: int | None = None
        self.outgoing: dict[Token, _Outgoing] = {}

    @property
    def first(self) -> int:
        """The lowest sequence number that is still retransmitted."""
        return next(iter(self.outgoing.values())).start if self.outgoing else self.number


class Channel:
    """The channels of one node to all its peers, in both directions."""

    def __init__(
        self,
        port: Port,
        transmit: PacketSender,
        types: ChannelTypes,
        incarnation: int,
        policy: MessagePolicy | None = None,
        limits: ChannelLimits | None = None,
    ) -> None:
        self._port = port
        self._send_packet = transmit
        self._types = types
        self._incarnation = incarnation
        self._limits = limits = limits or ChannelLimits()
        policy = policy or MessagePolicy()
        self._encode = msgspec.msgpack.Encoder().encode
        self._outbox = PeerOutbox(
            port, _AnyPath(), policy, self._transmit, limits.retries, limits.messages, limits.waiting
        )
        self._reorder_buffer = ReorderBuffer(port, types.read, incarnation)
        self._peers: dict[NodeId, _Peer] = {}
        self._targets: dict[Token, NodeId] = {}
        self._used_numbers = 0
        """Above every sequence number that was sent to a forgotten peer."""

    def __len__(self) -> int:
        """Messages without an outcome."""
        return len(self._outbox)

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """Send a message; False, with a recorded drop, if it is too large or the queue is full."""
        if len(self._encode(message)) > MAX_FRAGMENTS * self._limits.fragment_bytes:
            self._port.note(Fact("drop", event=classify(message)[1], peer=peer, reason="channel_too_large"))
            return False
        return self._outbox.send(now, peer, message)

    def on_packet(self, now: float, peer: NodeId, packet: ChannelPacket) -> list[Message]:
        """A packet has arrived; returns the messages that it completes. Every packet is acknowledged."""
        messages = self._reorder_buffer.take(now, peer, packet)
        state = self._reorder_buffer.state(peer)
        session, expected, received = (packet.session, 0, ()) if state is None else state
        self._send_packet(peer, self._types.ack(session, self._incarnation, expected, received))
        return messages

    def on_ack(self, now: float, peer: NodeId, ack: ChannelAck) -> list[Undelivered]:
        """An acknowledgement has arrived. Everything sent to an earlier incarnation of the peer is given up."""
        known = self._peers.get(peer)
        if known is None or ack.session != self._incarnation or ack.expected > known.number:
            self._port.note(Fact("drop", peer=peer, reason="channel_ack_unknown"))
            return []
        if known.incarnation not in (None, ack.incarnation):
            if ack.incarnation < known.incarnation:
                self._port.note(Fact("drop", peer=peer, reason="channel_past"))
                return []
            known.incarnation = ack.incarnation
            return self.give_up(peer, Failure.RESTARTED)
        known.incarnation = ack.incarnation
        known.expected = max(known.expected, ack.expected)
        given_up: list[Undelivered] = []
        received = set(ack.received)
        for one in list(known.outgoing.values()):
            before = len(one.arrived)
            one.arrived.update(n for n in range(one.start, one.unsent) if n < ack.expected or n in received)
            if one.end <= ack.expected:
                given_up += self._outcome(now, peer, one.token, None)
            elif len(one.arrived) > before:
                self._outbox.on_progress(one.token)
                one.tries = 0
                self._arm(one)
        self._fill(now, peer, known)
        return given_up

    def on_timer(self, now: float, token: Token) -> list[Undelivered]:
        """The retransmission timer ("channel", (token,)) has fired. A message that is fully acknowledged, but waits for
        earlier ones at the peer, is not retransmitted."""
        peer = self._targets[token]
        known = self._peers[peer]
        one = known.outgoing[token]
        if one.start > known.first and len(one.arrived) == len(one.fragments):
            self._arm(one)
            return []
        return self._outcome(now, peer, token, Failure.UNREACHABLE)

    def give_up(self, peer: NodeId, cause: Failure) -> list[Undelivered]:
        """Give up all messages to a peer; returns them in order."""
        given_up = self._outbox.give_up(peer, cause)
        if peer in self._peers:
            self._clear(self._peers[peer])
        return given_up

    def stop(self) -> None:
        """Disarm all timers and forget all state."""
        self._outbox.stop()
        for known in self._peers.values():
            self._clear(known)

    # Sending.

    def _transmit(self, now: float, peer: NodeId, message: Message, path: PeerPath, token: Token) -> None:
        """Transmit a message for the outbox: all fragments, or those not yet acknowledged."""
        known = self._peers.pop(peer, None) or self._new_peer()
        self._peers[peer] = known
        self._clear(known)
        one = known.outgoing.get(token)
        if one is None:
            fragments = split(self._encode(message), self._limits.fragment_bytes)
            one = known.outgoing[token] = _Outgoing(now, token, known.number, fragments, message)
            known.number = one.end
            self._targets[token] = peer
            self._fill(now, peer, known)
        else:
            one.tries += 1
            missing = [number for number in range(one.start, one.unsent) if number not in one.arrived]
            # If no fragment is missing, the peer waits for a packet that was given up; any packet informs it.
            for number in missing or [one.start]:
                self._send_packet(peer, self._packet(now, known, one, number))
            self._arm(one)

    def _fill(self, now: float, peer: NodeId, known: _Peer) -> None:
        """Send the fragments that the window now permits."""
        limit = max(known.first, known.expected) + WINDOW
        for one in known.outgoing.values():
            if one.unsent == one.start < limit:
                self._arm(one)
            while one.unsent < min(one.end, limit):
                self._send_packet(peer, self._packet(now, known, one, one.unsent))
                one.unsent += 1

    def _packet(self, now: float, known: _Peer, one: _Outgoing, number: int) -> ChannelPacket:
        index = number - one.start
        return self._types.packet(
            Parcel(one.fragments[index], one.traffic, one.event, now - one.since),
            session=self._incarnation,
            peer=known.incarnation,
            number=number,
            first=known.first,
            index=index,
            count=len(one.fragments),
        )

    def _outcome(self, now: float, peer: NodeId, token: Token, failure: Failure | None) -> list[Undelivered]:
        given_up = self._outbox.on_sent(now, token, failure)
        self._clear(self._peers[peer])
        return given_up

    def _clear(self, known: _Peer) -> None:
        """Remove the messages that have an outcome."""
        for token in list(known.outgoing):
            if not self._outbox.holds(token):
                del known.outgoing[token]
                del self._targets[token]
                self._port.cancel_timer(("channel", (token,)))

    def _arm(self, one: _Outgoing) -> None:
        self._port.set_timer(("channel", (one.token,)), self._limits.timeout_s * 2.0**one.tries)

    def _new_peer(self) -> _Peer:
        """A new peer. It may be a forgotten one, so its sequence numbers start above all that were used."""
        if len(self._peers) >= MAX_PEERS:
            idle = next((node for node, known in self._peers.items() if not known.outgoing), None)
            if idle is not None:
                self._used_numbers = max(self._used_numbers, self._peers.pop(idle).number)
        return _Peer(self._used_numbers)
