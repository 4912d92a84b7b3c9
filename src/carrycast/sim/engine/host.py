"""What the simulator lets a node know: its readings and its durable store."""

from collections.abc import Iterable

from carrycast.core.model import Area, NodeId, Position, Processor, RoadMap, Velocity
from carrycast.core.model.wall_clock import WallTime
from carrycast.core.protocol import DurableStore, GlobalView, Host
from carrycast.sim.engine.computer import Computer
from carrycast.sim.engine.world import World


class MemoryStore(DurableStore):
    """A durable store that outlives the node's crashes because the simulator keeps it."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._values[key] = value

    def delete(self, key: bytes) -> None:
        self._values.pop(key, None)

    def items(self, prefix: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        return sorted(item for item in self._values.items() if item[0].startswith(prefix))


class SimHost(Host):
    """What one layer of one node may know."""

    def __init__(
        self,
        node: NodeId,
        world: World,
        view: GlobalView,
        store: DurableStore,
        computer: Computer,
        incarnation: int,
    ) -> None:
        self.offers = world.offers
        self.roles = world.roles_of(node)
        self.incarnation = incarnation
        self._node = node
        self._world = world
        self._view = view
        self._store = store
        self._computer = computer
        self._errors = world.faults.positions.get(node, ())

    def position(self, now: float) -> Position | None:
        where = self._world.position(self._node)
        if where is None or not self._errors:
            return where
        x_m, y_m = where
        for wandering in self._errors:
            off_x_m, off_y_m = wandering.at(self._world.kernel.now_s)
            x_m, y_m = x_m + off_x_m, y_m + off_y_m
        return Position(x_m, y_m)

    def velocity(self, now: float) -> Velocity | None:
        trajectories = self._world.trajectories
        assert trajectories is not None
        moving = trajectories.velocity(self._node, self._world.kernel.now_s)
        return None if moving is None else Velocity(*moving)

    def load(self, now: float) -> float:
        return self._computer.load()

    def free_memory_bytes(self, now: float) -> int:
        memories = self._world.memories
        if memories is None:
            raise TypeError(
                "a scenario without computer.memory_bytes has none to read; a protocol declares its `needs`"
            )
        return memories.free_bytes(self._node)

    def energy(self, now: float) -> float:
        batteries = self._world.batteries
        if batteries is None:
            raise TypeError("a scenario without [energy] has none to read; a protocol that does declares it in `needs`")
        return batteries.level(self._node, self._world.kernel.now_s)

    def directory(self, role: str) -> tuple[NodeId, ...]:
        if role == "all":
            return tuple(range(self._world.scenario.nodes))
        return tuple(self._world.roles.get(role, ()))

    def calendar(self, now: float) -> WallTime:
        """As far off as the node's clock is."""
        calendar = self._world.scenario.calendar
        return WallTime(calendar.start_s + now, calendar.ahead_s)

    @property
    def area(self) -> Area:
        if self._world.trajectories is None:
            raise TypeError("a replayed contact plan has no area; a protocol that reads it declares it in `needs`")
        return self._world.scenario.area

    def road_map(self) -> RoadMap:
        return self._world.road_map()

    @property
    def store(self) -> DurableStore:
        return self._store

    @property
    def global_view(self) -> GlobalView:
        return self._view

    @property
    def processors(self) -> tuple[Processor, ...]:
        return tuple(installed.processor for installed in self._world.installed[self._node].values())
