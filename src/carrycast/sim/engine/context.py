"""The state that all nodes of a run share."""

from dataclasses import dataclass, field

from carrycast.core.functions import InstalledFunction
from carrycast.core.model import NodeId, Position, ProcessorId, RoadMap
from carrycast.core.protocol import Capability, StackPlan
from carrycast.errors import WorkError
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.engine.fault_schedule import SlowLinks
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.engine.observers.recorder import Recorder
from carrycast.sim.engine.resources import Batteries, Memories
from carrycast.sim.mobility import Trajectories
from carrycast.sim.scenario import FaultPlan, PlacedApplication, Scenario, Workload, compute_movement


class DerivedEventsError(WorkError):
    """The processors of a run derived more events than `computer.max_derived_events`."""


@dataclass(slots=True)
class RunContext:
    """A scenario with one seed: its random draws, its kernel and its recorder."""

    scenario: Scenario
    seed: int
    stack: StackPlan
    kernel: Kernel
    recorder: Recorder
    plan: ContactPlan
    trajectories: Trajectories | None
    roles: dict[str, list[NodeId]]
    faults: FaultPlan
    installed: list[dict[ProcessorId, InstalledFunction]]
    """The processors of each node."""
    batteries: Batteries | None
    workload: Workload
    sequences: dict[NodeId, int] = field(default_factory=dict)
    """The number of each node's last event."""
    applications: dict[NodeId, list[PlacedApplication]] = field(default_factory=dict)
    """The applications of each node that has any."""
    slow: SlowLinks = field(init=False, default_factory=SlowLinks)
    offers: frozenset[Capability] = field(init=False)
    """The capabilities that hosts offer in this scenario."""
    derived: dict[ProcessorId, int] = field(init=False, default_factory=dict)
    """The number of events that each processor has derived, at all nodes."""
    _roads: RoadMap | None = field(init=False, default=None)

    _roles_of: dict[NodeId, tuple[str, ...]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.offers = self.scenario.offers()
        for role, nodes in self.roles.items():
            for node in nodes:
                self._roles_of[node] = (*self.roles_of(node), role)

    def roles_of(self, node: NodeId) -> tuple[str, ...]:
        """The roles of a node in this scenario."""
        return self._roles_of.get(node, ())

    @property
    def memories(self) -> Memories | None:
        """The memory in use at nodes; None unless the scenario limits it."""
        return self.recorder.memories

    def next_sequence(self, node: NodeId) -> int:
        """The number of a node's next event, beyond those of the workload."""
        self.sequences[node] = self.sequences.get(node, -1) + 1
        return self.sequences[node]

    def count_derived(self, processor: ProcessorId, events: int) -> None:
        """Count derived events. Too many end the run, which would otherwise take hours."""
        self.derived[processor] = self.derived.get(processor, 0) + events
        made, most = sum(self.derived.values()), self.scenario.computer.max_derived_events
        if made > most:
            busiest = max(self.derived, key=lambda one: self.derived[one])
            raise DerivedEventsError(
                f"{self.scenario.name}: at {self.kernel.now_s:g} s processors have made more than {most:,} events, "
                f"{self.derived[busiest]:,} of them {busiest}: select less in its filter, let fewer nodes run it, "
                "lower protocol.max_stages, or raise computer.max_derived_events"
            )

    def position(self, node: NodeId) -> Position | None:
        """The position of a node right now; None while it is absent."""
        if self.trajectories is None:
            raise TypeError("a replayed contact plan has no positions")
        where = self.trajectories.position(node, self.kernel.now_s)
        # Same as `Position(*where)` at a third of the cost: routers call this for every frame.
        return None if where is None else tuple.__new__(Position, where)

    def road_map(self) -> RoadMap:
        """The map that nodes move on, read at the first call."""
        if self._roads is None:
            model = self.scenario.mobility_model()
            self._roads = None if model is None else model.road_map()
            if self._roads is None:
                raise TypeError("no node moves on roads here; a protocol that reads the map declares it in `needs`")
        return self._roads

    def contacts_within(self, range_m: float) -> ContactPlan:
        """The contact plan of the same movement with another range."""
        return compute_movement(self.scenario, self.seed, range_m)[0]
