"""One run: a scenario and a seed in, metrics, a trace and a fingerprint out. A plain function; it needs no Spark."""

import functools
import gc
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from driftcast.errors import UserError
from driftcast.mobility.player import TracePlayer
from driftcast.mobility.trajectory import Trajectories
from driftcast.model import NodeId, ProcessorId
from driftcast.radio.contacts import contacts
from driftcast.radio.plan import ContactPlan
from driftcast.services.processors import Installed, ProcessorError, load_function, split_function
from driftcast.simulation.checkers import ViolationError
from driftcast.simulation.draws import chosen, select
from driftcast.simulation.faults import fault_plan
from driftcast.simulation.kernel import Kernel, microseconds
from driftcast.simulation.meter import Meter, Metrics
from driftcast.simulation.network import Network
from driftcast.simulation.node import Failures
from driftcast.simulation.recorder import Recorder
from driftcast.simulation.scenario import Scenario
from driftcast.simulation.streams import array_stream, stream
from driftcast.simulation.tally import Tally
from driftcast.simulation.workload import Publish, Subscribe, workload
from driftcast.trace import Level, Trace


@dataclass(frozen=True, slots=True)
class Run:
    """What came out of a run."""

    scenario: str
    protocol: str
    seed: int
    fingerprint: str
    metrics: Metrics
    settings: Mapping[str, object]
    trace: Trace
    failures: Mapping[ProcessorId, Failures]
    """The processors that failed."""

    def summary(self) -> dict[str, object]:
        """The run as `driftcast run --json` prints it."""
        failed = {id: {"times": one.times, "first_error": one.first} for id, one in self.failures.items()}
        return {
            "scenario": self.scenario,
            "protocol": self.protocol,
            "seed": self.seed,
            "fingerprint": self.fingerprint,
            "metrics": self.metrics,
            "settings": self.settings,
            **({"processors_failed": failed} if failed else {}),
        }


