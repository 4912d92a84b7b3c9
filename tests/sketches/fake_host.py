"""A node for sketches: its readings are plain attributes that a test sets."""

from collections.abc import Iterable, Mapping

from driftcast.model import Area, NodeId, Position, Processor, RoadMap, Velocity
from driftcast.model.roads import Road
from driftcast.protocol import Capability, DurableStore, GlobalView, Host


class FakeStore(DurableStore):
    """A dictionary that a test hands from a crashed object to its successor."""

    def __init__(self) -> None:
        self.kept: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.kept.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.kept[key] = value

    def delete(self, key: bytes) -> None:
        self.kept.pop(key, None)

    def items(self, prefix: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        return sorted(item for item in self.kept.items() if item[0].startswith(prefix))


class FakeHost(Host):
    """Offers everything but the global view. `nodes_by_role` is the directory; `roles` are this node's own."""

    def __init__(
        self,
        position: Position | None = None,
        processors: tuple[Processor, ...] = (),
        roles: tuple[str, ...] = (),
        nodes_by_role: Mapping[str, tuple[NodeId, ...]] | None = None,
    ) -> None:
        self.offers = frozenset(Capability) - {Capability.GLOBAL_VIEW}
        self.roles = roles
        self.incarnation = 1
        self.here = position or Position(0.0, 0.0)
        self.busy = 0.0
        self._store = FakeStore()
        self._processors = processors
        self._nodes_by_role = dict(nodes_by_role or {})

    def position(self, now: float) -> Position:
        return self.here

    def velocity(self, now: float) -> Velocity:
        return Velocity(0.0, 0.0)

    def load(self, now: float) -> float:
        return self.busy

    def free_memory_bytes(self, now: float) -> int:
        return 1 << 30

    def energy(self, now: float) -> float:
        return 1.0

    def directory(self, role: str) -> tuple[NodeId, ...]:
        return self._nodes_by_role.get(role, ())

    @property
    def area(self) -> Area:
        return Area(1000.0, 1000.0)

    def road_map(self) -> RoadMap:
        places = (Position(0.0, 500.0), Position(1000.0, 500.0))
        road = Road(id="road", nodes=("west", "east"), places=places, lanes=1)
        return RoadMap(name="one road", width_m=1000.0, height_m=1000.0, lane_m=3.5, safety_m=50.0, roads=(road,))

    @property
    def store(self) -> FakeStore:
        return self._store

    @property
    def global_view(self) -> GlobalView:
        raise NotImplementedError("no sketch may look at the whole network")

    @property
    def processors(self) -> tuple[Processor, ...]:
        return self._processors


def neighbors_but(links: Iterable[NodeId], *excluded: NodeId) -> list[NodeId]:
    """Everybody linked but some, in the order in which their links came."""
    return [neighbor for neighbor in links if neighbor not in excluded]
