"""Forwarding by a routing table, hop by hop: what proactive routers have in common.

A subclass keeps the table and answers `find_next_hop`. This class makes packets of parcels, forwards them, limits their
hops, and tries again over another neighbor when the link layer could not reach the next hop.
"""

from abc import abstractmethod
from random import Random
from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import EventId, Failure, NodeId
from carrycast.core.protocol import (
    Fact,
    Host,
    Place,
    Port,
    Router,
    RouterUpcalls,
    Settings,
    Token,
)
from carrycast.core.wire import Parcel, ParcelMessage


class RoutedPacket(ParcelMessage, frozen=True, gc=False, kw_only=True):
    """The base of packets: a parcel on its way. On arrival `hops` is the number of transmissions so far."""

    origin: NodeId
    destination: NodeId
    hops: Annotated[int, Meta(ge=0, le=255)]


class RoutedPacketInTransit(NamedTuple):
    """A packet on its way through this node."""

    packet: RoutedPacket
    target: NodeId | Place
    """The target as the layer above of this node gave it."""
    previous_hop: NodeId | None
    """The neighbor that sent the packet; None if this node is its origin."""
    received_at: float
    """When this node got the packet. The parcel does not yet include the time since then."""

    def aged_parcel(self, now: float) -> Parcel:
        """The parcel, with the time that it has spent at this node."""
        parcel = self.packet.parcel
        return parcel.age_by(now - self.received_at) if now > self.received_at else parcel


class TableRouter(Router):
    """Delivers packets to nodes by a routing table. A place is a target only if it names a node."""

    packet_type: type[RoutedPacket]
    """The packets of the subclass, with their tag."""

    def __init__(
        self,
        node: NodeId,
        settings: Settings,
        port: Port,
        host: Host,
        rng: Random,
        up: RouterUpcalls,
        max_hops: int,
    ) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._max_hops = max_hops
        self._last_token = 0
        self._unconfirmed: dict[Token, tuple[NodeId, RoutedPacketInTransit]] = {}

    # What a subclass implements.

    @abstractmethod
    def find_next_hop(self, now: float, destination: NodeId) -> NodeId | None:
        """The neighbor to which a packet for a destination goes; None without a route."""

    def on_neighbor_unreachable(self, now: float, neighbor: NodeId) -> None:
        """The link layer could not send a packet to a neighbor."""

    def on_no_route(self, now: float, transit: RoutedPacketInTransit) -> None:
        """There is no route for a packet. It is dropped, unless the subclass keeps it."""
        self.drop_packet(now, transit, "no_route")

    # Packets.

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        node = target.node if isinstance(target, Place) else target
        if node is None:
            self.drop("place_without_node", event=parcel.event)
            self.up.report_unreachable(target, parcel)
        elif node == self.node:
            self.up.deliver_packet(node, parcel, 0)
        else:
            packet = self.packet_type(parcel, origin=self.node, destination=node, hops=1)
            self.forward(now, RoutedPacketInTransit(packet, target, None, now))

    def on_packet(self, now: float, sender: NodeId, packet: RoutedPacket) -> None:
        """A neighbor sent a packet: deliver it or forward it."""
        if packet.origin == self.node:
            self.drop("packet_returned", sender, packet.parcel.event)
        elif packet.destination == self.node:
            self.up.deliver_packet(packet.origin, packet.parcel, packet.hops)
        elif packet.hops >= self._max_hops:
            self.drop("hops_exhausted", sender, packet.parcel.event)
        else:
            onward = self.packet_type(
                packet.parcel, origin=packet.origin, destination=packet.destination, hops=packet.hops + 1
            )
            self.forward(now, RoutedPacketInTransit(onward, packet.destination, sender, now))

    def forward(self, now: float, transit: RoutedPacketInTransit) -> None:
        """Send a packet to the next hop."""
        packet = transit.packet
        next_hop = self.find_next_hop(now, packet.destination)
        if next_hop is None:
            self.on_no_route(now, transit)
            return
        if now > transit.received_at:
            packet = self.packet_type(
                transit.aged_parcel(now), origin=packet.origin, destination=packet.destination, hops=packet.hops
            )
        self._last_token += 1
        self._unconfirmed[self._last_token] = (next_hop, transit)
        self.port.send(next_hop, packet, token=self._last_token)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        neighbor, transit = self._unconfirmed.pop(token)
        if failure is None:
            return
        if failure is Failure.UNREACHABLE:
            self.on_neighbor_unreachable(now, neighbor)
            next_hop = self.find_next_hop(now, transit.packet.destination)
            if next_hop is not None and next_hop != neighbor:
                self.port.note(Fact("reroute", event=transit.packet.parcel.event, peer=neighbor))
                self.forward(now, transit)
                return
            if next_hop is None:
                self.on_no_route(now, transit)
                return
        self.drop_packet(now, transit, failure)

    def drop_packet(self, now: float, transit: RoutedPacketInTransit, reason: str) -> None:
        """Drop a packet, and report it to the layer above if this node is its origin."""
        self.drop(reason, transit.previous_hop, transit.packet.parcel.event)
        if transit.previous_hop is None:
            self.up.report_unreachable(transit.target, transit.aged_parcel(now))

    def drop(self, reason: str, peer: NodeId | None = None, event: EventId | None = None) -> None:
        """Record why a message is dropped."""
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))
