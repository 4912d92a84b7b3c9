"""Numbered pieces from peers, put in order and together again: each message once, whatever is doubled or overtaken.

The other end is a `Channel`, which numbers the pieces of its messages for each peer. What it has given up it does not
send again: every packet says from which number on it still sends, and nothing before that is waited for.
"""

from collections.abc import Callable
from typing import Annotated, NamedTuple, TypeAlias

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.parts.fragments import MAX_FRAGMENTS, Assembly
from carrycast.core.protocol import Fact, Port
from carrycast.core.wire import DecodeError, Flaw, Message, ParcelMessage

WINDOW = 256
"""Pieces that may be under way from one node to another: what is further ahead is not taken in."""

MAX_PEERS = 1024
"""Peers remembered at a time; the one that has been silent the longest makes room."""

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]

Read: TypeAlias = Callable[[bytes], Message]
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


class Inbox:
    """What peers send to one node."""

    def __init__(self, port: Port, read: Read, incarnation: int) -> None:
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
        aged = message.aged(now - stream.since)
        if aged is None:
            self._drop("lease_over", peer, packet)
        return aged

    def _drop(self, reason: str, peer: NodeId, packet: ChannelPacket) -> None:
        self._port.note(Fact("drop", event=packet.parcel.event, peer=peer, reason=reason))
