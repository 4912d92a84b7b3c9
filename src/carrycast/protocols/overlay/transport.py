"""How messages travel: through a channel that orders and repeats them, along paths of brokers [002 §2.2].

The two ends of a channel number and acknowledge; brokers on the way take themselves off the path and pass on. Where a
broker of the path cannot be reached the packet goes straight to its target.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from carrycast.core.model import Failure, NodeId
from carrycast.core.parts.channel import Channel, ChannelLimits, ChannelTypes
from carrycast.core.parts.outbox import Undelivered
from carrycast.core.protocol import Fact, Host, Port, Token
from carrycast.core.wire import DecodeError, Message, Parcel, classify
from carrycast.protocols.overlay.messages import CARRIED, Ack, Hop, Packet

MAX_HOPS = 65535

HOPPING: tuple[type[Packet | Ack], ...] = (Packet, Ack)
"""What goes along paths."""

# Five tries over 15 s: a broken path is found anew meanwhile, or is said to be gone.
LIMITS = ChannelLimits(timeout_s=1.0, retries=3, messages=32, waiting=1024)

Paths: TypeAlias = Callable[[NodeId], tuple[NodeId, ...]]
"""The brokers over which a node is reached, without the node itself; none if straight."""


class Arrived(NamedTuple):
    """A message that has come, from whom, and over how many hops."""

    origin: NodeId
    message: Message
    hops: int


class Transport:
    """All that one node sends to others but searches, answers to them and word of what has arrived."""

    def __init__(self, node: NodeId, port: Port, host: Host, paths: Paths) -> None:
        self._node = node
        self._port = port
        self._paths = paths
        types = ChannelTypes(Packet, Ack, host.decoder(CARRIED))
        self._channel = Channel(port, self._carry, types, host.incarnation, limits=LIMITS)
        self._encode = msgspec.msgpack.Encoder().encode
        self._read = host.decoder(HOPPING)

    def __len__(self) -> int:
        """Messages without an outcome."""
        return len(self._channel)

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """In order and once, or given up; False if too many wait."""
        if peer == self._node:
            # A route to the own node keeps its order and loses nothing.
            self._port.route(peer, message)
            return True
        return self._channel.send(now, peer, message)

    def on_packet(self, now: float, origin: NodeId, packet: Packet, hops: int) -> list[Arrived]:
        """A piece has come: the messages that are whole with it."""
        return [Arrived(origin, message, hops) for message in self._channel.on_packet(now, origin, packet)]

    def on_ack(self, now: float, origin: NodeId, ack: Ack) -> list[Undelivered]:
        """What a peer has, and what is given up because it has started anew."""
        return self._channel.on_ack(now, origin, ack)

    def on_hop(self, now: float, hop: Hop, hops: int) -> tuple[NodeId, Packet | Ack, int] | None:
        """On its way: pass it on; at its target: what it carries, from whom, over how many hops."""
        hops = min(hop.hops + hops, MAX_HOPS)
        if hop.path:
            onward = Hop(hop.parcel, origin=hop.origin, path=hop.path[1:], hops=hops)
            self._port.route(hop.path[0], onward)
            return None
        try:
            inner = self._read(hop.parcel.body)
        except DecodeError:
            self._port.note(Fact("drop", event=hop.parcel.event, peer=hop.origin, reason="hop_malformed"))
            return None
        aged = inner.age_by(hop.parcel.waited_s)
        assert aged is not None, "packets and acknowledgments have no durations of their own"
        return hop.origin, aged, hops

    def on_unreachable(self, now: float, target: object, hop: Hop) -> None:
        """A broker of the path is away: straight to the target, once."""
        if hop.path:
            self._port.route(hop.path[-1], Hop(hop.parcel, origin=hop.origin, path=(), hops=hop.hops))
        else:
            self._port.note(Fact("drop", event=hop.parcel.event, reason="unreachable"))

    def on_timer(self, now: float, token: Token) -> list[Undelivered]:
        """Nothing was heard of a message for too long."""
        return self._channel.on_timer(now, token)

    def give_up(self, peer: NodeId, cause: Failure) -> list[Undelivered]:
        """All that is on its way to a peer."""
        return self._channel.give_up(peer, cause)

    def stop(self) -> None:
        """Disarm every timer."""
        self._channel.stop()

    def _carry(self, peer: NodeId, message: Message) -> None:
        path = self._paths(peer)
        if not path:
            self._port.route(peer, message)
            return
        assert isinstance(message, Packet | Ack)
        traffic, event = classify(message)
        parcel = Parcel(self._encode(message), traffic, event)
        self._port.route(path[0], Hop(parcel, origin=self._node, path=(*path[1:], peer), hops=0))
