"""What all components of a node share: its identity, settings and timers, and the transport of its messages."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import msgspec

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts import Channel, ChannelLimits, ChannelTypes, Undelivered
from carrycast.core.protocol import Fact, Host, Port, TimerKey, Token
from carrycast.core.wire import DecodeError, Message, Parcel, classify
from carrycast.protocols.overlay.messages import CHANNEL_MESSAGES, Ack, Hop, Packet, SequenceNumber
from carrycast.protocols.overlay.settings import OverlaySettings

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
    """Reliable messages over source routes [002 §2.2]: everything that a node sends to others, except searches, their
    answers, and acknowledgements of streams.

    A channel between two nodes orders and retransmits messages. Its packets travel along a path of brokers: each broker
    removes itself from the path and forwards. If a broker of the path cannot be reached, the packet is sent directly to
    its target.
    """

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


BROKER = "broker"
"""The role of brokers."""


class NodeContext:
    """The shared state of one node."""

    def __init__(self, node: NodeId, settings: OverlaySettings, port: Port, host: Host, path_to: PathLookup) -> None:
        self.node = node
        self.settings = settings
        self.port = port
        self.host = host
        self.transport = SourceRoutingTransport(node, port, host, path_to)
        self.brokers = host.directory(BROKER)
        self._other_brokers = tuple(broker for broker in self.brokers if broker != node)
        self._broker_set = frozenset(self.brokers)
        self._timers: dict[TimerKey, None] = {}
        self._relocation = SequenceNumber(host.incarnation, 0)

    def is_broker(self, node: NodeId) -> bool:
        """Whether a node has the role of a broker."""
        return node in self._broker_set

    def send(self, now: float, peer: NodeId, message: Message) -> bool:
        """Send through the channel; False if its queue is full."""
        return self.transport.send(now, peer, message)

    def send_to_brokers(self, now: float, message: Message) -> None:
        """Send to every other broker."""
        for broker in self._other_brokers:
            self.send(now, broker, message)

    def next_relocation_id(self) -> SequenceNumber:
        """An id for a relocation that no other one of this node has had."""
        self._relocation = self._relocation.next()
        return self._relocation

    def start_timer(self, key: TimerKey, delay_s: float) -> None:
        """Start a timer, unless it is running."""
        if key not in self._timers:
            self._timers[key] = None
            self.port.set_timer(key, delay_s)

    def stop_timer(self, key: TimerKey) -> None:
        """Stop a timer, if it is running."""
        if key in self._timers:
            del self._timers[key]
            self.port.cancel_timer(key)

    def on_timer(self, key: TimerKey) -> None:
        """A timer has expired, and may be started again."""
        self._timers.pop(key, None)

    def stop(self) -> None:
        """Stop all timers."""
        for key in list(self._timers):
            self.stop_timer(key)
        self.transport.stop()

    def drop(self, reason: str, peer: NodeId | None = None, event: EventId | None = None) -> None:
        """Record why a message or an event is dropped."""
        self.port.note(Fact("drop", event, peer, reason))
