"""A channel to each peer over what loses, doubles and overtakes: a router, or links without outcome.

Messages are numbered for each peer, cut into pieces if they are large, and repeated until they are acknowledged; the
inbox of the other end puts them in order and hands each over once. What is not delivered so is given up, and the user
is told why; what is given up may have arrived all the same.

A protocol gives its packets and acknowledgments tags of its own:

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
"""Pieces that may be under way from one node to another: what is further ahead is not taken in."""

MAX_PEERS = 1024
"""Peers remembered at a time; the one that has been silent the longest makes room."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

Decode: TypeAlias = Callable[[bytes], Message]
"""How a message that is whole again is read: `host.decoder` of those that travel so."""


class ChannelPacket(ParcelMessage, frozen=True, gc=False, kw_only=True):
    """The base of a protocol's packets on a channel: a piece of an encoded message, as a parcel of its age."""

    session: Count
    """The sender's incarnation: numbers begin anew with it."""
    peer: Count | None
    """The receiver's incarnation, as far as the sender knows it."""
    number: Count
    first: Count
    """The lowest number that the sender still sends."""
    index: Annotated[int, Meta(ge=0, lt=MAX_FRAGMENTS)]
    count: Annotated[int, Meta(ge=1, le=MAX_FRAGMENTS)]


class ChannelAck(Message, frozen=True, gc=False):
    """The base of a protocol's acknowledgments: all before `expected` is here or not wanted, and some after it."""

    session: Count
    incarnation: Count
    expected: Count
    held: Annotated[tuple[Count, ...], Meta(max_length=WINDOW)]


class _Held(NamedTuple):
    packet: ChannelPacket
    since: float


class _Stream:
    """What comes from one session of one peer."""

    __slots__ = ("assembly", "expected", "held", "session", "since")

    def __init__(self, session: int, expected: int) -> None:
        self.session = session
        self.expected = expected
        self.held: dict[int, _Held] = {}
        self.assembly: Assembly | None = None
        """Of the message whose pieces come next."""
        self.since = 0.0
        """When that message was encoded, on this node's clock and without the time its pieces were on their way."""


class ReorderBuffer:
    """What peers send to one node."""

    def __init__(self, port: Port, read: Decode, incarnation: int) -> None:
        self._port = port
        self._incarnation = incarnation
        self._read = read
        self._streams: dict[NodeId, _Stream] = {}

    def __len__(self) -> int:
        """Pieces that wait for others."""
        return sum(len(stream.held) for stream in self._streams.values())

    def take(self, now: float, peer: NodeId, packet: ChannelPacket) -> list[Message]:
        """The messages that are complete with a piece, in the order in which they were handed over."""
        flaw, stream = self._place(peer, packet)
        if stream is None:
            self._drop(flaw, peer, packet)
            return []
        self._skip(stream, packet.first)
        if packet.number < stream.expected or packet.number in stream.held:
            self._drop("channel_repeated", peer, packet)
        elif packet.number >= stream.expected + WINDOW:
            self._drop("channel_ahead", peer, packet)
        else:
            stream.held[packet.number] = _Held(packet, now)
        # A copy, too, may say that what the others waited for does not come.
        complete = []
        while stream.expected in stream.held:
            held = stream.held.pop(stream.expected)
            stream.expected += 1
            message = self._put(now, peer, stream, held)
            if message is not None:
                complete.append(message)
        return complete

    def state(self, peer: NodeId) -> tuple[int, int, tuple[int, ...]] | None:
        """What a peer is to be told: the session, the number that is expected next, and what is here beyond it."""
        stream = self._streams.get(peer)
        return None if stream is None else (stream.session, stream.expected, tuple(sorted(stream.held)))

    def _place(self, peer: NodeId, packet: ChannelPacket) -> tuple[str, _Stream | None]:
        """The stream that a packet belongs to, or why it is of none."""
        if packet.index >= packet.count or packet.number - packet.index < packet.first:
            return "channel_malformed", None
        if packet.peer not in (None, self._incarnation):
            # It was for this node before it started anew.
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
        """The sender has given up what comes before."""
        if first > stream.expected:
            for number in [number for number in stream.held if number < first]:
                del stream.held[number]
            stream.expected = first
            stream.assembly = None

    def _put(self, now: float, peer: NodeId, stream: _Stream, held: _Held) -> Message | None:
        """The next piece; the message, if it is its last one."""
        packet = held.packet
        encoded = held.since - packet.parcel.waited_s
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