class Simulation:
    """One simulation, step by step. `run` goes through it in one stride; tests stop in between and look.

    `plan` takes the place of the contacts that would follow from the scenario.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        trace: Level | None = None,
        trace_directory: Path | None = None,
        recode: bool = False,
        plan: ContactPlan | None = None,
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self._stack = scenario.stack_plan()
        trajectories = None
        if plan is None or scenario.mobility is not None:
            moved, trajectories = movement(scenario, seed)
            plan = moved if plan is None else plan
        self.name = f"{scenario.name}/{self._stack.protocol.name}/{seed}"
        self.kernel = Kernel()
        self.trace = Trace(self.name, scenario.trace if trace is None else trace, trace_directory)
        roles = _roles(scenario, seed)
        faults = fault_plan(scenario.faults, roles, scenario.nodes, scenario.duration_s, seed)
        to_s = scenario.duration_s if scenario.measure.to_s is None else scenario.measure.to_s
        meter = Meter(scenario.nodes, scenario.measure.from_s, to_s)
        self.recorder = Recorder(self.kernel, meter, self.trace, scenario.duration_s, faults.worst_drift)
        if scenario.measure.more:
            self.recorder.tally = Tally(scenario.measure.more, scenario.nodes, scenario.measure.from_s, to_s)
        self._played = workload(scenario.subscribe, scenario.publish, roles, scenario.nodes, scenario.duration_s, seed)
        self._sequences: dict[NodeId, int] = {}
        for publish in self._played.publishes:
            self._sequences[publish.event.id.source] = publish.event.id.sequence
        installed = _installed(scenario, roles, seed)
        self.network = Network(
            scenario,
            seed,
            self.kernel,
            self.recorder,
            plan,
            trajectories,
            lambda range_m: movement(scenario, seed, range_m)[0],
            faults,
            installed,
            roles,
            self.next_sequence,
            recode,
        )

    def next_sequence(self, node: NodeId) -> int:
        """The number of a node's next event, beyond those of the workload."""
        self._sequences[node] = self._sequences.get(node, -1) + 1
        return self._sequences[node]

    def start(self) -> None:
        """Start every node, at time 0."""
        player = _Player(self.network, self.kernel)
        for subscribe in self._played.subscribes:
            player.schedule_subscribe(subscribe, self.scenario.duration_s)
        try:
            self.network.start()
        except ViolationError as error:
            raise self._placed(error) from None
        player.schedule_publishes(self._played.publishes)

    def advance(self, until_s: float) -> None:
        """Let everything happen up to a time, that time included."""
        try:
            self.kernel.run(microseconds(until_s))
        except ViolationError as error:
            raise self._placed(error) from None

    def finish(self) -> Run:
        """Stop every node and say what came out."""
        try:
            self.network.stop()
        except ViolationError as error:
            raise self._placed(error) from None
        stack = self._stack
        metrics = self.recorder.meter.metrics()
        if self.recorder.tally is not None:
            metrics |= self.recorder.tally.metrics()
        settings = {**msgspec.to_builtins(self.scenario), "base": ""}
        settings["protocol"] = {"name": stack.protocol.name, **msgspec.to_builtins(stack.settings)}
        if stack.router is not None:
            settings["router"] = {"name": stack.router.name, **msgspec.to_builtins(stack.router_settings)}
        return Run(
            self.scenario.name,
            stack.protocol.name,
            self.seed,
            self.recorder.fingerprint.text(),
            metrics,
            settings,
            self.trace,
            self._failures(),
        )

    def _failures(self) -> dict[ProcessorId, Failures]:
        """Over all nodes, by the scenario's order of processors."""
        found: dict[ProcessorId, Failures] = {}
        for entry in self.scenario.processors:
            failures = [node.failures[entry.id] for node in self.network.nodes if entry.id in node.failures]
            if failures:
                first = min(failures, key=lambda one: one.first_s)
                found[entry.id] = Failures(sum(one.times for one in failures), first.first, first.first_s)
        return found

    def _placed(self, error: ViolationError) -> ViolationError:
        return ViolationError(f"{self.name}: {error} (replay with --seed {self.seed})")


def run(
    scenario: Scenario,
    seed: int,
    trace: Level | None = None,
    trace_directory: Path | None = None,
    recode: bool = False,
) -> Run:
    """Simulate. `recode` passes every reception through bytes; the outcome is the same, only slower."""
    simulation = Simulation(scenario, seed, trace, trace_directory, recode)
    # Reference counting frees everything a run drops; the collector would only walk the run's long-lived state.
    collecting = gc.isenabled()
    gc.disable()
    try:
        simulation.start()
        simulation.advance(scenario.duration_s)
        return simulation.finish()
    finally:
        if collecting:
            gc.enable()


def movement(scenario: Scenario, seed: int, range_m: float | None = None) -> tuple[ContactPlan, Trajectories | None]:
    """Who comes within a distance of whom when, by default the radio's range, and how everybody moves.

    The last few are kept, so that protocols compared on one seed share the work.
    """
    relevant = (scenario.mobility, scenario.contacts, scenario.base, scenario.nodes, scenario.area_m)
    key = msgspec.json.encode((relevant, scenario.duration_s, seed), order="deterministic")
    carried = _Unhashed(scenario)
    return _plan(key, carried, seed, scenario.radio.range_m if range_m is None else range_m), _moving(
        key, carried, seed
    )


