"""GeoBroadcast with contention-based forwarding (ETSI EN 302 636-4-1 V1.4.1, cited as GN)."""

from math import isfinite
from random import Random
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId, Position
from carrycast.core.parts import BoundedSeenCache
from carrycast.core.protocol import (
    Capability,
    Fact,
    Host,
    Interface,
    Place,
    Port,
    Router,
    RouterUpcalls,
    TimerKey,
)
from carrycast.core.wire import Message, Parcel
from carrycast.routers.geobroadcast.messages import GeoBroadcastPacket
from carrycast.routers.geobroadcast.rules import (
    ForwardingAlgorithm,
    distance_m,
    is_inside,
    progress_m,
    select_forwarding,
    timeout_s,
)
from carrycast.routers.geobroadcast.settings import GeoBroadcastSettings


class ContendingPacket(NamedTuple):
    """A packet in the CBF packet buffer."""

    packet: GeoBroadcastPacket
    received_at: float


class GeoBroadcast(Router):
    """Delivers a packet to all nodes in a circle. Nodes need no beacons: the receivers of a packet contend."""

    name = "geobroadcast"
    summary = "to all nodes in an area: receivers contend, and the farthest forwards"
    settings_type = GeoBroadcastSettings
    messages = (GeoBroadcastPacket,)
    needs = frozenset({Capability.POSITION})
    offers = frozenset({Capability.AREA_ROUTES})
    finds_neighbors = True

    def __init__(
        self, node: NodeId, settings: GeoBroadcastSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._settings = settings
        self._last_number = host.incarnation << 32
        # A packet is known by its origin and number, as an event is by its source and sequence number.
        self._seen = BoundedSeenCache(settings.max_seen)
        self._contending: dict[EventId, ContendingPacket] = {}

    def on_stop(self, now: float) -> None:
        for id in self._contending:
            self.port.cancel_timer(("contend", id))
        self._contending.clear()

    # [GN, 10.3.11.2] Source operations.
    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        """Send a parcel to all nodes within the radius of a place."""
        here = self._position(now)
        if not isinstance(target, Place):
            self._drop("node_without_place", parcel.event)
        elif here is None or not _is_finite(target.position):
            self._drop("no_position", parcel.event)
        else:
            self._last_number += 1
            self._seen.add(now, EventId(self.node, self._last_number), now + self._settings.seen_s)
            self.port.broadcast(
                GeoBroadcastPacket(
                    parcel,
                    origin=self.node,
                    number=self._last_number,
                    center=target.position,
                    radius_m=target.radius_m,
                    hops_left=self._settings.hop_limit - 1,
                    hops=1,
                    at=here,
                )
            )
            return
        self.up.report_unreachable(target, parcel)

    # [GN, 10.3.11.3] Forwarder and receiver operations.
    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, GeoBroadcastPacket)
        id = EventId(message.origin, message.number)
        if id in self._contending:
            # [GN, E.3, F.3] Another node has forwarded the packet: it is removed from the buffer, and its timer stops.
            del self._contending[id]
            self.port.cancel_timer(("contend", id))
            return
        # Duplicate packet detection [GN, A.2]. This is no recorded drop, since each node hears most packets again.
        if not self._seen.add(now, id, now + self._settings.seen_s):
            return
        here = self._position(now)
        if here is None or not _is_finite(message.center) or not _is_finite(message.at):
            self._drop("no_position", message.parcel.event, sender)
            return
        if is_inside(here, message.center, message.radius_m):
            self.up.deliver_packet(message.origin, message.parcel, message.hops)
        if message.hops_left == 0:
            # [GN, 10.3.11.3] A packet whose remaining hop limit is 0 is not forwarded.
            self._drop("hops_exhausted", message.parcel.event, sender)
            return
        self._contend(now, id, message, here)

    def _contend(self, now: float, id: EventId, message: GeoBroadcastPacket, here: Position) -> None:
        forwarding = select_forwarding(here, message.at, message.center, message.radius_m)
        if forwarding is ForwardingAlgorithm.NONE:
            return
        if forwarding is ForwardingAlgorithm.AREA:
            wait_s = timeout_s(self._settings, distance_m(message.at, here))
        else:
            progress = progress_m(here, message.at, message.center)
            if progress <= 0:
                # [GN, E.3] Only nodes with progress contend.
                return
            wait_s = timeout_s(self._settings, progress)
        if len(self._contending) >= self._settings.max_waiting:
            self._drop("buffer_full", message.parcel.event)
            return
        self._contending[id] = ContendingPacket(message, now)
        self.port.set_timer(("contend", id), wait_s)

    def on_timer(self, now: float, key: TimerKey) -> None:
        """No other node has forwarded the packet: broadcast it."""
        id = key[1]
        assert isinstance(id, EventId)
        packet, received_at = self._contending.pop(id)
        here = self._position(now)
        if here is None:
            self._drop("no_position", packet.parcel.event)
            return
        self.port.broadcast(
            GeoBroadcastPacket(
                packet.parcel.age_by(now - received_at),
                origin=packet.origin,
                number=packet.number,
                center=packet.center,
                radius_m=packet.radius_m,
                hops_left=packet.hops_left - 1,
                hops=min(packet.hops + 1, 255),
                at=here,
            )
        )

    def _position(self, now: float) -> Position | None:
        here = self.host.position(now)
        return here if here is not None and _is_finite(here) else None

    def _drop(self, reason: str, event: EventId | None, peer: NodeId | None = None) -> None:
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))


def _is_finite(place: Position) -> bool:
    return isfinite(place[0]) and isfinite(place[1])
