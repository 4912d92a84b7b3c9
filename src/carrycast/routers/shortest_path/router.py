"""Shortest paths by an oracle that knows all links: the unicast of [002 §4.1] beneath its overlays.

No real node has this knowledge, so the router runs only in the simulator. Packets are still sent hop by hop, take their
time on the air, and fail when a link breaks.
"""

from random import Random
from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import EventId, Failure, NodeId
from carrycast.core.protocol import (
    Capability,
    Fact,
    Host,
    Interface,
    Place,
    Port,
    Router,
    RouterUpcalls,
    Settings,
    Token,
)
from carrycast.core.wire import Message, Parcel, ParcelMessage


class Packet(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=1):
    """A parcel of the layer above on its way. On arrival `hops` is the number of transmissions so far."""

    origin: NodeId
    target: NodeId
    hops: Annotated[int, Meta(ge=0, le=255)]


class ShortestPathSettings(Settings, frozen=True):
    """Limits of hops and retries."""

    # The usual TTL of IP packets. Links that change while a packet travels may send it back and forth.
    max_hops: Annotated[int, Meta(ge=1, le=255, description="hops after which a packet is dropped")] = 64
    # A send over a link that exists fails by a lost frame; that rarely happens four times in a row.
    retries: Annotated[int, Meta(ge=0, le=20, description="retries of a hop that failed")] = 3


class UnconfirmedPacket(NamedTuple):
    """A packet that was sent to a neighbor and whose outcome is not yet known."""

    packet: Packet
    target: NodeId | Place
    """The target as the layer above of this node gave it."""
    received_at: float
    """The parcel does not yet include the time since then."""
    retries: int


class ShortestPath(Router):
    """Each node sends a packet to a neighbor that is one hop nearer to its target."""

    name = "shortest_path"
    summary = "shortest paths over the current links, from an oracle; only in the simulator"
    settings_type = ShortestPathSettings
    messages = (Packet,)
    needs = frozenset({Capability.GLOBAL_VIEW, Capability.DIRECTORY})
    finds_neighbors = True
    offers = frozenset({Capability.DISTANCES, Capability.NODE_ROUTES})

    def __init__(
        self, node: NodeId, settings: ShortestPathSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._settings = settings
        self._version: int | None = None
        self._next_hops: dict[NodeId, NodeId] = {}
        """The next hop to each target, computed since links last changed."""
        self._unconfirmed: dict[Token, UnconfirmedPacket] = {}
        self._last_token = 0

    def hops_to(self, now: float, target: NodeId) -> int | None:
        hops = self.host.global_view.hops()
        if not 0 <= target < len(hops):
            return None
        distance = int(hops[self.node, target])
        return None if distance < 0 else distance

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        node = target.node if isinstance(target, Place) else target
        if node is None:
            self._drop("place_without_node", event=parcel.event)
            self.up.report_unreachable(target, parcel)
        elif node == self.node:
            self.up.deliver_packet(node, parcel, 0)
        else:
            packet = Packet(parcel, origin=self.node, target=node, hops=1)
            self._forward(now, UnconfirmedPacket(packet, target, now, self._settings.retries))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Packet)
        parcel, hops = message.parcel, message.hops
        if message.origin == self.node:
            self._drop("packet_returned", sender, parcel.event)
        elif message.target == self.node:
            self.up.deliver_packet(message.origin, parcel, hops)
        elif hops >= self._settings.max_hops:
            self._drop("hops_exhausted", sender, parcel.event)
        else:
            onward = Packet(parcel, origin=message.origin, target=message.target, hops=hops + 1)
            self._forward(now, UnconfirmedPacket(onward, message.target, now, self._settings.retries))

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        transit = self._unconfirmed.pop(token)
        if failure is None:
            return
        parcel = transit.packet.parcel.age_by(now - transit.received_at)
        packet = Packet(parcel, origin=transit.packet.origin, target=transit.packet.target, hops=transit.packet.hops)
        again = transit._replace(packet=packet, received_at=now, retries=transit.retries - 1)
        if failure is Failure.UNREACHABLE and transit.retries:
            self._forward(now, again)
        else:
            self._drop_packet(again, failure)

    def _forward(self, now: float, transit: UnconfirmedPacket) -> None:
        next_hop = self._find_next_hop(transit.packet.target)
        if next_hop is None:
            self._drop_packet(transit, "no_route")
            return
        self._last_token += 1
        self._unconfirmed[self._last_token] = transit
        self.port.send(next_hop, transit.packet, token=self._last_token)

    def _find_next_hop(self, target: NodeId) -> NodeId | None:
        """The first neighbor that is one hop nearer to the target, in the order in which they came into reach."""
        if self._version != self.host.global_view.version:
            self._version = self.host.global_view.version
            self._next_hops.clear()
        known = self._next_hops.get(target)
        if known is not None:
            return known
        hops = self.host.global_view.hops()
        if not 0 <= target < len(hops) or hops[self.node, target] < 1:
            return None
        nearer = hops[self.node, target] - 1
        found = next(node for node in self.host.global_view.neighbors(self.node) if hops[node, target] == nearer)
        self._next_hops[target] = found
        return found

    def _drop_packet(self, transit: UnconfirmedPacket, reason: str) -> None:
        self._drop(reason, event=transit.packet.parcel.event)
        if transit.packet.origin == self.node:
            self.up.report_unreachable(transit.target, transit.packet.parcel)

    def _drop(self, reason: str, peer: NodeId | None = None, event: EventId | None = None) -> None:
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))
