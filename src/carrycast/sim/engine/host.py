"""The host of a simulated node: sensor readings and the durable store."""

from collections.abc import Iterable

from carrycast.core.model import Area, NodeId, Position, Processor, RoadMap, Velocity, WallTime
from carrycast.core.protocol import DurableStore, GlobalView, Host
from carrycast.sim.engine.computer import Computer
from carrycast.sim.engine.context import RunContext


class MemoryStore(DurableStore):
    """A durable store in memory. It belongs to the simulator and so survives crashes of the node."""

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
    """The host of one layer of one node."""

    def __init__(
        self,
        node: NodeId,
        context: RunContext,
        view: GlobalView,
        store: DurableStore,
        computer: Computer,
        incarnation: int,
    ) -> None:
        self.offers = context.offers
        self.roles = context.roles_of(node)
        self.incarnation = incarnation
        self._node = node
        self._context = context
        self._view = view
        self._store = store
        self._computer = computer
        self._errors = context.faults.positions.get(node, ())

    @property
    def has_position_errors(self) -> bool:
        """Whether a fault shifts the positions that the node is told."""
        return bool(self._errors)

    def position(self, now: float) -> Position | None:
        where = self._context.position(self._node)
        if where is None or not self._errors:
            return where
        x_m, y_m = where
        for wandering in self._errors:
            off_x_m, off_y_m = wandering.at(self._context.kernel.now_s)
            x_m, y_m = x_m + off_x_m, y_m + off_y_m
        return Position(x_m, y_m)

    def velocity(self, now: float) -> Velocity | None:
        trajectories = self._context.trajectories
        assert trajectories is not None
        moving = trajectories.velocity(self._node, self._context.kernel.now_s)
        return None if moving is None else Velocity(*moving)

    def load(self, now: float) -> float:
        return self._computer.load()

    def free_memory_bytes(self, now: float) -> int:
        memories = self._context.memories
        if memories is None:
            raise TypeError(
                "a scenario without computer.memory_bytes has none to read; a protocol declares its `needs`"
            )
        return memories.free_bytes(self._node)

    def energy(self, now: float) -> float:
        batteries = self._context.batteries
        if batteries is None:
            raise TypeError("a scenario without [energy] has none to read; a protocol that does declares it in `needs`")
        return batteries.level(self._node, self._context.kernel.now_s)

    def directory(self, role: str) -> tuple[NodeId, ...]:
        if role == "all":
            return tuple(range(self._context.scenario.nodes))
        return tuple(self._context.roles.get(role, ()))

    def calendar(self, now: float) -> WallTime:
        """The wall time, with the error of the node's clock."""
        calendar = self._context.scenario.calendar
        return WallTime(calendar.start_s + now, calendar.ahead_s)

    @property
    def area(self) -> Area:
        if self._context.trajectories is None:
            raise TypeError("a replayed contact plan has no area; a protocol that reads it declares it in `needs`")
        return self._context.scenario.area

    def road_map(self) -> RoadMap:
        return self._context.road_map()

    @property
    def store(self) -> DurableStore:
        return self._store

    @property
    def global_view(self) -> GlobalView:
        return self._view

    @property
    def processors(self) -> tuple[Processor, ...]:
        return tuple(installed.processor for installed in self._context.installed[self._node].values())
