"""Shortest paths: unicast as [002 §4.1] has it beneath its overlays. An oracle tells who is linked with whom.

No real node can know that, so it runs in the simulator alone. What it carries goes hop by hop and takes its time, and
a link that breaks under a packet is met as by any router.
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
from carrycast.core.wire import Message, Parcel
from carrycast.routers.shortest_path.messages import Packet


class ShortestPathSettings(Settings, frozen=True):
    """How long it tries."""

    # The usual time to live of IP packets; links that change under a packet may send it to and fro.
    max_hops: Annotated[int, Meta(ge=1, le=255, description="hops after which a packet is dropped")] = 64
    # A link that is there and fails was met by a loss; three tries in a row rarely are.
    retries: Annotated[int, Meta(ge=0, le=20, description="how often a hop that failed is tried again")] = 3


class UnconfirmedPacket(NamedTuple):
    """A packet that was sent on and has no outcome yet."""

    packet: Packet
    asked: NodeId | Place
    """The target in the words of the layer above."""
    since: float
    retries: int


class ShortestPath(Router):
    """Each node sends a packet to the neighbor that is nearest to its target."""

    name = "shortest_path"
    summary = "the shortest way over the links of the moment, as an oracle knows them; for the simulator alone"
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
        self._next: dict[NodeId, NodeId] = {}
        """The neighbor towards each target that was asked for since links last changed."""
        self._under_way: dict[Token, UnconfirmedPacket] = {}
        self._tokens = 0

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
            self._carry(now, UnconfirmedPacket(packet, target, now, self._settings.retries))

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
            self._carry(now, UnconfirmedPacket(onward, message.target, now, self._settings.retries))

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        carried = self._under_way.pop(token)
        if failure is None:
            return
        parcel = carried.packet.parcel.age_by(now - carried.since)
        packet = Packet(parcel, origin=carried.packet.origin, target=carried.packet.target, hops=carried.packet.hops)
        again = carried._replace(packet=packet, since=now, retries=carried.retries - 1)
        if failure is Failure.UNREACHABLE and carried.retries:
            self._carry(now, again)
        else:
            self._give_up(again, failure)

    def _carry(self, now: float, carried: UnconfirmedPacket) -> None:
        neighbor = self._neighbor_towards(carried.packet.target)
        if neighbor is None:
            self._give_up(carried, "no_route")
            return
        self._tokens += 1
        self._under_way[self._tokens] = carried
        self.port.send(neighbor, carried.packet, token=self._tokens)

    def _neighbor_towards(self, target: NodeId) -> NodeId | None:
        """Of the neighbors that are one hop nearer the first, in the order in which they came into reach."""
        if self._version != self.host.global_view.version:
            self._version = self.host.global_view.version
            self._next.clear()
        known = self._next.get(target)
        if known is not None:
            return known
        hops = self.host.global_view.hops()
        if not 0 <= target < len(hops) or hops[self.node, target] < 1:
            return None
        nearer = hops[self.node, target] - 1
        found = next(node for node in self.host.global_view.neighbors(self.node) if hops[node, target] == nearer)
        self._next[target] = found
        return found

    def _give_up(self, carried: UnconfirmedPacket, reason: str) -> None:
        self._drop(reason, event=carried.packet.parcel.event)
        if carried.packet.origin == self.node:
            self.up.report_unreachable(carried.asked, carried.packet.parcel)

    def _drop(self, reason: str, peer: NodeId | None = None, event: EventId | None = None) -> None:
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))
