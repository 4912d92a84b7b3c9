"""The state that the parts of the router share, and the packets that wait for a route."""

from collections.abc import Sequence
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact, Place, Port, Token
from carrycast.core.wire import Message, Parcel
from carrycast.routers.aodv.messages import MAX_SEQUENCE, Packet
from carrycast.routers.aodv.route_table import RouteTable
from carrycast.routers.aodv.rules import MAX_SEQUENCE_JUMP, first_sequence_number, is_plausible_sequence
from carrycast.routers.aodv.settings import AodvSettings


class AodvPacketInTransit(NamedTuple):
    """A packet on its way through this node."""

    packet: Packet
    target: NodeId | Place
    """The target as the layer above of this node gave it."""
    previous_hop: NodeId | None
    """The neighbor that sent the packet; None if this node is its origin."""
    received_at: float
    """When this node got the packet. The parcel does not yet include the time since then."""
    buffered_until: float
    """The packet waits for a route no longer than this, all its waits together."""

    def aged_parcel(self, now: float) -> Parcel:
        """The parcel, with the time that it has spent at this node."""
        parcel = self.packet.parcel
        return parcel.age_by(now - self.received_at) if now > self.received_at else parcel


class PacketBuffer:
    """Packets that wait for a route, first in, first out [RFC 6.3].

    One bounded queue serves all destinations. The bound is small, so a linear scan is cheap.
    """

    def __init__(self, max_packets: int) -> None:
        self._max_packets = max_packets
        self._packets: list[AodvPacketInTransit] = []

    def __len__(self) -> int:
        return len(self._packets)

    def add(self, waiting: AodvPacketInTransit) -> AodvPacketInTransit | None:
        """Add a packet. Return the oldest if it had to make room."""
        self._packets.append(waiting)
        return self._packets.pop(0) if len(self._packets) > self._max_packets else None

    def remove_expired(self, now: float) -> list[AodvPacketInTransit]:
        """Remove and return the packets that have waited too long."""
        expired = [waiting for waiting in self._packets if waiting.buffered_until <= now]
        if expired:
            self._packets = [waiting for waiting in self._packets if waiting.buffered_until > now]
        return expired

    def remove_for(self, destination: NodeId) -> list[AodvPacketInTransit]:
        """Remove and return the packets for a destination."""
        found = [waiting for waiting in self._packets if waiting.packet.destination == destination]
        if found:
            self._packets = [waiting for waiting in self._packets if waiting.packet.destination != destination]
        return found

    def destinations(self) -> list[NodeId]:
        """The destinations of the packets, each once, in the order of their oldest packets."""
        return list(dict.fromkeys(waiting.packet.destination for waiting in self._packets))


class AodvState:
    """The own sequence number and the route table of one node, and the messages whose outcome is not yet known."""

    def __init__(self, node: NodeId, settings: AodvSettings, port: Port, incarnation: int) -> None:
        self.node = node
        self.settings = settings
        self.port = port
        self.table = RouteTable(node, settings.delete_period_s, settings.max_routes)
        self.sequence = first_sequence_number(incarnation)
        self.last_broadcast_s = 0.0
        self._last_token = 0
        self._unconfirmed: dict[Token, tuple[NodeId, Sequence[AodvPacketInTransit]]] = {}

    # [RFC 6.1]
    def increment_sequence(self, least: int = 0) -> int:
        """Raise the own sequence number by one, and at least to `least`, which another node believes it to be."""
        self.sequence = min(max(self.sequence + 1, least), MAX_SEQUENCE)
        return self.sequence

    def is_forged(self, now: float, node: NodeId, sequence: int) -> bool:
        """Whether a node cannot have reached this sequence number."""
        if node == self.node:
            # Others raise this node's number only for broken routes, so it cannot be far above the own.
            return sequence > self.sequence + MAX_SEQUENCE_JUMP
        entry = self.table.find(now, node)
        return entry is not None and entry.sequence > 0 and not is_plausible_sequence(sequence, entry.sequence)

    def send(self, neighbor: NodeId, message: Message, packets: Sequence[AodvPacketInTransit] = ()) -> None:
        """Send a message to a neighbor, and remember it and the packets in it until its outcome is known."""
        self._last_token += 1
        self._unconfirmed[self._last_token] = (neighbor, packets)
        self.port.send(neighbor, message, token=self._last_token)

    def take_unconfirmed(self, token: Token) -> tuple[NodeId, Sequence[AodvPacketInTransit]]:
        """The neighbor that a message was sent to, and the packets in it; none if it was a control message."""
        return self._unconfirmed.pop(token)

    def broadcast(self, now: float, message: Message) -> None:
        """Broadcast a message. It replaces a HELLO [RFC 6.9]."""
        self.last_broadcast_s = now
        self.port.broadcast(message)

    def drop(self, reason: str, peer: NodeId | None = None, event: EventId | None = None) -> None:
        """Record why a message is dropped."""
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))