Carry: TypeAlias = Callable[[NodeId, Message], None]
"""How packets leave: `port.route`, or `port.send`."""


class ChannelTypes(NamedTuple):
    """The messages of a protocol that a channel is made of, and how those are read that it carries."""

    packet: type[ChannelPacket]
    ack: type[ChannelAck]
    read: Decode


class ChannelLimits(NamedTuple):
    """How long and how much: a message is repeated after `timeout_s`, then after twice as long, `retries` times."""

    timeout_s: float = 1.0
    retries: int = 5
    piece_bytes: int = 1200
    messages: int = 16
    """Under way to a peer at a time."""
    waiting: int = 256
    """That wait for their turn besides."""


class _Anyhow(PathSelector):
    """Nothing is known of ways: every peer may be reached, and silence alone says that one was not."""

    def way(self, peer: NodeId) -> PeerPath | None:
        return PeerPath(None)

    def again(self, peer: NodeId, way: PeerPath) -> PeerPath | None:
        return way

    def failed(self, peer: NodeId, way: PeerPath) -> None:
        pass


class _Outgoing:
    """A message under way: its pieces from `start` on, and which of them are known to have arrived."""

    __slots__ = ("arrived", "event", "pieces", "since", "start", "token", "traffic", "tries", "unsent")

    def __init__(self, now: float, token: Token, start: int, pieces: list[bytes], message: Message) -> None:
        self.since = now
        self.token = token
        self.start = start
        self.pieces = pieces
        self.traffic: Traffic
        self.event: EventId | None
        self.traffic, self.event = classify(message)
        self.arrived: set[int] = set()
        self.unsent = start
        """The first number that has not been sent yet."""
        self.tries = 0

    @property
    def end(self) -> int:
        """The number after its last."""
        return self.start + len(self.pieces)


class _Peer:
    """The sending side of a channel to one peer."""

    __slots__ = ("expected", "incarnation", "number", "outgoing")

    def __init__(self, number: int) -> None:
        self.number = number
        """The next one."""
        self.expected = 0
        """What the peer waited for when it last said so."""
        self.incarnation: int | None = None
        self.outgoing: dict[Token, _Outgoing] = {}

    @property
    def first(self) -> int:
        """The lowest number that is still sent."""
        return next(iter(self.outgoing.values())).start if self.outgoing else self.number


