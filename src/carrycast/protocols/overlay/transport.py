"""Reliable messages over source routes [002 §2.2].

A channel between two nodes orders and retransmits messages. Its packets travel along a path of brokers: each broker
removes itself from the path and forwards. If a broker of the path cannot be reached, the packet is sent directly to its
target.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from carrycast.core.model import NodeId
from carrycast.core.parts import Channel, ChannelLimits, ChannelTypes, Undelivered
from carrycast.core.protocol import Fact, Host, Port, Token
from carrycast.core.wire import DecodeError, Message, Parcel, classify
from carrycast.protocols.overlay.messages import CHANNEL_MESSAGES, Ack, Hop, Packet

MAX_HOPS = 65535

ROUTED_MESSAGES: tuple[type[Packet | Ack], ...] = (Packet, Ack)
"""The messages that travel along broker paths."""

# Five tries over 15 s: in that time the router finds a new route, or reports that there is none.
LIMITS = ChannelLimits(timeout_s=1.0, retries=3, messages=32, waiting=1024)

PathLookup: TypeAlias = Callable[[NodeId], tuple[NodeId, ...]]
"""The brokers on the path to a node, without the node itself; empty for a direct path."""


class ReceivedMessage(NamedTuple):
    """A complete message, its origin, and the hops that it travelled."""

    origin: NodeId
    message: Message
    hops: int


class SourceRoutingTransport:
    """Everything that a node sends to others, except searches, their answers, and acknowledgements of streams."""

    def __init__(self, node: NodeId, port: Port, host: Host, path_to: PathLookup) -> None:
        self._node = node
        self._port = port
        self._path_to = path_to
        types = ChannelTypes(Packet, Ack, host.decoder(CHANNEL_MESSAGES))
        self._channel = Channel(port, self._transmit, types, host.incarnation, limits=LIMITS)
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = host.decoder(ROUTED_MESSAGES)

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """Send a message in order and once, or give it up; False if the channel's queue is full."""
        if peer == self._node:
            # A route to the own node keeps the order and loses nothing.
            self._port.route(peer, message)
            return True
        return self._channel.send(now, peer, message)

    def on_packet(self, now: float, origin: NodeId, packet: Packet, hops: int) -> list[ReceivedMessage]:
        """A packet has arrived: the messages that it completes."""
        return [ReceivedMessage(origin, message, hops) for message in self._channel.on_packet(now, origin, packet)]

    def on_ack(self, now: float, origin: NodeId, ack: Ack) -> list[Undelivered]:
        """An acknowledgement of a peer: the messages that are given up because the peer has restarted."""
        return self._channel.on_ack(now, origin, ack)

    def on_hop(self, now: float, hop: Hop, hops: int) -> tuple[NodeId, Packet | Ack, int] | None:
        """Forward a source-routed packet, or at its target return its origin, its content and its hops."""
        hops = min(hop.hops + hops, MAX_HOPS)
        if hop.path:
            onward = Hop(hop.parcel, origin=hop.origin, path=hop.path[1:], hops=hops)
            self._port.route(hop.path[0], onward)
            return None
        try:
            inner = self._decode(hop.parcel.body)
        except DecodeError:
            self._port.note(Fact("drop", event=hop.parcel.event, peer=hop.origin, reason="hop_malformed"))
            return None
        aged = inner.age_by(hop.parcel.waited_s)
        assert aged is not None, "packets and acknowledgements have no durations of their own"
        return hop.origin, aged, hops

    def on_unreachable(self, now: float, target: object, hop: Hop) -> None:
        """A broker of the path cannot be reached: send the packet directly to its target, once."""
        if hop.path:
            self._port.route(hop.path[-1], Hop(hop.parcel, origin=hop.origin, path=(), hops=hop.hops))
        else:
            self._port.note(Fact("drop", event=hop.parcel.event, reason="unreachable"))

    def on_timer(self, now: float, token: Token) -> list[Undelivered]:
        """A retransmission timer of the channel has expired."""
        return self._channel.on_timer(now, token)

    def stop(self) -> None:
        """Stop all timers."""
        self._channel.stop()

    def _transmit(self, peer: NodeId, message: Message) -> None:
        path = self._path_to(peer)
        if not path:
            self._port.route(peer, message)
            return
        assert isinstance(message, Packet | Ack)
        traffic, event = classify(message)
        parcel = Parcel(self._encode(message), traffic, event)
        self._port.route(path[0], Hop(parcel, origin=self._node, path=(*path[1:], peer), hops=0))
