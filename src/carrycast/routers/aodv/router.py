"""AODV: routes on demand (RFC 3561). This module carries packets; the parts make, mend and end routes."""

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
    TimerKey,
    Token,
)
from carrycast.core.wire import Message, Parcel
from carrycast.routers.aodv.control import Control
from carrycast.routers.aodv.discovery import Discovery, Search
from carrycast.routers.aodv.errors import Errors
from carrycast.routers.aodv.hello import Hellos
from carrycast.routers.aodv.messages import MAX_OTHERS, Bundle, Hello, Packet, RouteError, RouteReply, RouteRequest
from carrycast.routers.aodv.rules import may_repair, repair_ttl
from carrycast.routers.aodv.settings import NS2, AodvSettings
from carrycast.routers.aodv.station import AodvPacketInTransit, Station
from carrycast.routers.aodv.table import Route
from carrycast.routers.aodv.waiting import Waiting


class Aodv(Router):
    """Brings packets to nodes; a place means nothing to it but by the node that is there."""

    name = "aodv"
    summary = "routes on demand: requests in growing rings, sequence numbers against loops, errors when links break"
    settings_type = AodvSettings
    messages = (RouteRequest, RouteReply, RouteError, Hello, Packet, Bundle)
    # Requests and replies tell who is there, and a unicast that fails or a HELLO that is missed who is not.
    finds_neighbors = True
    offers = frozenset({Capability.DISTANCES, Capability.NODE_ROUTES})
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {"rfc3561": {}, "ns2": NS2}

    def __init__(
        self, node: NodeId, settings: AodvSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._settings = settings
        self._station = Station(node, settings, port, host.incarnation)
        self.table = self._station.table
        self._discovery = Discovery(self._station, host.incarnation)
        self._control = Control(self._station, self._discovery, rng)
        self._errors = Errors(self._station)
        self._hellos = Hellos(self._station, rng)
        self._waiting = Waiting(settings.buffer)
        self._links = Neighbors()

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """How far a node is, if a route says so."""
        return self.table.hops_to(now, target)

    def on_start(self, now: float) -> None:
        if self._settings.reboot_wait and self.host.incarnation > 0:
            self._discovery.keep_quiet()
        self._hellos.start()

    def on_stop(self, now: float) -> None:
        self._discovery.stop()
        self._control.stop()
        self._hellos.stop()

    # Packets.

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        self.on_route_each(now, (target,), parcel)

    def on_route_each(self, now: float, targets: Sequence[NodeId | Place], parcel: Parcel) -> None:
        own = []
        for target in targets:
            node = target.node if isinstance(target, Place) else target
            if node is None:
                self._station.drop("place_without_node", event=parcel.event)
                self.up.report_unreachable(target, parcel)
            elif node == self.node:
                self.up.deliver_packet(node, parcel, 0)
            else:
                packet = Packet(parcel, origin=self.node, target=node, hops=1)
                own.append(AodvPacketInTransit(packet, target, None, now, now + self._settings.buffer_s))
        self._carry_each(now, own)

    def _on_packet(self, now: float, sender: NodeId, packet: Packet) -> None:
        if packet.origin == self.node:
            self._station.drop("packet_returned", sender, packet.parcel.event)
            return
        targets = dict.fromkeys((packet.target, *packet.others) if isinstance(packet, Bundle) else (packet.target,))
        if self.node in targets:
            del targets[self.node]
            self._refresh(now, sender, packet)
            self.up.deliver_packet(packet.origin, packet.parcel, packet.hops)
        if targets and packet.hops >= self._settings.max_hops:
            self._station.drop("hops_exhausted", sender, packet.parcel.event)
        elif targets:
            self._refresh(now, sender, packet)
            until = now + self._settings.buffer_s
            onward = [
                Packet(packet.parcel, origin=packet.origin, target=target, hops=packet.hops + 1) for target in targets
            ]
            self._carry_each(now, [AodvPacketInTransit(one, one.target, sender, now, until) for one in onward])

    # [RFC 6.2] A packet prolongs the routes to its source and to the neighbor it came from.
    def _refresh(self, now: float, sender: NodeId, packet: Packet) -> None:
        until = now + self._settings.active_route_timeout_s
        self.table.touch(now, sender, until)
        back = self.table.known(now, packet.origin)
        if back is not None and (not back.valid or back.next_hop == sender):
            # Deviation: only if it came the way the route goes; another packet says nothing of that way.
            self.table.touch(now, packet.origin, until)

    def _carry_each(self, now: float, packets: Sequence[AodvPacketInTransit]) -> None:
        """One parcel to several nodes: those over the same next hop share a packet to it."""
        if len(packets) == 1:
            self._carry(now, packets[0])
            return
        together: dict[NodeId, list[AodvPacketInTransit]] = {}
        for carried in packets:
            route = self.table.valid(now, carried.packet.target)
            if route is not None:
                together.setdefault(route.next_hop, []).append(carried)
        shared = {next_hop: group for next_hop, group in together.items() if len(group) > 1}
        for next_hop, group in shared.items():
            for start in range(0, len(group), MAX_OTHERS + 1):
                self._send_each(now, next_hop, group[start : start + MAX_OTHERS + 1])
        gone = {carried.packet.target for group in shared.values() for carried in group}
        for carried in packets:
            if carried.packet.target not in gone:
                self._carry(now, carried)

    def _send_each(self, now: float, next_hop: NodeId, group: Sequence[AodvPacketInTransit]) -> None:
        until = now + self._settings.active_route_timeout_s
        first, *others = [carried.packet.target for carried in group]
        for target in (first, *others, next_hop):
            self.table.touch(now, target, until)
        parcel, packet = group[0].parcel(now), group[0].packet
        sent: Packet = Packet(parcel, origin=packet.origin, target=first, hops=packet.hops)
        if others:
            sent = Bundle(parcel, origin=packet.origin, target=first, hops=packet.hops, others=tuple(others))
        self._station.send(next_hop, sent, group)

    def _carry(self, now: float, carried: AodvPacketInTransit) -> None:
        packet = carried.packet
        target = packet.target
        until = now + self._settings.active_route_timeout_s
        self.table.touch(now, target, until)
        route = self.table.valid(now, target)
        if route is not None:
            # [RFC 6.2] And it prolongs the routes to its destination and to the next hop.
            self.table.touch(now, route.next_hop, until)
            if now > carried.since:
                packet = Packet(carried.parcel(now), origin=packet.origin, target=target, hops=packet.hops)
            self._station.send(route.next_hop, packet, (carried,))
        elif carried.sender is None:
            self._wait(now, carried)
            self._discovery.begin(now, target)
        elif target in self._discovery:
            self._wait(now, carried)
        else:
            if self._discovery.quiet:
                # [RFC 6.13] Another node still routes over this one, which has lost its routes: the delay starts again.
                self._discovery.keep_quiet()
            self._errors.tell_sender(now, carried.sender, target)
            self._give_up(now, carried, "no_route")

    def _wait(self, now: float, carried: AodvPacketInTransit) -> None:
        self._age(now)
        evicted = self._waiting.add(carried)
        if evicted is not None:
            self._give_up(now, evicted, "buffer_full")

    def _age(self, now: float) -> None:
        for aged in self._waiting.age_by(now):
            self._give_up(now, aged, "buffer_timeout")

    def _give_up(self, now: float, carried: AodvPacketInTransit, reason: str) -> None:
        self._station.drop(reason, event=carried.packet.parcel.event)
        if carried.sender is None:
            self.up.report_unreachable(carried.asked, carried.parcel(now))

    # Routes found, or not.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        self._hellos.hear(sender)
        if isinstance(message, Packet):
            self._on_packet(now, sender, message)
            return
        if not self.table.hear(now, sender, now + self._settings.active_route_timeout_s):
            self._station.drop("table_full", sender)
            return
        match message:
            case RouteRequest():
                self._control.on_request(now, sender, message)
                self._release(now, message.origin)
            case RouteReply():
                self._control.on_reply(now, sender, message)
                self._release(now, message.target)
            case RouteError():
                self._errors.receive(now, sender, message)
            case Hello():
                self._hellos.receive(now, sender, message)
        self._release(now, sender)

    def _release(self, now: float, target: NodeId) -> None:
        """If a route that was searched for is there, send what waits for it."""
        if target not in self._discovery:
            return
        route = self.table.valid(now, target)
        if route is None:
            return
        search = self._discovery.end(target)
        assert search is not None
        if search.repair_hops is not None and route.hops > search.repair_hops:
            # [RFC 6.12] Flag N: those upstream may look for a shorter route, and keep theirs.
            self._errors.tell(now, [route], repaired=True)
        self._age(now)
        for carried in self._waiting.take(target):
            self._carry(now, carried)

    def on_timer(self, now: float, key: TimerKey) -> None:
        match key:
            case "hello":
                self._hellos.say(now)
            case "quiet":
                self._discovery.speak()
                for target in self._waiting.targets():
                    self._discovery.begin(now, target)
            case ("search", int(target)):
                self._age(now)
                ended = self._discovery.go_on(now, target)
                if ended is not None:
                    self._not_found(now, target, ended)
            case ("relay", int(number)):
                self._control.relay(now, number)
            case ("silent", int(neighbor)):
                self._break(now, neighbor)

    def _not_found(self, now: float, target: NodeId, search: Search) -> None:
        waited = self._waiting.take(target)
        if search.repair_hops is None:
            for carried in waited:
                self._give_up(now, carried, "not_found")
            return
        # [RFC 6.12] A repair that failed: those upstream are told now, and packets of others are lost.
        route = self.table.known(now, target)
        if route is not None:
            self._errors.tell(now, [route])
        for carried in waited:
            if carried.sender is not None:
                self._give_up(now, carried, "not_repaired")
            else:
                self._carry(now, carried)

    # Links that break.

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        neighbor, packets = self._station.sent(token)
        if failure is None:
            return
        if failure is Failure.UNREACHABLE and not packets:
            self._control.on_reply_failed(now, neighbor)
        if failure is Failure.UNREACHABLE and self._settings.detection == "link_layer":
            self._break(now, neighbor, packets)
        else:
            for carried in packets:
                self._give_up(now, carried, failure)

    def on_link_up(self, now: float, link: Link) -> None:
        self._links.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self._links.remove(link) and self._settings.detection == "link_layer":
            self._break(now, link.neighbor)

    # [RFC 6.11 (i)]
    def _break(self, now: float, neighbor: NodeId, packets: Sequence[AodvPacketInTransit] = ()) -> None:
        """A link is broken, and packets may have failed on it."""
        self._hellos.forget(neighbor)
        lost = self.table.lose(now, neighbor)
        # [RFC 6.12] Those upstream of what is being repaired are not told yet.
        repairing = {carried.packet.target for carried in packets if self._repairs(now, carried)}
        told = self._errors.tell(now, [route for route in lost if route.target not in repairing])
        for carried in packets:
            target = carried.packet.target
            goes_on = carried.sender is not None or self._settings.rebuffer
            if goes_on and not (carried.sender in told and self.table.valid(now, target) is None):
                self._carry(now, carried)
            else:
                self._give_up(now, carried, Failure.UNREACHABLE)

    def _repairs(self, now: float, carried: AodvPacketInTransit) -> bool:
        """Begin to repair the route of a packet, if that is for this node to do."""
        packet, settings = carried.packet, self._settings
        route: Route | None = self.table.known(now, packet.target)
        if carried.sender is None or route is None or route.valid:
            return False
        hops_done = packet.hops - 1
        if packet.target not in self._discovery and may_repair(settings, hops_done, route.hops):
            ttl = repair_ttl(settings, hops_done, route.hops)
            self._discovery.begin_repair(now, packet.target, ttl, route.hops)
        return packet.target in self._discovery