class Channel:
    """Both directions, to all peers of one node."""

    def __init__(
        self,
        port: Port,
        carry: Carry,
        types: ChannelTypes,
        incarnation: int,
        handling: MessagePolicy | None = None,
        limits: ChannelLimits | None = None,
    ) -> None:
        self._port = port
        self._carry = carry
        self._types = types
        self._incarnation = incarnation
        self._limits = limits = limits or ChannelLimits()
        handling = handling or MessagePolicy()
        self._encode = msgspec.msgpack.Encoder().encode
        self._outbox = PeerOutbox(
            port, _Anyhow(), handling, self._transmit, limits.retries, limits.messages, limits.waiting
        )
        self._inbox = ReorderBuffer(port, types.read, incarnation)
        self._peers: dict[NodeId, _Peer] = {}
        self._targets: dict[Token, NodeId] = {}
        self._floor = 0
        """Above every number that a peer who has been forgotten was sent."""

    def __len__(self) -> int:
        """Messages without an outcome."""
        return len(self._outbox)

    @property
    def held(self) -> int:
        """Pieces from peers that wait for others. Some may wait for what its sender has given up, until it is heard of
        again; there are never more of them than a window for each peer."""
        return len(self._inbox)

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """Hand a message over; False, with a named drop, if it is too large or too many wait."""
        if len(self._encode(message)) > MAX_FRAGMENTS * self._limits.piece_bytes:
            self._port.note(Fact("drop", event=classify(message)[1], peer=peer, reason="channel_too_large"))
            return False
        return self._outbox.send(now, peer, message)

    def on_packet(self, now: float, peer: NodeId, packet: ChannelPacket) -> list[Message]:
        """A piece from a peer: the messages that are complete with it. In any case the peer learns what is here."""
        messages = self._inbox.take(now, peer, packet)
        state = self._inbox.state(peer)
        session, expected, held = (packet.session, 0, ()) if state is None else state
        self._carry(peer, self._types.ack(session, self._incarnation, expected, held))
        return messages

    def on_ack(self, now: float, peer: NodeId, ack: ChannelAck) -> list[Undelivered]:
        """What a peer has. One that has started anew knows nothing of what it was sent, and all of that is given up."""
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
        held = set(ack.held)
        for one in list(known.outgoing.values()):
            before = len(one.arrived)
            one.arrived.update(n for n in range(one.start, one.unsent) if n < ack.expected or n in held)
            if one.end <= ack.expected:
                given_up += self._outcome(now, peer, one.token, None)
            elif len(one.arrived) > before:
                self._outbox.progress(one.token)
                one.tries = 0
                self._arm(one)
        self._fill(now, peer, known)
        return given_up

    def on_timer(self, now: float, token: Token) -> list[Undelivered]:
        """The timer ("channel", (token,)) has run out: nothing was heard of a message for too long. One that is there,
        and only waits for those before it, goes on waiting."""
        peer = self._targets[token]
        known = self._peers[peer]
        one = known.outgoing[token]
        if one.start > known.first and len(one.arrived) == len(one.pieces):
            self._arm(one)
            return []
        return self._outcome(now, peer, token, Failure.UNREACHABLE)

    def give_up(self, peer: NodeId, cause: Failure) -> list[Undelivered]:
        """Everything on its way to a peer, in its order."""
        given_up = self._outbox.give_up(peer, cause)
        if peer in self._peers:
            self._clear(self._peers[peer])
        return given_up

    def stop(self) -> None:
        """Disarm every timer and forget everything."""
        self._outbox.stop()
        for known in self._peers.values():
            self._clear(known)

    # Sending.

    def _transmit(self, now: float, peer: NodeId, message: Message, way: PeerPath, token: Token) -> None:
        """For the outbox: for the first time, or all that has not arrived once more."""
        known = self._peers.pop(peer, None) or self._new_peer()
        self._peers[peer] = known
        self._clear(known)
        one = known.outgoing.get(token)
        if one is None:
            pieces = split(self._encode(message), self._limits.piece_bytes)
            one = known.outgoing[token] = _Outgoing(now, token, known.number, pieces, message)
            known.number = one.end
            self._targets[token] = peer
            self._fill(now, peer, known)
        else:
            one.tries += 1
            missing = [number for number in range(one.start, one.unsent) if number not in one.arrived]
            # If nothing is missing, the peer waits for one that is given up by now: any packet says so.
            for number in missing or [one.start]:
                self._carry(peer, self._packet(now, known, one, number))
            self._arm(one)

    def _fill(self, now: float, peer: NodeId, known: _Peer) -> None:
        """Send for the first time what has come within the window."""
        limit = max(known.first, known.expected) + WINDOW
        for one in known.outgoing.values():
            if one.unsent == one.start < limit:
                self._arm(one)
            while one.unsent < min(one.end, limit):
                self._carry(peer, self._packet(now, known, one, one.unsent))
                one.unsent += 1

    def _packet(self, now: float, known: _Peer, one: _Outgoing, number: int) -> ChannelPacket:
        index = number - one.start
        return self._types.packet(
            Parcel(one.pieces[index], one.traffic, one.event, now - one.since),
            session=self._incarnation,
            peer=known.incarnation,
            number=number,
            first=known.first,
            index=index,
            count=len(one.pieces),
        )

    def _outcome(self, now: float, peer: NodeId, token: Token, failure: Failure | None) -> list[Undelivered]:
        given_up = self._outbox.on_sent(now, token, failure)
        self._clear(self._peers[peer])
        return given_up

    def _clear(self, known: _Peer) -> None:
        """Let go what has its outcome."""
        for token in list(known.outgoing):
            if not self._outbox.holds(token):
                del known.outgoing[token]
                del self._targets[token]
                self._port.cancel_timer(("channel", (token,)))

    def _arm(self, one: _Outgoing) -> None:
        self._port.set_timer(("channel", (one.token,)), self._limits.timeout_s * 2.0**one.tries)

    def _new_peer(self) -> _Peer:
        """Numbers go on above those of peers that were forgotten, one of whom it may be."""
        if len(self._peers) >= MAX_PEERS:
            idle = next((node for node, known in self._peers.items() if not known.outgoing), None)
            if idle is not None:
                self._floor = max(self._floor, self._peers.pop(idle).number)
        return _Peer(self._floor)
