"""003: what AODV and GPSR do against the waist, each as a router beneath a protocol."""

import math
from random import Random
from typing import Annotated

from msgspec import Meta

from driftcast.model import Failure, NodeId, Position
from driftcast.protocol import (
    Capability,
    Fact,
    Host,
    Interface,
    Link,
    Place,
    Port,
    Router,
    Settings,
    TimerKey,
    Token,
    Upward,
)
from driftcast.wire import Message, Parcel, ParcelMessage

from .rounds import Round

Sequence = Annotated[int, Meta(ge=0, le=2**32)]
Hops = Annotated[int, Meta(ge=0, le=255)]

RING_S = 0.24
"""RFC 3561: 2 · NODE_TRAVERSAL_TIME · (TTL_START + 2)."""
BEACON_S = 1.0
SILENCE_S = 4.5 * BEACON_S
"""GPSR's beacon period B, and the 4.5 · B after which it takes a silent neighbor for gone."""


class RouteRequest(Message, frozen=True, gc=False, tag=1):
    """RFC 3561 RREQ."""

    origin: NodeId
    origin_sequence: Sequence
    search: Round
    target: NodeId
    hops: Hops
    hops_left: Hops


class RouteReply(Message, frozen=True, gc=False, tag=2):
    """RFC 3561 RREP."""

    origin: NodeId
    target: NodeId
    target_sequence: Sequence
    hops: Hops


class RouteError(Message, frozen=True, gc=False, tag=3):
    """RFC 3561 RERR."""

    lost: Annotated[tuple[NodeId, ...], Meta(max_length=255)]


class Packet(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=4):
    """What the layer above wants brought; it counts as what it carries."""

    origin: NodeId
    target: NodeId
    hops: Hops


class AodvSketch(Router):
    """Routes on demand."""

    name = "aodv-sketch"
    messages = (RouteRequest, RouteReply, RouteError, Packet)

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random, up: Upward) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._sequence = 0
        self._search = Round(host.incarnation, 0)
        self._routes: dict[NodeId, tuple[NodeId, int]] = {}
        self._waiting: dict[NodeId, list[tuple[float, Parcel]]] = {}
        self._seen: set[tuple[NodeId, Round]] = set()
        self._tokens = 0
        self._sends: dict[Token, tuple[float, NodeId, Packet]] = {}

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        node = target.node if isinstance(target, Place) else target
        if node is None:
            # A place that nobody in particular is at means nothing to AODV.
            self.up.unreachable(target, parcel)
        elif node in self._routes:
            self._pass(now, Packet(parcel, origin=self.node, target=node, hops=1))
        else:
            self._waiting.setdefault(node, []).append((now, parcel))
            self._sequence += 1
            self._search = self._search.next()
            self.port.broadcast(RouteRequest(self.node, self._sequence, self._search, node, 1, 5))
            self.port.set_timer(("searching", node), RING_S)

    def on_timer(self, now: float, key: TimerKey) -> None:
        assert isinstance(key, tuple)
        _, target = key
        assert isinstance(target, int)
        for since, parcel in self._waiting.pop(target, []):
            self.up.unreachable(target, parcel.aged(now - since))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        match message:
            case RouteRequest(origin=origin):
                if origin == self.node or (origin, message.search) in self._seen:
                    return
                self._seen.add((origin, message.search))
                self._routes[origin] = (sender, message.hops)
                if message.target == self.node:
                    self._sequence += 1
                    self.port.send(sender, RouteReply(origin, self.node, self._sequence, 1))
                elif message.hops_left > 1:
                    m = message
                    onward = (m.origin, m.origin_sequence, m.search, m.target, m.hops + 1, m.hops_left - 1)
                    self.port.broadcast(RouteRequest(*onward))
            case RouteReply(origin=origin, target=target):
                self._routes[target] = (sender, message.hops)
                if origin == self.node:
                    self.port.cancel_timer(("searching", target))
                    for since, parcel in self._waiting.pop(target, []):
                        self._pass(now, Packet(parcel.aged(now - since), origin=self.node, target=target, hops=1))
                else:
                    reply = RouteReply(origin, target, message.target_sequence, message.hops + 1)
                    self.port.send(self._routes[origin][0], reply)
            case RouteError():
                for lost in message.lost:
                    if self._routes.get(lost, (-1, 0))[0] == sender:
                        del self._routes[lost]
            case Packet(target=target):
                if target == self.node:
                    self.up.packet(message.origin, message.parcel, message.hops)
                else:
                    self._pass(now, Packet(message.parcel, origin=message.origin, target=target, hops=message.hops + 1))

    def _pass(self, now: float, packet: Packet) -> None:
        route = self._routes.get(packet.target)
        if route is None:
            self.port.broadcast(RouteError((packet.target,)))
            return
        self._tokens += 1
        self._sends[self._tokens] = (now, route[0], packet)
        self.port.send(route[0], packet, token=self._tokens)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        since, neighbor, packet = self._sends.pop(token)
        if failure is Failure.UNREACHABLE:
            lost = tuple(target for target, route in self._routes.items() if route[0] == neighbor)
            for target in lost:
                del self._routes[target]
            self.port.broadcast(RouteError(lost))
        if failure and packet.origin == self.node:
            self.up.unreachable(packet.target, packet.parcel.aged(now - since))


