"""AODV: ad hoc on-demand distance vector routing (RFC 3561).

This module forwards packets and reacts to broken links; the other modules discover, store and maintain routes.
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import ClassVar

from carrycast.core.model import Failure, NodeId
from carrycast.core.parts import Neighbors
from carrycast.core.protocol import (
    Capability,
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
from carrycast.routers.aodv.messages import (
    MAX_OTHERS,
    MAX_SEQUENCE,
    MAX_UNREACHABLE,
    Bundle,
    Hello,
    Packet,
    RouteError,
    RouteReply,
    RouteRequest,
)
from carrycast.routers.aodv.route_discovery import MAX_HOP_COUNT, PendingDiscovery, RequestReplyHandler, RouteDiscovery
from carrycast.routers.aodv.route_maintenance import HelloMessages, RouteErrors
from carrycast.routers.aodv.route_table import MAX_PRECURSORS
from carrycast.routers.aodv.rules import MAX_SEQUENCE_JUMP, local_repair_ttl, may_repair_locally
from carrycast.routers.aodv.settings import NS2, AodvSettings
from carrycast.routers.aodv.state import AodvPacketInTransit, AodvState, PacketBuffer


class Aodv(Router):
    """Delivers packets to nodes. A place is a target only if it names a node."""

    name = "aodv"
    summary = "routes on demand: expanding ring search, sequence numbers against loops, errors when links break"
    settings_type = AodvSettings
    messages = (RouteRequest, RouteReply, RouteError, Hello, Packet, Bundle)
    # RREQs and RREPs show which neighbors there are; a unicast that fails or a missing HELLO shows that one is gone.
    finds_neighbors = True
    offers = frozenset({Capability.DISTANCES, Capability.NODE_ROUTES})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"rfc3561": {}, "ns2": NS2}

    @classmethod
    def native_parts(cls, settings: Settings) -> Mapping[str, object] | None:
        return {
            "request": RouteRequest,
            "reply": RouteReply,
            "error": RouteError,
            "hello": Hello,
            "packet": Packet,
            "bundle": Bundle,
            "place": Place,
            "max_others": MAX_OTHERS,
            "max_unreachable": MAX_UNREACHABLE,
            "max_hop_count": MAX_HOP_COUNT,
            "max_jump": MAX_SEQUENCE_JUMP,
            "max_sequence": MAX_SEQUENCE,
            "max_precursors": MAX_PRECURSORS,
        }

    def __init__(
        self, node: NodeId, settings: AodvSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._settings = settings
        self._state = AodvState(node, settings, port, host.incarnation)
        self.table = self._state.table
        self._discovery = RouteDiscovery(self._state, host.incarnation)
        self._requests = RequestReplyHandler(self._state, self._discovery, rng)
        self._errors = RouteErrors(self._state)
        self._hellos = HelloMessages(self._state, rng)
        self._buffer = PacketBuffer(settings.buffer)
        self._links = Neighbors()

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """The hop count to a node if there is a valid route."""
        return self.table.hops_to(now, target)

    def on_start(self, now: float) -> None:
        if self._settings.reboot_wait and self.host.incarnation > 0:
            self._discovery.start_reboot_wait()
        self._hellos.start()

    def on_stop(self, now: float) -> None:
        self._discovery.stop()
        self._requests.stop()
        self._hellos.stop()

    # Packets.

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        self.on_route_each(now, (target,), parcel)

    def on_route_each(self, now: float, targets: Sequence[NodeId | Place], parcel: Parcel) -> None:
        own = []
        for target in targets:
            node = target.node if isinstance(target, Place) else target
            if node is None:
                self._state.drop("place_without_node", event=parcel.event)
                self.up.report_unreachable(target, parcel)
            elif node == self.node:
                self.up.deliver_packet(node, parcel, 0)
            else:
                packet = Packet(parcel, origin=self.node, destination=node, hops=1)
                own.append(AodvPacketInTransit(packet, target, None, now, now + self._settings.buffer_s))
        self._forward_each(now, own)

    def _on_packet(self, now: float, sender: NodeId, packet: Packet) -> None:
        if packet.origin == self.node:
            self._state.drop("packet_returned", sender, packet.parcel.event)
            return
        others = packet.others if isinstance(packet, Bundle) else ()
        destinations = dict.fromkeys((packet.destination, *others))
        if self.node in destinations:
            del destinations[self.node]
            self._extend_reverse_routes(now, sender, packet)
            self.up.deliver_packet(packet.origin, packet.parcel, packet.hops)
        if destinations and packet.hops >= self._settings.max_hops:
            self._state.drop("hops_exhausted", sender, packet.parcel.event)
        elif destinations:
            self._extend_reverse_routes(now, sender, packet)
            until = now + self._settings.buffer_s
            onward = [
                Packet(packet.parcel, origin=packet.origin, destination=destination, hops=packet.hops + 1)
                for destination in destinations
            ]
            self._forward_each(now, [AodvPacketInTransit(one, one.destination, sender, now, until) for one in onward])

    # [RFC 6.2] A packet prolongs the routes to its origin and to the previous hop.
    def _extend_reverse_routes(self, now: float, sender: NodeId, packet: Packet) -> None:
        expires_at = now + self._settings.active_route_timeout_s
        self.table.extend_lifetime(now, sender, expires_at)
        reverse = self.table.find(now, packet.origin)
        if reverse is not None and (not reverse.valid or reverse.next_hop == sender):
            # Deviation: only if the packet came over the next hop of that route. Another packet does not show that the
            # route works.
            self.table.extend_lifetime(now, packet.origin, expires_at)

    def _forward_each(self, now: float, packets: Sequence[AodvPacketInTransit]) -> None:
        """Forward one parcel to several nodes. Destinations with the same next hop share a packet."""
        if len(packets) == 1:
            self._forward(now, packets[0])
            return
        by_next_hop: dict[NodeId, list[AodvPacketInTransit]] = {}
        for transit in packets:
            route = self.table.find_valid(now, transit.packet.destination)
            if route is not None:
                by_next_hop.setdefault(route.next_hop, []).append(transit)
        shared = {next_hop: group for next_hop, group in by_next_hop.items() if len(group) > 1}
        for next_hop, group in shared.items():
            for start in range(0, len(group), MAX_OTHERS + 1):
                self._send_group(now, next_hop, group[start : start + MAX_OTHERS + 1])
        sent = {transit.packet.destination for group in shared.values() for transit in group}
        for transit in packets:
            if transit.packet.destination not in sent:
                self._forward(now, transit)

    def _send_group(self, now: float, next_hop: NodeId, group: Sequence[AodvPacketInTransit]) -> None:
        expires_at = now + self._settings.active_route_timeout_s
        first, *others = [transit.packet.destination for transit in group]
        for destination in (first, *others, next_hop):
            self.table.extend_lifetime(now, destination, expires_at)
        parcel, packet = group[0].aged_parcel(now), group[0].packet
        sent: Packet = Packet(parcel, origin=packet.origin, destination=first, hops=packet.hops)
        if others:
            sent = Bundle(parcel, origin=packet.origin, destination=first, hops=packet.hops, others=tuple(others))
        self._state.send(next_hop, sent, group)

    def _forward(self, now: float, transit: AodvPacketInTransit) -> None:
        """Send a packet to the next hop, let it wait for a route, or drop it."""
        packet = transit.packet
        destination = packet.destination
        expires_at = now + self._settings.active_route_timeout_s
        self.table.extend_lifetime(now, destination, expires_at)
        route = self.table.find_valid(now, destination)
        if route is not None:
            # [RFC 6.2] A packet also prolongs the routes to its destination and to the next hop.
            self.table.extend_lifetime(now, route.next_hop, expires_at)
            if now > transit.received_at:
                parcel = transit.aged_parcel(now)
                packet = Packet(parcel, origin=packet.origin, destination=destination, hops=packet.hops)
            self._state.send(route.next_hop, packet, (transit,))
        elif transit.previous_hop is None:
            self._buffer_packet(now, transit)
            self._discovery.start(now, destination)
        elif destination in self._discovery:
            self._buffer_packet(now, transit)
        else:
            if self._discovery.waits_after_reboot:
                # [RFC 6.13] Another node still routes over this one, which has lost its routes: the wait starts again.
                self._discovery.start_reboot_wait()
            self._errors.notify_sender(now, transit.previous_hop, destination)
            self._drop_packet(now, transit, "no_route")

    def _buffer_packet(self, now: float, transit: AodvPacketInTransit) -> None:
        self._drop_expired(now)
        evicted = self._buffer.add(transit)
        if evicted is not None:
            self._drop_packet(now, evicted, "buffer_full")

    def _drop_expired(self, now: float) -> None:
        for expired in self._buffer.remove_expired(now):
            self._drop_packet(now, expired, "buffer_timeout")

    def _drop_packet(self, now: float, transit: AodvPacketInTransit, reason: str) -> None:
        self._state.drop(reason, event=transit.packet.parcel.event)
        if transit.previous_hop is None:
            self.up.report_unreachable(transit.target, transit.aged_parcel(now))

    # Control messages and route discoveries.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        self._hellos.restart_timer(sender)
        if isinstance(message, Packet):
            self._on_packet(now, sender, message)
            return
        if not self.table.update_previous_hop(now, sender, now + self._settings.active_route_timeout_s):
            self._state.drop("table_full", sender)
            return
        match message:
            case RouteRequest():
                self._requests.on_request(now, sender, message)
                self._send_buffered(now, message.originator)
            case RouteReply():
                self._requests.on_reply(now, sender, message)
                self._send_buffered(now, message.destination)
            case RouteError():
                self._errors.on_error(now, sender, message)
            case Hello():
                self._hellos.on_hello(now, sender, message)
        self._send_buffered(now, sender)

    def _send_buffered(self, now: float, destination: NodeId) -> None:
        """If a discovery has found a route to the destination, end it and send the packets that wait for the route."""
        if destination not in self._discovery:
            return
        route = self.table.find_valid(now, destination)
        if route is None:
            return
        discovery = self._discovery.finish(destination)
        assert discovery is not None
        if discovery.repair_hop_count is not None and route.hop_count > discovery.repair_hop_count:
            # [RFC 6.12] Flag N: upstream nodes may look for a shorter route, and keep theirs.
            self._errors.notify_precursors(now, [route], no_delete=True)
        self._drop_expired(now)
        for transit in self._buffer.remove_for(destination):
            self._forward(now, transit)

    def on_timer(self, now: float, key: TimerKey) -> None:
        match key:
            case "hello":
                self._hellos.send_hello(now)
            case "reboot":
                self._discovery.end_reboot_wait()
                for destination in self._buffer.destinations():
                    self._discovery.start(now, destination)
            case ("discovery", int(destination)):
                self._drop_expired(now)
                failed = self._discovery.send_next_rreq(now, destination)
                if failed is not None:
                    self._on_discovery_failed(now, destination, failed)
            case ("forward", int(number)):
                self._requests.broadcast_delayed(now, number)
            case ("neighbor", int(neighbor)):
                self._on_link_broken(now, neighbor)

    def _on_discovery_failed(self, now: float, destination: NodeId, discovery: PendingDiscovery) -> None:
        waiting = self._buffer.remove_for(destination)
        if discovery.repair_hop_count is None:
            for transit in waiting:
                self._drop_packet(now, transit, "not_found")
            return
        # [RFC 6.12] After a failed local repair the precursors get a RERR, and packets of other nodes are dropped.
        route = self.table.find(now, destination)
        if route is not None:
            self._errors.notify_precursors(now, [route])
        for transit in waiting:
            if transit.previous_hop is not None:
                self._drop_packet(now, transit, "not_repaired")
            else:
                self._forward(now, transit)

    # Broken links.

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        neighbor, packets = self._state.take_unconfirmed(token)
        if failure is None:
            return
        if failure is Failure.UNREACHABLE and not packets:
            self._requests.on_reply_failed(now, neighbor)
        if failure is Failure.UNREACHABLE and self._settings.detection == "link_layer":
            self._on_link_broken(now, neighbor, packets)
        else:
            for transit in packets:
                self._drop_packet(now, transit, failure)

    def on_link_up(self, now: float, link: Link) -> None:
        self._links.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self._links.remove(link) and self._settings.detection == "link_layer":
            self._on_link_broken(now, link.neighbor)

    # [RFC 6.11 (i)]
    def _on_link_broken(self, now: float, neighbor: NodeId, packets: Sequence[AodvPacketInTransit] = ()) -> None:
        """Invalidate the routes over a neighbor and notify their precursors. `packets` have failed on the link."""
        self._hellos.forget(neighbor)
        broken = self.table.invalidate_next_hop(now, neighbor)
        # [RFC 6.12] While a route is being repaired, its precursors get no RERR.
        repairing = {transit.packet.destination for transit in packets if self._try_local_repair(now, transit)}
        notified = self._errors.notify_precursors(
            now, [route for route in broken if route.destination not in repairing]
        )
        for transit in packets:
            has_route = self.table.find_valid(now, transit.packet.destination) is not None
            may_retry = transit.previous_hop is not None or self._settings.rebuffer
            if may_retry and (has_route or transit.previous_hop not in notified):
                self._forward(now, transit)
            else:
                self._drop_packet(now, transit, Failure.UNREACHABLE)

    def _try_local_repair(self, now: float, transit: AodvPacketInTransit) -> bool:
        """Start a local repair of a packet's route if this node may. True if a discovery is under way."""
        packet, settings = transit.packet, self._settings
        route = self.table.find(now, packet.destination)
        if transit.previous_hop is None or route is None or route.valid:
            return False
        hops_done = packet.hops - 1
        if packet.destination not in self._discovery and may_repair_locally(settings, hops_done, route.hop_count):
            ttl = local_repair_ttl(settings, hops_done, route.hop_count)
            self._discovery.start_local_repair(now, packet.destination, ttl, route.hop_count)
        return packet.destination in self._discovery