class _Unhashed:
    """Carries a scenario past the cache, whose key already says all that matters of it."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unhashed)

    def __hash__(self) -> int:
        return 0


@functools.lru_cache(maxsize=4)
def _moving(key: bytes, carried: _Unhashed, seed: int) -> Trajectories | None:
    scenario = carried.scenario
    model = scenario.mobility_model()
    if model is None:
        return None
    return model.trajectories(scenario.nodes, scenario.area, scenario.duration_s, array_stream(seed, "mobility"))


@functools.lru_cache(maxsize=8)
def _plan(key: bytes, carried: _Unhashed, seed: int, range_m: float) -> ContactPlan:
    scenario = carried.scenario
    moving = _moving(key, carried, seed)
    if moving is None:
        assert scenario.contacts is not None
        return _replayed(scenario, Path(scenario.base) / scenario.contacts)
    return contacts(moving, range_m, scenario.duration_s)


def check_files(scenario: Scenario) -> None:
    """Read the movement or contacts that a scenario takes from files; a UserError names what is wrong with them."""
    if scenario.contacts is not None or isinstance(scenario.mobility_model(), TracePlayer):
        movement(scenario, seed=1)


def _replayed(scenario: Scenario, path: Path) -> ContactPlan:
    if path.suffix == ".parquet":
        plan = ContactPlan.load(path)
    else:
        plan = ContactPlan.from_one_events(path, scenario.nodes, scenario.duration_s)
    if plan.nodes > scenario.nodes:
        raise UserError(f"{path}: has {plan.nodes} nodes, the scenario only {scenario.nodes}")
    return plan


def _roles(scenario: Scenario, seed: int) -> dict[str, list[int]]:
    """The nodes of each role; one drawn by number or share is the same in every run with the seed."""
    return {
        name: select(selection, scenario.nodes, stream(seed, f"role {name}"))
        for name, selection in scenario.roles.items()
    }


def _installed(scenario: Scenario, roles: dict[str, list[int]], seed: int) -> list[dict[ProcessorId, Installed]]:
    tables: list[dict[ProcessorId, Installed]] = [{} for _ in range(scenario.nodes)]
    for place, entry in enumerate(scenario.processors):
        try:
            file, name = split_function(entry.function)
            function = load_function(Path(scenario.base) / file, name)
        except ProcessorError as error:
            raise UserError(f"{scenario.name}: processors[{place}].function: {error}") from None
        for node in chosen(entry.nodes, roles, scenario.nodes, stream(seed, f"processor {place}")):
            if entry.id in tables[node]:
                raise UserError(f"{scenario.name}: processors[{place}].id: node {node} has two processors {entry.id!r}")
            tables[node][entry.id] = Installed.of(entry.processor(), function)
    return tables


class _Player:
    """Plays a workload against a network."""

    def __init__(self, network: Network, kernel: Kernel) -> None:
        self._network = network
        self._kernel = kernel
        self._publishes: list[Publish] = []
        self._next = 0

    def schedule_subscribe(self, subscribe: Subscribe, duration_s: float) -> None:
        self._kernel.at(microseconds(subscribe.time_s), self._subscribe, subscribe)
        if subscribe.until_s is not None and subscribe.until_s <= duration_s:
            self._kernel.at(microseconds(subscribe.until_s), self._unsubscribe, subscribe)

    def schedule_publishes(self, publishes: list[Publish]) -> None:
        """One queue entry at a time, so that the queue does not hold the whole future."""
        self._publishes = publishes
        self._schedule_next()

    def _schedule_next(self) -> None:
        if self._next < len(self._publishes):
            self._kernel.at(microseconds(self._publishes[self._next].time_s), self._publish, None)

    def _subscribe(self, subscribe: object) -> None:
        assert isinstance(subscribe, Subscribe)
        self._network.nodes[subscribe.subscription.id.subscriber].subscribe(subscribe.subscription)

    def _unsubscribe(self, subscribe: object) -> None:
        assert isinstance(subscribe, Subscribe)
        self._network.nodes[subscribe.subscription.id.subscriber].unsubscribe(subscribe.subscription.id)

    def _publish(self, _: object) -> None:
        event = self._publishes[self._next].event
        self._next += 1
        self._network.nodes[event.id.source].publish(event, len(msgspec.msgpack.encode(event)))
        self._schedule_next()
