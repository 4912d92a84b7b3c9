"""DSDV: destination-sequenced distance vector routing.

[DSDV94] is C. Perkins and P. Bhagwat, "Highly dynamic destination-sequenced distance-vector routing (DSDV) for mobile
computers", SIGCOMM 1994, cited by the titles of its sections.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

from carrycast.core.model import Failure, NodeId
from carrycast.core.parts import RoutedPacket, RoutedPacketInTransit, TableRouter
from carrycast.core.protocol import Capability, Host, Interface, Link, Port, RouterUpcalls, TimerKey
from carrycast.core.wire import Message
from carrycast.routers.dsdv.messages import (
    COUNTER_BITS,
    INFINITE,
    AdvertisedRoute,
    DataPacket,
    RouteUpdate,
)
from carrycast.routers.dsdv.route_table import Change, DistanceTable, is_better_route, is_plausible_sequence
from carrycast.routers.dsdv.settings import NS3, DsdvSettings
from carrycast.routers.dsdv.updates import UpdateSender

STARTUP_S = 2.0
"""The first full dump is sent within this time (ns-2: DSDV_STARTUP_JITTER)."""


class Dsdv(TableRouter):
    """Keeps routes to all nodes, by distance vectors with the sequence numbers of their destinations."""

    name = "dsdv"
    summary = "routes to all nodes in advance: distance vectors with sequence numbers against loops"
    settings_type = DsdvSettings
    messages = (RouteUpdate, DataPacket)
    finds_neighbors = True
    offers = frozenset({Capability.DISTANCES, Capability.NODE_ROUTES})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "paper": {},
        "sequence": {"trigger_on": "sequence"},
        "ns3": NS3,
    }
    packet_type = DataPacket

    def __init__(
        self, node: NodeId, settings: DsdvSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up, settings.max_hops)
        self._settings = settings
        self.table = DistanceTable(settings)
        # [DSDV94, Route Advertisements] Own sequence numbers are even. A node that restarts continues above its earlier
        # ones.
        self._updates = UpdateSender(node, (host.incarnation << COUNTER_BITS) + 2, settings, self.table, port, rng)
        self._waits_after_reboot = False
        self._waiting: dict[NodeId, list[RoutedPacketInTransit]] = {}

    def hops_to(self, now: float, target: NodeId) -> int | None:
        if target == self.node:
            return 0
        entry = self.table.find_valid(now, target)
        return None if entry is None else entry.metric

    def find_next_hop(self, now: float, destination: NodeId) -> NodeId | None:
        entry = self.table.find_valid(now, destination)
        return None if entry is None else entry.next_hop

    # Timers.

    def on_start(self, now: float) -> None:
        settings = self._settings
        if settings.reboot_wait and self.host.incarnation > 0:
            self._waits_after_reboot = True
            self.port.set_timer("reboot", settings.hold_s)
        # A random moment: nodes that start together must not stay synchronized.
        self.port.set_timer("dump", min(STARTUP_S, settings.update_interval_s) * self.rng.random())

    def on_stop(self, now: float) -> None:
        for key in ("reboot", "dump"):
            self.port.cancel_timer(key)
        self._updates.stop()

    def on_timer(self, now: float, key: TimerKey) -> None:
        self.table.expire(now)
        match key:
            case "dump":
                self._drop_expired(now)
                self._updates.send_full_dump(now, only_own=self._waits_after_reboot)
                early = self._settings.jitter * self.rng.random()
                self.port.set_timer("dump", self._settings.update_interval_s * (1 - early))
            case "trigger":
                self._updates.send_incremental(now, only_own=self._waits_after_reboot)
            case "reboot":
                self._waits_after_reboot = False

    # Updates.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, DataPacket):
            self.on_packet(now, sender, message)
            return
        assert isinstance(message, RouteUpdate)
        if self.table.expire(now):
            self._updates.trigger(now)
        for route in message.routes:
            if (route.metric == 0) != (route.destination == sender) or (route.sequence % 2 == 1) != (
                route.metric == INFINITE
            ):
                # Only the destination has the metric 0, and only lost routes have odd numbers.
                self.drop("route_forged", sender)
            elif route.destination == self.node:
                self._updates.exceed(route.sequence)
            elif route.metric == INFINITE - 1:
                self.drop("hops_exhausted", sender)
            else:
                metric = min(route.metric + 1, INFINITE)
                self._on_route(now, sender, AdvertisedRoute(route.destination, metric, route.sequence))

    def _on_route(self, now: float, sender: NodeId, route: AdvertisedRoute) -> None:
        """A route over a neighbor, with the metric from here."""
        destination = route.destination
        entry = self.table.find(destination)
        if self._waits_after_reboot and destination != sender:
            return
        if entry is None:
            if route.metric == INFINITE:
                return
            if self.table.is_full():
                self.drop("table_full", sender)
                return
            # [DSDV94, Route Advertisements] Newly recorded routes are advertised at once.
            self.table.add(now, sender, route)
            self._updates.trigger(now)
            self._send_waiting(now, destination)
            return
        if not is_plausible_sequence(route.sequence, entry.sequence):
            self.drop("sequence_forged", sender)
            return
        # A neighbor whose number has a new incarnation has restarted, and lost its routes.
        restarted = destination == sender and route.sequence >> COUNTER_BITS > entry.sequence >> COUNTER_BITS
        if restarted and self.table.lose_neighbor(now, sender, but=sender):
            self._updates.trigger(now)
        if is_better_route(route.sequence, route.metric, entry.sequence, entry.metric):
            if route.metric == INFINITE and sender != entry.next_hop and self._settings.break_reports == "next_hop":
                return
            self.table.replace(now, entry, sender, route)
            if entry.change is Change.METRIC or self._settings.trigger_on == "sequence":
                self._updates.trigger(now, entry.advertise_at)
            if entry.is_valid:
                self._send_waiting(now, destination)
        elif sender == entry.next_hop and (route.sequence, route.metric) == (entry.sequence, entry.metric):
            # The next hop still has the route.
            if entry.is_valid:
                entry.expires_at = now + self._settings.hold_s
        elif route.metric == INFINITE and entry.is_valid:
            # [DSDV94, Responding to Topology Changes] "When a node receives an infinite metric, and it has an equal or
            # later sequence number with a finite metric, it triggers a route update broadcast to disseminate the
            # important news about that destination."
            entry.change = Change.METRIC
            self._updates.trigger(now, entry.advertise_at)

    # Packets.

    def on_packet(self, now: float, sender: NodeId, packet: RoutedPacket) -> None:
        if self._waits_after_reboot and packet.destination != self.node:
            self.drop("rebooted", sender, packet.parcel.event)
        else:
            super().on_packet(now, sender, packet)

    def on_no_route(self, now: float, transit: RoutedPacketInTransit) -> None:
        """Own packets wait, as in ns-2; the paper says nothing about them."""
        if transit.previous_hop is not None or not self._settings.buffer:
            self.drop_packet(now, transit, "no_route")
            return
        self._drop_expired(now)
        waiting = self._waiting.setdefault(transit.packet.destination, [])
        waiting.append(transit)
        if len(waiting) > self._settings.buffer:
            self.drop_packet(now, waiting.pop(0), "buffer_full")

    def _send_waiting(self, now: float, destination: NodeId) -> None:
        if destination in self._waiting:
            self._drop_expired(now)
            for transit in self._waiting.pop(destination, ()):
                self.forward(now, transit)

    def _drop_expired(self, now: float) -> None:
        for destination, waiting in list(self._waiting.items()):
            while waiting and waiting[0].received_at + self._settings.buffer_s <= now:
                self.drop_packet(now, waiting.pop(0), "buffer_timeout")
            if not waiting:
                del self._waiting[destination]

    # Broken links.

    def on_neighbor_unreachable(self, now: float, neighbor: NodeId) -> None:
        if self._settings.detection == "link_layer" and self.table.lose_neighbor(now, neighbor):
            # [DSDV94, Responding to Topology Changes] "such modified routes are immediately disclosed in a broadcast
            # routing information packet."
            self._updates.trigger(now)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self.on_neighbor_unreachable(now, link.neighbor)
