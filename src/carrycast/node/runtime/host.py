"""The `Host` of a live node: the properties of the node that its state machines may read."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from carrycast.core.model import Area, NodeId, Position, Processor, RoadMap, Velocity, WallTime
from carrycast.core.protocol import Capability, DurableStore, GlobalView, Host
from carrycast.core.wire import Layer
from carrycast.node.runtime.load import LoadMeter, free_memory_bytes
from carrycast.node.storage import NodeStore

STANDING = Velocity(0.0, 0.0)
"""The velocity of a node at rest."""


@dataclass(slots=True)
class Whereabouts:
    """The last known position and velocity of a node, shared by all its layers."""

    position: Position | None
    """None while it is unknown."""
    velocity: Velocity = STANDING


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The configuration of a node that its state machines may read."""

    whereabouts: Whereabouts | None = None
    """None for a node without a positioning system."""
    processors: tuple[Processor, ...] = ()
    roles: tuple[str, ...] = ()
    directory: Mapping[str, tuple[NodeId, ...]] | None = None
    area: Area | None = None
    roads: RoadMap | None = None
    name: str = ""
    """The name of the node."""


def find_capabilities(store: bool, facts: HostFacts) -> frozenset[Capability]:
    """Return the capabilities of a node with this configuration. A live node never offers energy or a global view."""
    offers = {Capability.CALENDAR, Capability.LOAD}
    if facts.directory is not None:
        offers.add(Capability.DIRECTORY)
    if facts.name:
        offers.add(Capability.NODE_NAMES)
    if store:
        offers.add(Capability.DURABLE_STORE)
    if facts.whereabouts is not None:
        # The velocity is set together with the position; that of a node at rest is zero.
        offers |= {Capability.POSITION, Capability.VELOCITY}
    if facts.area is not None:
        offers.add(Capability.AREA)
    if facts.roads is not None:
        offers.add(Capability.MAP)
    if free_memory_bytes() is not None:
        offers.add(Capability.MEMORY)
    return frozenset(offers)


class LiveHost(Host):
    """One layer's or one application's view of its node."""

    def __init__(
        self,
        whose: Layer | str,
        facts: HostFacts,
        store: NodeStore | None,
        incarnation: int,
        load_meter: LoadMeter | None = None,
    ) -> None:
        """`whose` is a layer, or the name of an application."""
        self.offers = find_capabilities(store is not None, facts)
        self.name = facts.name
        self.roles = facts.roles
        self.incarnation = incarnation
        self._facts = facts
        self._load_meter = load_meter or LoadMeter()
        self._store: DurableStore | None = None
        if store is not None:
            self._store = store.layer(whose) if isinstance(whose, Layer) else store.application(whose)

    def position(self, now: float) -> Position | None:
        return self._find_whereabouts().position

    def velocity(self, now: float) -> Velocity | None:
        there = self._find_whereabouts()
        return None if there.position is None else there.velocity

    def _find_whereabouts(self) -> Whereabouts:
        if self._facts.whereabouts is None:
            raise LookupError("this node was given no position")
        return self._facts.whereabouts

    def load(self, now: float) -> float:
        return self._load_meter.load()

    def free_memory_bytes(self, now: float) -> int:
        free_bytes = free_memory_bytes()
        if free_bytes is None:
            raise LookupError("this system does not tell how much memory is free")
        return free_bytes

    def energy(self, now: float) -> float:
        raise LookupError("a live node does not know its energy")

    def directory(self, role: str) -> tuple[NodeId, ...]:
        if self._facts.directory is None:
            raise LookupError("this node was given no directory")
        nodes = self._facts.directory.get(role)
        if nodes is None and role == "all":
            # The role `all` need not be written in the directory: it has every node of any role.
            nodes = tuple(sorted({node for named in self._facts.directory.values() for node in named}))
        return nodes or ()

    def calendar(self, now: float) -> WallTime:
        return WallTime(time.time(), time.localtime().tm_gmtoff)

    @property
    def area(self) -> Area:
        if self._facts.area is None:
            raise LookupError("this node was given no area")
        return self._facts.area

    def road_map(self) -> RoadMap:
        if self._facts.roads is None:
            raise LookupError("this node was given no map")
        return self._facts.roads

    @property
    def store(self) -> DurableStore:
        if self._store is None:
            raise LookupError("this node was given no store")
        return self._store

    @property
    def global_view(self) -> GlobalView:
        raise LookupError("no real node has a global view")

    @property
    def processors(self) -> tuple[Processor, ...]:
        return self._facts.processors
