"""GSR: geographic source routing along streets.

[GSR03] is C. Lochert, H. Hartenstein, J. Tian, H. Füßler, D. Hermann and M. Mauve, "A routing strategy for vehicular ad
hoc networks in city environments", IEEE Intelligent Vehicles 2003. [A-STAR] is B.-C. Seet and others, "A-STAR: a mobile
ad hoc routing strategy for metropolis vehicular communications", Networking 2004.
"""

from math import isfinite
from random import Random
from typing import NamedTuple

from carrycast.core.model import EventId, Failure, NodeId, Position, foot
from carrycast.core.parts import BoundedSeenCache, StreetGraph, distance_m
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
    TimerKey,
    Token,
)
from carrycast.core.wire import Message, Parcel
from carrycast.routers.gsr.messages import MAX_CROSSINGS, StreetBeacon, StreetPacket
from carrycast.routers.gsr.neighbors import StreetNeighbors
from carrycast.routers.gsr.settings import GsrSettings


class StreetPacketInTransit(NamedTuple):
    """A packet on its way through this node."""

    packet: StreetPacket
    target: NodeId | Place
    """The target as the layer above of this node gave it."""
    previous_hop: NodeId | None
    """The neighbor that sent the packet; None if this node is its origin."""
    received_at: float

    def aged_parcel(self, now: float) -> Parcel:
        """The parcel, with the time that it has spent at this node."""
        parcel = self.packet.parcel
        return parcel.age_by(now - self.received_at) if now > self.received_at else parcel


