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
    TimerKey,
    Token,
)
from carrycast.core.wire import Message, Parcel
from carrycast.routers.gpsr.beacons import Beacons, is_position
from carrycast.routers.gpsr.carried import GeoPacketInTransit
from carrycast.routers.gpsr.geometry import square_m2
from carrycast.routers.gpsr.messages import MAX_HOPS, MAX_OTHERS, GeoBundle, GeoPacket, Here, Tour
from carrycast.routers.gpsr.neighbors import NeighborTable
from carrycast.routers.gpsr.passed import PassedPackets
from carrycast.routers.gpsr.perimeter import enter, walk
from carrycast.routers.gpsr.planar import Edge, planar
from carrycast.routers.gpsr.settings import GpsrSettings


class Gpsr(Router):
    """Brings packets to positions: to any node near one, to the nearest, or to the very node that was there.

    It says its own beacons and forgets the silent itself, so it runs with discovery "none".
    """

    name = "gpsr"
    summary = "by positions: greedily to the neighbor nearest to the target, around voids by the right-hand rule"
    settings_type = GpsrSettings
    messages = (Here, GeoPacket, GeoBundle)
    needs = frozenset({Capability.POSITION})
    offers = frozenset({Capability.PLACE_ROUTES})
    finds_neighbors = True
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "ns2": {"beacon_s": 0.5, "stop_loops": False},
        "overhearing": {"overhear": True, "suppress_beacons": True},
        "rng": {"planarization": "rng"},
        "predictive": {"dead_reckoning": True, "beacon_skips": 3},
    }

    def __init__(
        self, node: NodeId, settings: GpsrSettings, port: Port, host: Host, rng: Random, up: RouterUpcalls
    ) -> None:
        super().__init__(node, settings, port, host, rng, up)
        self._settings = settings
        self._most_m2 = settings.max_range_m**2
        self._max_hops = min(settings.max_hops, MAX_HOPS)
        self.table = NeighborTable(settings.expiry_s, settings.max_neighbors)
        self._beacons = Beacons(settings, port, host, rng)
        self._links = Neighbors()
        self._graph: tuple[int, list[Edge]] | None = None
        """The edges in the planar graph, and the version of the table they were made of."""
        self._passed = PassedPackets(settings.seen_s, settings.max_seen, not settings.stop_loops)
        self._numbers = host.incarnation << 32
        self._here: tuple[float, Position | None] = (float("nan"), None)
        """Where this node is: asked for once in each moment."""
        self._tokens = 0
        self._under_way: dict[Token, tuple[NodeId, Sequence[GeoPacketInTransit]]] = {}

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """How far a node is, as far as the table tells."""
        return 0 if target == self.node else self.table.hops_to(now, target)

    def on_start(self, now: float) -> None:
        self._beacons.start()

    def on_stop(self, now: float) -> None:
        self._beacons.stop()

    def on_timer(self, now: float, key: TimerKey) -> None:
        self._beacons.tick(now)

    def on_link_up(self, now: float, link: Link) -> None:
        self._links.add(link)

    def on_link_down(self, now: float, link: Link, cause: Failure) -> None:
        if self._links.remove(link):
            self.table.forget(link.neighbor)

    # What is heard.

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        if isinstance(message, Here):
            self._learn(now, sender, message.position, message.velocity)
            return
        assert isinstance(message, GeoPacket)
        if message.at is not None and self._settings.piggyback:
            known = self.table.known_velocity(sender)
            self._learn(now, sender, message.at, known)
        if not self._passed.comes_first(now, sender, message):
            self._drop("repeated", message, sender)
        elif isinstance(message, GeoBundle):
            self._forward_each(
                now, [GeoPacketInTransit(packet, packet.place, sender, now) for packet in message.packets()]
            )
        else:
            self._forward(now, GeoPacketInTransit(message, message.place, sender, now))

    def on_overheard(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        # [GPSR00 §2.1] Interfaces are promiscuous: who is in reach learns where the forwarding node is.
        if isinstance(message, GeoPacket) and message.at is not None and self._settings.piggyback:
            self._learn(now, sender, message.at, self.table.known_velocity(sender))

    def _learn(self, now: float, sender: NodeId, position: Position, velocity: Velocity | None) -> None:
        here = self._position(now)
        if not is_position(position) or (here is not None and square_m2(here, position) > self._most_m2):
            self.port.note(Fact("drop", peer=sender, reason="absurd_position"))
        elif velocity is not None and not self._is_speed(velocity):
            self.port.note(Fact("drop", peer=sender, reason="absurd_velocity"))
        else:
            learned = self.table.learn(now, sender, position, velocity)
            if learned is None:
                self.port.note(Fact("drop", peer=sender, reason="table_full"))
            elif learned:
                self._beacons.neighbor_met()

    def _position(self, now: float) -> Position | None:
        if self._here[0] != now:
            here = self.host.position(now)
            self._here = (now, here if is_position(here) else None)
        return self._here[1]

    def _is_speed(self, velocity: Velocity) -> bool:
        """Whether something can move like that and still be a neighbor when it is forgotten."""
        most_mps = self._settings.max_range_m / self._settings.expiry_s
        return velocity[0] * velocity[0] + velocity[1] * velocity[1] <= most_mps * most_mps

    # Where packets go.

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        carried = self._own(now, target, parcel)
        if carried is not None:
            self._forward(now, carried)

    def on_route_each(self, now: float, targets: Sequence[NodeId | Place], parcel: Parcel) -> None:
        own = (self._own(now, target, parcel) for target in targets)
        self._forward_each(now, [carried for carried in own if carried is not None])

    def _own(self, now: float, target: NodeId | Place, parcel: Parcel) -> GeoPacketInTransit | None:
        place = target if isinstance(target, Place) else None
        if place is None:
            self.table.expire(now)
            assert isinstance(target, int)
            if target not in self.table:
                # A node that is no neighbor needs the position it was last heard of at.
                self.port.note(Fact("drop", event=parcel.event, peer=target, reason="position_unknown"))
                self.up.report_unreachable(target, parcel)
                return None
            place = Place(self.table.position(now, target), 0.0, target)
        self._numbers += 1
        packet = GeoPacket(parcel, origin=self.node, number=self._numbers, place=place, hops=0)
        return GeoPacketInTransit(packet, target, None, now)

    def _forward_each(self, now: float, packets: Sequence[GeoPacketInTransit]) -> None:
        """One parcel to several places: those that go greedily to the same neighbor share a packet to it."""
        here = self._position(now)
        together: dict[NodeId, list[GeoPacketInTransit]] = {}
        if here is not None and len(packets) > 1:
            self.table.expire(now)
            for carried in packets:
                place = carried.packet.place
                own_m2 = square_m2(here, place.position)
                onward = None if self._is_here(place, own_m2) else self._toward(now, place, own_m2)
                if onward is not None:
                    together.setdefault(onward, []).append(carried)
            together = {onward: group for onward, group in together.items() if len(group) > 1}
            for onward, group in together.items():
                for start in range(0, len(group), MAX_OTHERS + 1):
                    self._send_each(now, group[start : start + MAX_OTHERS + 1], here, onward)
        shared = {carried.packet.place for group in together.values() for carried in group}
        for carried in packets:
            if carried.packet.place not in shared:
                self._forward(now, carried)

    def _forward(self, now: float, carried: GeoPacketInTransit) -> None:
        packet = carried.packet
        place, goal = packet.place, packet.place.position
        here = self._position(now)
        if here is None or not is_position(goal):
            self._give_up(now, carried, "no_position")
            return
        own_m2 = square_m2(here, goal)
        # [003 §3.5] Whoever comes within the radius captures the packet; failing that, the nearest one does.
        if self._is_here(place, own_m2):
            self._take(now, carried)
            return
        self.table.expire(now)
        tour = packet.tour
        if tour is not None and tour.entry != self.node and own_m2 < square_m2(tour.entered, goal):
            # [GPSR00 §2.3] Nearer than where the perimeter was entered: greedy again. Back at the entry it is not, even
            # if this node has moved a little: else it would go round for ever.
            tour = None
        onward = self._toward(now, place, own_m2, greedily=tour is None)
        if onward is not None:
            self._send(now, carried, here, onward, None)
        else:
            self._around(now, carried, here, tour)

    def _is_here(self, place: Place, own_m2: float) -> bool:
        if place.node is not None:
            return place.node == self.node
        return own_m2 <= place.radius_m * place.radius_m

    def _toward(self, now: float, place: Place, own_m2: float, greedily: bool = True) -> NodeId | None:
        """The neighbor that a packet goes to if it need not go around anything."""
        node = place.node
        if node is not None and node in self.table and self._settings.direct:
            return node
        if not greedily:
            return None
        nearest = self.table.nearest(now, place.position)
        # [GPSR00 §2.1] The neighbor nearest to the target, if it is nearer than this node.
        if nearest is not None and nearest[0] < own_m2:
            return nearest[1]
        if node is not None and node in self.table:
            # The target itself, no nearer and no farther: as a rule the two are at one place.
            return node if square_m2(self.table.position(now, node), place.position) <= own_m2 else None
        return None

    def _around(self, now: float, carried: GeoPacketInTransit, here: Position, tour: Tour | None) -> None:
        """Nobody is nearer: the right-hand rule, until the tour of the face around the target is over."""
        place = carried.packet.place
        goal = place.position
        if here == goal or self._settings.recovery == "none":
            self._end(now, carried, place.node is None, "local_minimum")
            return
        edges = self._planar(now, here)
        came_from = None if tour is None else self._came_from(now, carried)
        if tour is None or came_from is None or came_from == here:
            # From a node at the very same place: no direction to turn from, and nothing lost by entering here.
            if edges:
                self._send(now, carried, here, *enter(self.node, here, edges, goal))
            else:
                self._end(now, carried, place.node is None, "no_neighbor")
            return
        step = walk(self.node, here, edges, came_from, goal, tour) if edges else None
        if step is None:
            # [003 §3.5, GPSR00 §2.3] Around the face and back: this node is the nearest, or the target is not there.
            self._end(now, carried, place.node is None and tour.entry == self.node, "face_toured")
        else:
            self._send(now, carried, here, *step)

    def _came_from(self, now: float, carried: GeoPacketInTransit) -> Position | None:
        """Where the last sender is, as the planar graph has it; None if there was none, or it does not say."""
        sender = carried.sender
        if sender is not None and sender in self.table:
            return self.table.position(now, sender)
        return carried.packet.at

    def _planar(self, now: float, here: Position) -> list[Edge]:
        """Computed again only when the neighbor table has changed."""
        if self._graph is None or self._graph[0] != self.table.version:
            made = planar(self.node, here, self.table.positions(now), self._settings.planarization)
            self._graph = (self.table.version, made)
        return self._graph[1]

    def _send(self, now: float, carried: GeoPacketInTransit, here: Position, onward: NodeId, tour: Tour | None) -> None:
        packet = carried.packet
        if packet.hops >= self._max_hops:
            self._give_up(now, carried, "hops_exhausted")
            return
        at = here if self._settings.piggyback or tour is not None else None
        sent = GeoPacket(
            carried.parcel(now),
            origin=packet.origin,
            number=packet.number,
            place=packet.place,
            hops=packet.hops + 1,
            at=at,
            tour=tour,
        )
        self._hand_on(onward, sent, (carried,))

    def _send_each(self, now: float, group: Sequence[GeoPacketInTransit], here: Position, onward: NodeId) -> None:
        packet = group[0].packet
        if len(group) == 1 or packet.hops >= self._max_hops:
            for carried in group:
                self._send(now, carried, here, onward, None)
            return
        sent = GeoBundle(
            group[0].parcel(now),
            origin=packet.origin,
            number=packet.number,
            place=packet.place,
            hops=packet.hops + 1,
            at=here if self._settings.piggyback else None,
            others=tuple(carried.packet.place for carried in group[1:]),
        )
        self._hand_on(onward, sent, group)

    def _hand_on(self, onward: NodeId, sent: GeoPacket, group: Sequence[GeoPacketInTransit]) -> None:
        self._tokens += 1
        self._under_way[self._tokens] = (onward, group)
        self._beacons.packet_sent()
        self.port.send(onward, sent, token=self._tokens)

    def _take(self, now: float, carried: GeoPacketInTransit) -> None:
        packet = carried.packet
        if self._passed.ends_first(now, packet):
            self.up.deliver_packet(packet.origin, carried.parcel(now), packet.hops)
        else:
            # Its sender did not hear that it had arrived, and found another way for it.
            self._drop("repeated", packet, carried.sender)

    def _end(self, now: float, carried: GeoPacketInTransit, is_nearest: bool, reason: str) -> None:
        if is_nearest:
            self._take(now, carried)
        else:
            self._give_up(now, carried, reason)

    # What goes wrong.

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        neighbor, group = self._under_way.pop(token)
        if failure is None:
            return
        if failure is Failure.UNREACHABLE:
            # [GPSR00 §2.4] The neighbor is gone, and the packet chooses again.
            self.table.forget(neighbor)
            self.port.note(Fact("reroute", event=group[0].packet.parcel.event, peer=neighbor))
            self._forward_each(now, group)
        else:
            for carried in group:
                self._give_up(now, carried, failure)

    def _give_up(self, now: float, carried: GeoPacketInTransit, reason: str) -> None:
        self._drop(reason, carried.packet, carried.sender)
        if carried.packet.origin == self.node:
            self.up.report_unreachable(carried.asked, carried.parcel(now))

    def _drop(self, reason: str, packet: GeoPacket, peer: NodeId | None) -> None:
        self.port.note(Fact("drop", event=packet.parcel.event, peer=peer, reason=reason))