class Here(Message, frozen=True, gc=False, tag=1):
    """GPSR's own beacon: where the sender is."""

    position: Position


class GeoPacket(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=2):
    """GPSR's header, greedy part, with the place or the node at a place that the packet wants to reach."""

    origin: NodeId
    place: Place
    hops: Hops


class GpsrSketch(Router):
    """Greedy forwarding by positions; at a local minimum the node is taken for the nearest.

    It says its own beacons and forgets the silent itself, so a scenario may have discovery "none" beneath it.
    """

    name = "gpsr-sketch"
    messages = (Here, GeoPacket)
    needs = frozenset({Capability.POSITION})

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random, up: Upward) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._where: dict[NodeId, tuple[Position, float]] = {}
        self._tokens = 0
        self._sends: dict[Token, tuple[NodeId, GeoPacket]] = {}

    def on_start(self, now: float) -> None:
        self.port.set_timer("beacon", BEACON_S * self.rng.uniform(0.5, 1.5))

    def on_stop(self, now: float) -> None:
        self.port.cancel_timer("beacon")

    def on_timer(self, now: float, key: TimerKey) -> None:
        here = self.host.position(now)
        if here is not None:
            self.port.broadcast(Here(here))
        self.port.set_timer("beacon", BEACON_S * self.rng.uniform(0.5, 1.5))

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        self._where.pop(link.neighbor, None)

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        if isinstance(target, Place):
            self._pass(now, GeoPacket(parcel, origin=self.node, place=target, hops=1))
        elif target in self._where:
            self._pass(
                now, GeoPacket(parcel, origin=self.node, place=Place(self._where[target][0], 0.0, target), hops=1)
            )
        else:
            # A node that is no neighbor needs the position it was last heard of at.
            self.up.unreachable(target, parcel)

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        match message:
            case Here():
                self._where[sender] = (message.position, now + SILENCE_S)
            case GeoPacket():
                onward = GeoPacket(message.parcel, origin=message.origin, place=message.place, hops=message.hops + 1)
                self._pass(now, onward)

    def _pass(self, now: float, packet: GeoPacket) -> None:
        # A packet's hops count the transmission it is about to make.
        place = packet.place
        here = self.host.position(now)
        if here is None:
            self._give_up(packet, "no_position")
            return
        own_m = math.dist(here, place.position)
        captured = own_m <= place.radius_m if place.node is None else place.node == self.node
        onward = None if captured else self._nearer(now, place, own_m)
        if onward is not None:
            self._tokens += 1
            self._sends[self._tokens] = (onward, packet)
            self.port.send(onward, packet, token=self._tokens)
        elif captured or place.node is None:
            # [003 §3.5] Whoever comes within the radius captures the packet; failing that, the nearest one.
            self.up.packet(packet.origin, packet.parcel, packet.hops - 1)
        else:
            self._give_up(packet, "local_minimum")

    def _nearer(self, now: float, place: Place, own_m: float) -> NodeId | None:
        """The very node if it is a neighbor, else the one nearest to the place if it is nearer than this node."""
        heard = {node: where for node, (where, until) in self._where.items() if until > now}
        if place.node in heard:
            return place.node
        away_m = {node: math.dist(where, place.position) for node, where in heard.items()}
        best = min(away_m, key=lambda node: (away_m[node], node), default=None)
        return best if best is not None and away_m[best] < own_m else None

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        neighbor, packet = self._sends.pop(token)
        if failure is Failure.UNREACHABLE:
            self._where.pop(neighbor, None)
            self.port.note(Fact("reroute", event=packet.parcel.event, peer=neighbor))
            self._pass(now, packet)
        elif failure:
            self._give_up(packet, failure)

    def _give_up(self, packet: GeoPacket, reason: str) -> None:
        self.port.note(Fact("drop", event=packet.parcel.event, reason=reason))
        if packet.origin == self.node:
            self.up.unreachable(packet.place, packet.parcel)