class Gsr(Router):
    """Delivers packets to a position, along the shortest way on the map, from crossing to crossing."""

    name = "gsr"
    summary = "by positions along streets: the shortest way on the map, greedily from crossing to crossing"
    settings_type = GsrSettings
    messages = (StreetBeacon, StreetPacket)
    needs = frozenset({Capability.POSITION, Capability.MAP})
    offers = frozenset({Capability.PLACE_ROUTES})
    finds_neighbors = True

    def __init__(
        self, node: NodeId, settings: GsrSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._settings = settings
        self.table = StreetNeighbors(settings.expiry * settings.beacon_s, settings.max_neighbors)
        self._streets: StreetGraph | None = None
        self._delivered = BoundedSeenCache(settings.max_seen)
        self._last_number = host.incarnation << 32
        self._last_token = 0
        self._unconfirmed: dict[Token, tuple[NodeId, StreetPacketInTransit]] = {}

    def on_start(self, now: float) -> None:
        # A random moment of the first period: nodes that start together must not stay synchronized.
        self.port.set_timer("beacon", self._settings.beacon_s * self.rng.random())

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("beacon")

    def on_timer(self, now: float, key: TimerKey) -> None:
        jitter = self._settings.beacon_jitter
        self.port.set_timer("beacon", self._settings.beacon_s * self.rng.uniform(1 - jitter, 1 + jitter))
        here = self._position(now)
        if here is not None:
            self.port.broadcast(StreetBeacon(here))

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.table.remove(link.neighbor)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, StreetPacket):
            self._forward(now, StreetPacketInTransit(message, message.place, sender, now))
            return
        assert isinstance(message, StreetBeacon)
        if not _is_finite(message.position):
            self._drop("absurd_position", None, sender)
        elif not self.table.update(now, sender, message.position):
            self._drop("table_full", None, sender)

    # Packets.

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        self.table.remove_expired(now)
        place = target if isinstance(target, Place) else None
        if place is None:
            assert isinstance(target, int)
            if target not in self.table:
                self._drop("position_unknown", parcel.event, target)
                self.up.report_unreachable(target, parcel)
                return
            place = Place(self.table.position(target), 0.0, target)
        self._last_number += 1
        packet = StreetPacket(parcel, origin=self.node, number=self._last_number, place=place, crossings=(), hops=0)
        here = self._position(now)
        if here is not None and _is_finite(place.position):
            # [GSR03, 3] The sender computes the shortest path along streets "by Dijkstra's algorithm", and the packet
            # carries the crossings.
            path = self._find_streets().shortest_path(here, place.position)
            packet = _with_path(packet, path or ())
        self._forward(now, StreetPacketInTransit(packet, target, None, now))

    def _forward(self, now: float, transit: StreetPacketInTransit) -> None:
        """Deliver a packet, or send it toward the next crossing."""
        packet = transit.packet
        place, here = packet.place, self._position(now)
        if here is None or not _is_finite(place.position) or not all(map(_is_finite, packet.crossings)):
            self._drop_packet(now, transit, "no_position")
            return
        if place.node == self.node or (place.node is None and distance_m(here, place.position) <= place.radius_m):
            self._deliver(now, transit)
            return
        self.table.remove_expired(now)
        if place.node is not None and place.node in self.table:
            self._send(now, transit, place.node)
            return
        crossings = self._skip_passed(here, packet.crossings, place.position)
        transit = transit._replace(packet=_with_path(packet, crossings))
        point = crossings[0] if crossings else place.position
        nearest = self.table.find_nearest(point)
        # [GSR03, 3] Between crossings, the packet is forwarded greedily.
        if nearest is not None and nearest[0] < distance_m(here, point):
            self._send(now, transit, nearest[1])
        elif crossings:
            self._take_detour(now, transit, here)
        elif place.node is None:
            # No neighbor is nearer to the place: as far as this node knows, it is the nearest.
            self._deliver(now, transit)
        else:
            self._drop_packet(now, transit, "local_minimum")

    def _skip_passed(
        self, here: Position, crossings: tuple[Position, ...], destination: Position
    ) -> tuple[Position, ...]:
        """The crossings that are still ahead. One is passed when this node is on it, or when this node or a neighbor is
        in the street behind it: then the packet can turn."""
        while crossings:
            following = crossings[1] if len(crossings) > 1 else destination
            if distance_m(here, crossings[0]) > self._settings.crossing_m and not any(
                self._is_on_street(place, crossings[0], following) for place in (here, *self.table.positions())
            ):
                break
            crossings = crossings[1:]
        return crossings

    def _is_on_street(self, place: Position, crossing: Position, following: Position) -> bool:
        """Whether a place is on the street that leaves a crossing toward the following point."""
        if crossing == following:
            return False
        point = foot(place, crossing, following)
        return point != crossing and distance_m(place, point) <= self._settings.crossing_m

    # [A-STAR, 3.2] Where no neighbor is nearer to the next crossing, the street is out of service for the packet, and a
    # new path is computed from here.
    def _take_detour(self, now: float, transit: StreetPacketInTransit, here: Position) -> None:
        packet = transit.packet
        streets = self._find_streets()
        piece = streets.piece_before(here, packet.crossings[0])
        if piece is None or piece in packet.closed or len(packet.closed) >= self._settings.detours:
            self._drop_packet(now, transit, "street_empty")
            return
        closed = (*packet.closed, piece)
        path = streets.shortest_path(here, packet.place.position, frozenset(closed), packet.crossings[0])
        if path is None:
            self._drop_packet(now, transit, "street_empty")
            return
        self.port.note(Fact("detour", event=packet.parcel.event))
        changed = StreetPacket(
            packet.parcel,
            origin=packet.origin,
            number=packet.number,
            place=packet.place,
            crossings=path[:MAX_CROSSINGS],
            closed=closed,
            hops=packet.hops,
        )
        self._forward(now, transit._replace(packet=changed))

    def _send(self, now: float, transit: StreetPacketInTransit, next_hop: NodeId) -> None:
        packet = transit.packet
        if packet.hops >= self._settings.max_hops:
            self._drop_packet(now, transit, "hops_exhausted")
            return
        sent = StreetPacket(
            transit.aged_parcel(now),
            origin=packet.origin,
            number=packet.number,
            place=packet.place,
            crossings=packet.crossings,
            closed=packet.closed,
            hops=packet.hops + 1,
        )
        self._last_token += 1
        self._unconfirmed[self._last_token] = (next_hop, transit)
        self.port.send(next_hop, sent, token=self._last_token)

    def _deliver(self, now: float, transit: StreetPacketInTransit) -> None:
        packet = transit.packet
        # A packet is known by its origin and number, as an event is by its source and sequence number.
        if self._delivered.add(now, EventId(packet.origin, packet.number), now + self._settings.seen_s):
            self.up.deliver_packet(packet.origin, transit.aged_parcel(now), packet.hops)
        else:
            # A sender whose acknowledgement was lost has sent the packet over another path too.
            self._drop("repeated", packet.parcel.event, transit.previous_hop)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        neighbor, transit = self._unconfirmed.pop(token)
        if failure is Failure.UNREACHABLE:
            self.table.remove(neighbor)
            self.port.note(Fact("reroute", event=transit.packet.parcel.event, peer=neighbor))
            self._forward(now, transit)
        elif failure is not None:
            self._drop_packet(now, transit, failure)

    def _find_streets(self) -> StreetGraph:
        if self._streets is None:
            self._streets = StreetGraph(self.host.road_map())
        return self._streets

    def _position(self, now: float) -> Position | None:
        here = self.host.position(now)
        return here if here is not None and _is_finite(here) else None

    def _drop_packet(self, now: float, transit: StreetPacketInTransit, reason: str) -> None:
        self._drop(reason, transit.packet.parcel.event, transit.previous_hop)
        if transit.previous_hop is None:
            self.up.report_unreachable(transit.target, transit.aged_parcel(now))

    def _drop(self, reason: str, event: EventId | None, peer: NodeId | None = None) -> None:
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))


def _with_path(packet: StreetPacket, crossings: tuple[Position, ...]) -> StreetPacket:
    if crossings == packet.crossings:
        return packet
    return StreetPacket(
        packet.parcel,
        origin=packet.origin,
        number=packet.number,
        place=packet.place,
        crossings=crossings[:MAX_CROSSINGS],
        closed=packet.closed,
        hops=packet.hops,
    )


def _is_finite(place: Position) -> bool:
    return isfinite(place[0]) and isfinite(place[1])
