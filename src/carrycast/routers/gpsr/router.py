"""GPSR: greedy perimeter stateless routing (Karp and Kung, MobiCom 2000), to nodes and to places."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from carrycast.core.model import Failure, NodeId, Position, Velocity
from carrycast.core.parts import Neighbors
from carrycast.core.protocol import (
    Capability,
    Fact,
    Host,
    Interface,
    Link,
    Place,
    Port,
    Router,
    RouterUpcalls,
    Settings,
    TimerKey,
    Token,
)
from carrycast.core.wire import Message, Parcel
from carrycast.routers.gpsr.beacons import BEACON_ERROR_M, Beacons, is_valid_position
from carrycast.routers.gpsr.geometry import dot_sign, is_shorter, orientation, squared_distance_m2
from carrycast.routers.gpsr.messages import MAX_HOPS, MAX_OTHERS, GeoBeacon, GeoBundle, GeoPacket, PerimeterHeader
from carrycast.routers.gpsr.neighbor_table import NeighborTable
from carrycast.routers.gpsr.packets import GeoPacketInTransit, SeenPackets
from carrycast.routers.gpsr.perimeter import Edge, enter_perimeter, follow_face, planarize
from carrycast.routers.gpsr.settings import GpsrSettings


class Gpsr(Router):
    """Delivers packets to a position: to any node within a radius, to the nearest node, or to a given node there.

    It sends its own beacons and removes expired neighbors itself, so it runs with discovery "none".
    """

    name = "gpsr"
    summary = "by positions: greedily to the neighbor nearest to the target, around voids by the right-hand rule"
    settings_type = GpsrSettings
    messages = (GeoBeacon, GeoPacket, GeoBundle)
    needs = frozenset({Capability.POSITION})
    offers = frozenset({Capability.PLACE_ROUTES})
    finds_neighbors = True
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "ns2": {"beacon_s": 0.5, "stop_loops": False},
        "overhearing": {"overhear": True, "suppress_beacons": True},
        "rng": {"planarization": "rng"},
        "predictive": {"dead_reckoning": True, "beacon_skips": 3},
    }

    @classmethod
    def native_parts(cls, settings: Settings) -> Mapping[str, object] | None:
        assert isinstance(settings, GpsrSettings)
        if settings.dead_reckoning:
            return None
        return {
            "beacon": GeoBeacon,
            "packet": GeoPacket,
            "bundle": GeoBundle,
            "perimeter_header": PerimeterHeader,
            "place": Place,
            "position": Position,
            "orientation": orientation,
            "dot_sign": dot_sign,
            "is_shorter": is_shorter,
            "max_hops": MAX_HOPS,
            "max_others": MAX_OTHERS,
            "beacon_error_m": BEACON_ERROR_M,
        }

    def __init__(
        self, node: NodeId, settings: GpsrSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._settings = settings
        self._max_range_m2 = settings.max_range_m**2
        self._max_hops = min(settings.max_hops, MAX_HOPS)
        self.table = NeighborTable(settings.expiry_s, settings.max_neighbors)
        self._beacons = Beacons(settings, port, host, rng)
        self._links = Neighbors()
        self._planar_graph: tuple[int, list[Edge]] | None = None
        """This node's edges in the planar graph, and the version of the neighbor table they were computed from."""
        self._seen = SeenPackets(settings.seen_s, settings.max_seen, not settings.stop_loops)
        self._last_number = host.incarnation << 32
        self._own_position: tuple[float, Position | None] = (float("nan"), None)
        """The time and the position of this node then: the host is asked once at each time."""
        self._last_token = 0
        self._unconfirmed: dict[Token, tuple[NodeId, Sequence[GeoPacketInTransit]]] = {}

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """0 for this node, 1 for a neighbor, else None."""
        return 0 if target == self.node else self.table.hops_to(now, target)

    def on_start(self, now: float) -> None:
        self._beacons.start()

    def on_stop(self, now: float) -> None:
        self._beacons.stop()

    def on_timer(self, now: float, key: TimerKey) -> None:
        self._beacons.on_timer(now)

    def on_link_up(self, now: float, link: Link) -> None:
        self._links.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self._links.remove(link):
            self.table.remove(link.neighbor)

    # Received messages.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, GeoBeacon):
            self._update_neighbor(now, sender, message.position, message.velocity)
            return
        assert isinstance(message, GeoPacket)
        if message.at is not None and self._settings.piggyback:
            self._update_neighbor(now, sender, message.at, self.table.velocity(sender))
        if not self._seen.add_arrival(now, sender, message):
            self._drop("repeated", message, sender)
        elif isinstance(message, GeoBundle):
            self._forward_each(
                now, [GeoPacketInTransit(packet, packet.place, sender, now) for packet in message.split()]
            )
        else:
            self._forward(now, GeoPacketInTransit(message, message.place, sender, now))

    def on_overheard(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        # [GPSR00 §2.1] Interfaces are in promiscuous mode: nodes in range learn the position of the forwarder.
        if isinstance(message, GeoPacket) and message.at is not None and self._settings.piggyback:
            self._update_neighbor(now, sender, message.at, self.table.velocity(sender))

    def _update_neighbor(self, now: float, sender: NodeId, position: Position, velocity: Velocity | None) -> None:
        here = self._position(now)
        if not is_valid_position(position) or (
            here is not None and squared_distance_m2(here, position) > self._max_range_m2
        ):
            self.port.note(Fact("drop", peer=sender, reason="absurd_position"))
        elif velocity is not None and not self._is_plausible_velocity(velocity):
            self.port.note(Fact("drop", peer=sender, reason="absurd_velocity"))
        else:
            is_new = self.table.update(now, sender, position, velocity)
            if is_new is None:
                self.port.note(Fact("drop", peer=sender, reason="table_full"))
            elif is_new:
                self._beacons.on_new_neighbor()

    def _position(self, now: float) -> Position | None:
        if self._own_position[0] != now:
            here = self.host.position(now)
            self._own_position = (now, here if is_valid_position(here) else None)
        return self._own_position[1]

    def _is_plausible_velocity(self, velocity: Velocity) -> bool:
        """Whether a node with this velocity can still be a neighbor when its entry expires."""
        max_mps = self._settings.max_range_m / self._settings.expiry_s
        return velocity[0] * velocity[0] + velocity[1] * velocity[1] <= max_mps * max_mps

    # Forwarding.

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        transit = self._make_packet(now, target, parcel)
        if transit is not None:
            self._forward(now, transit)

    def on_route_each(self, now: float, targets: Sequence[NodeId | Place], parcel: Parcel) -> None:
        own = (self._make_packet(now, target, parcel) for target in targets)
        self._forward_each(now, [transit for transit in own if transit is not None])

    def _make_packet(self, now: float, target: NodeId | Place, parcel: Parcel) -> GeoPacketInTransit | None:
        place = target if isinstance(target, Place) else None
        if place is None:
            self.table.remove_expired(now)
            assert isinstance(target, int)
            if target not in self.table:
                # A node that is no neighbor can be routed to only by its last known position.
                self.port.note(Fact("drop", event=parcel.event, peer=target, reason="position_unknown"))
                self.up.report_unreachable(target, parcel)
                return None
            place = Place(self.table.position(now, target), 0.0, target)
        self._last_number += 1
        packet = GeoPacket(parcel, origin=self.node, number=self._last_number, place=place, hops=0)
        return GeoPacketInTransit(packet, target, None, now)

    def _forward_each(self, now: float, packets: Sequence[GeoPacketInTransit]) -> None:
        """Forward one parcel to several places. Places with the same greedy next hop share a packet."""
        here = self._position(now)
        by_next_hop: dict[NodeId, list[GeoPacketInTransit]] = {}
        if here is not None and len(packets) > 1:
            self.table.remove_expired(now)
            for transit in packets:
                place = transit.packet.place
                own_m2 = squared_distance_m2(here, place.position)
                next_hop = None if self._is_destination(place, own_m2) else self._next_greedy_hop(now, place, own_m2)
                if next_hop is not None:
                    by_next_hop.setdefault(next_hop, []).append(transit)
            by_next_hop = {next_hop: group for next_hop, group in by_next_hop.items() if len(group) > 1}
            for next_hop, group in by_next_hop.items():
                for start in range(0, len(group), MAX_OTHERS + 1):
                    self._send_group(now, group[start : start + MAX_OTHERS + 1], here, next_hop)
        sent = {transit.packet.place for group in by_next_hop.values() for transit in group}
        for transit in packets:
            if transit.packet.place not in sent:
                self._forward(now, transit)

    def _forward(self, now: float, transit: GeoPacketInTransit) -> None:
        """Deliver a packet here, or forward it in greedy or perimeter mode."""
        packet = transit.packet
        place, destination = packet.place, packet.place.position
        here = self._position(now)
        if here is None or not is_valid_position(destination):
            self._drop_packet(now, transit, "no_position")
            return
        own_m2 = squared_distance_m2(here, destination)
        # [003 §3.5] A node within the radius captures the packet; if there is none, the nearest node does.
        if self._is_destination(place, own_m2):
            self._deliver(now, transit)
            return
        self.table.remove_expired(now)
        header = packet.perimeter
        if (
            header is not None
            and header.entry_node != self.node
            and own_m2 < squared_distance_m2(header.lp, destination)
        ):
            # [GPSR00 §2.3] Nearer than Lp: back to greedy mode. The entry node itself does not do this, even if it has
            # moved a little nearer: the packet would never stop touring the face.
            header = None
        next_hop = self._next_greedy_hop(now, place, own_m2, is_greedy=header is None)
        if next_hop is not None:
            self._send(now, transit, here, next_hop, None)
        else:
            self._forward_by_perimeter(now, transit, here, header)

    def _is_destination(self, place: Place, own_m2: float) -> bool:
        if place.node is not None:
            return place.node == self.node
        return own_m2 <= place.radius_m * place.radius_m

    def _next_greedy_hop(self, now: float, place: Place, own_m2: float, is_greedy: bool = True) -> NodeId | None:
        """The next hop of greedy forwarding; None at a local minimum. In perimeter mode only the target itself."""
        node = place.node
        if node is not None and node in self.table and self._settings.direct:
            return node
        if not is_greedy:
            return None
        nearest = self.table.find_nearest(now, place.position)
        # [GPSR00 §2.1] The neighbor nearest to the destination, if it is nearer than this node.
        if nearest is not None and nearest[0] < own_m2:
            return nearest[1]
        if node is not None and node in self.table:
            # The target is as near as this node: usually both are at the same place.
            return node if squared_distance_m2(self.table.position(now, node), place.position) <= own_m2 else None
        return None

    def _forward_by_perimeter(
        self, now: float, transit: GeoPacketInTransit, here: Position, header: PerimeterHeader | None
    ) -> None:
        """Enter or continue perimeter mode, until the packet has toured the face around the destination."""
        place = transit.packet.place
        destination = place.position
        if here == destination or self._settings.recovery == "none":
            self._end_packet(now, transit, place.node is None, "local_minimum")
            return
        edges = self._planar_edges(now, here)
        previous_hop = None if header is None else self._previous_hop_position(now, transit)
        if header is None or previous_hop is None or previous_hop == here:
            # A previous hop at the same place gives no direction to turn from. The packet loses nothing by entering
            # perimeter mode here.
            if edges:
                self._send(now, transit, here, *enter_perimeter(self.node, here, edges, destination))
            else:
                self._end_packet(now, transit, place.node is None, "no_neighbor")
            return
        step = follow_face(self.node, here, edges, previous_hop, destination, header) if edges else None
        if step is None:
            # [003 §3.5, GPSR00 §2.3] The face is toured: the entry node is the nearest, or the target is unreachable.
            self._end_packet(now, transit, place.node is None and header.entry_node == self.node, "face_toured")
        else:
            self._send(now, transit, here, *step)

    def _previous_hop_position(self, now: float, transit: GeoPacketInTransit) -> Position | None:
        """The position of the previous hop, from the table as in the planar graph, else from the packet."""
        previous_hop = transit.previous_hop
        if previous_hop is not None and previous_hop in self.table:
            return self.table.position(now, previous_hop)
        return transit.packet.at

    def _planar_edges(self, now: float, here: Position) -> list[Edge]:
        """This node's edges in the planar graph, computed again only when the neighbor table has changed."""
        if self._planar_graph is None or self._planar_graph[0] != self.table.version:
            edges = planarize(self.node, here, self.table.positions(now), self._settings.planarization)
            self._planar_graph = (self.table.version, edges)
        return self._planar_graph[1]

    def _send(
        self, now: float, transit: GeoPacketInTransit, here: Position, next_hop: NodeId, header: PerimeterHeader | None
    ) -> None:
        packet = transit.packet
        if packet.hops >= self._max_hops:
            self._drop_packet(now, transit, "hops_exhausted")
            return
        at = here if self._settings.piggyback or header is not None else None
        sent = GeoPacket(
            transit.aged_parcel(now),
            origin=packet.origin,
            number=packet.number,
            place=packet.place,
            hops=packet.hops + 1,
            at=at,
            perimeter=header,
        )
        self._transmit(next_hop, sent, (transit,))

    def _send_group(self, now: float, group: Sequence[GeoPacketInTransit], here: Position, next_hop: NodeId) -> None:
        packet = group[0].packet
        if len(group) == 1 or packet.hops >= self._max_hops:
            for transit in group:
                self._send(now, transit, here, next_hop, None)
            return
        sent = GeoBundle(
            group[0].aged_parcel(now),
            origin=packet.origin,
            number=packet.number,
            place=packet.place,
            hops=packet.hops + 1,
            at=here if self._settings.piggyback else None,
            others=tuple(transit.packet.place for transit in group[1:]),
        )
        self._transmit(next_hop, sent, group)

    def _transmit(self, next_hop: NodeId, sent: GeoPacket, group: Sequence[GeoPacketInTransit]) -> None:
        self._last_token += 1
        self._unconfirmed[self._last_token] = (next_hop, group)
        self._beacons.on_packet_sent()
        self.port.send(next_hop, sent, token=self._last_token)

    def _deliver(self, now: float, transit: GeoPacketInTransit) -> None:
        packet = transit.packet
        if self._seen.add_delivery(now, packet):
            self.up.deliver_packet(packet.origin, transit.aged_parcel(now), packet.hops)
        else:
            # A sender whose acknowledgement was lost has sent the packet over another path too.
            self._drop("repeated", packet, transit.previous_hop)

    def _end_packet(self, now: float, transit: GeoPacketInTransit, is_nearest: bool, reason: str) -> None:
        """Deliver a packet for a place if this node is the nearest, else drop it."""
        if is_nearest:
            self._deliver(now, transit)
        else:
            self._drop_packet(now, transit, reason)

    # Failures.

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        neighbor, group = self._unconfirmed.pop(token)
        if failure is None:
            return
        if failure is Failure.UNREACHABLE:
            # [GPSR00 §2.4] Remove the neighbor and forward the packets again.
            self.table.remove(neighbor)
            self.port.note(Fact("reroute", event=group[0].packet.parcel.event, peer=neighbor))
            self._forward_each(now, group)
        else:
            for transit in group:
                self._drop_packet(now, transit, failure)

    def _drop_packet(self, now: float, transit: GeoPacketInTransit, reason: str) -> None:
        self._drop(reason, transit.packet, transit.previous_hop)
        if transit.packet.origin == self.node:
            self.up.report_unreachable(transit.target, transit.aged_parcel(now))

    def _drop(self, reason: str, packet: GeoPacket, peer: NodeId | None) -> None:
        self.port.note(Fact("drop", event=packet.parcel.event, peer=peer, reason=reason))
