"""Runs a scenario with one seed and returns metrics, trace and fingerprint, in one process and without Spark."""

import gc
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from carrycast.core.functions import InstalledFunction, ProcessorError, load_function, split_function
from carrycast.core.model import NodeId, ProcessorId
from carrycast.core.streams import check_seed, stream
from carrycast.errors import UserError, WorkError
from carrycast.sim.contacts import ContactPlan
from carrycast.sim.engine.computer import ProcessorFailures
from carrycast.sim.engine.context import RunContext
from carrycast.sim.engine.engines import EngineParts, make_parts, select_engine
from carrycast.sim.engine.failure import RunError, describe_run_error
from carrycast.sim.engine.kernel import Kernel, microseconds
from carrycast.sim.engine.network import Network
from carrycast.sim.engine.observers.checkers import ViolationError
from carrycast.sim.engine.observers.recorder import Recorder, Window
from carrycast.sim.engine.observers.requested import RequestedMetrics
from carrycast.sim.engine.probes import Probes, Series
from carrycast.sim.engine.resources import Batteries, Memories
from carrycast.sim.scenario import (
    ApplicationCommand,
    Scenario,
    TimedAdvertisement,
    TimedPublication,
    TimedRequest,
    TimedSubscription,
    Workload,
    compute_movement,
    draw_advertisements,
    draw_commands,
    draw_faults,
    draw_requests,
    draw_roles,
    draw_workload,
    place_applications,
    resolve_selection,
)
from carrycast.trace import Level, Metrics, Trace

LOG = logging.getLogger("carrycast.sim.engine")
SEEN_SETTINGS = ("seen_s", "max_seen", "max_met", "seen_grace_s")
"""Settings that limit how long, or how many, received events are remembered."""
PROGRESS_STEPS = 500
"""The number of progress reports of a run."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run."""

    scenario: str
    protocol: str
    seed: int
    fingerprint: str
    metrics: Metrics
    settings: Mapping[str, object]
    trace: Trace
    failures: Mapping[ProcessorId, ProcessorFailures]
    """The processors that failed."""
    series: Series = field(default_factory=dict)
    """Samples over time, of the probes that the scenario asks for."""
    engine: str = "python"
    """The engine of the run: `python` or `native`."""

    def summary(self) -> dict[str, object]:
        """The run as `carrycast run --json` prints it."""
        failed = {id: {"times": one.times, "first_error": one.first} for id, one in self.failures.items()}
        return {
            "scenario": self.scenario,
            "protocol": self.protocol,
            "seed": self.seed,
            "engine": self.engine,
            "fingerprint": self.fingerprint,
            "metrics": self.metrics,
            "settings": self.settings,
            **({"processors_failed": failed} if failed else {}),
            **({"series": self.series} if self.series else {}),
        }


class Simulation:
    """One simulation, which can be advanced step by step.

    `plan` replaces the contacts that would be computed from the scenario.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        trace: Level | None = None,
        trace_directory: Path | None = None,
        recode: bool = False,
        plan: ContactPlan | None = None,
        engine: str = "python",
    ) -> None:
        self.scenario = scenario
        self.seed = seed
        self.engine = select_engine(engine, scenario)
        trajectories = None
        if plan is None or scenario.mobility is not None:
            moved, trajectories = compute_movement(scenario, seed)
            plan = moved if plan is None else plan
        stack = scenario.make_stack_plan()
        self.name = f"{scenario.name}/{stack.protocol.name}/{seed}"
        LOG.info("%s: %d nodes for %g s", self.name, scenario.nodes, scenario.duration_s)
        parts = make_parts(self.engine, scenario, stack)
        self.kernel = parts.kernel
        self.trace = Trace(self.name, scenario.trace if trace is None else trace, trace_directory)
        roles = draw_roles(scenario.roles, scenario.nodes, seed, scenario.name)
        faults = draw_faults(scenario.faults, roles, scenario.nodes, scenario.duration_s, seed)
        self.recorder = _make_recorder(scenario, parts, self.trace, faults.worst_drift, roles)
        batteries = None
        if scenario.energy is not None:
            batteries = Batteries(scenario.energy, scenario.nodes, stream(seed, "energy"))
            self.recorder.batteries = batteries
        if scenario.computer.memory_bytes is not None:
            self.recorder.memories = Memories(scenario.computer.memory_bytes, scenario.nodes)
        self._workload = _draw_workload(scenario, roles, seed)
        self._advertisements = draw_advertisements(scenario.advertise, roles, scenario.nodes, seed)
        self._requests = draw_requests(scenario.request, roles, scenario.nodes, scenario.duration_s, seed)
        self._context = RunContext(
            scenario=scenario,
            seed=seed,
            stack=stack,
            kernel=self.kernel,
            recorder=self.recorder,
            plan=plan,
            trajectories=trajectories,
            roles=roles,
            faults=faults,
            installed=_install_processors(scenario, roles, seed),
            batteries=batteries,
            workload=self._workload,
            applications=place_applications(scenario.applications, roles, scenario.nodes, seed, scenario.name),
            sequences={publish.event.id.source: publish.event.id.sequence for publish in self._workload.publishes},
        )
        self._commands = draw_commands(scenario.resolve_files().command, roles, scenario.nodes, seed, scenario.name)
        self.network = parts.network(self._context, recode)
        self._close = parts.close
        self._probes = Probes(scenario.measure.more, self._context, self.network)

    def next_sequence(self, node: NodeId) -> int:
        """The number of a node's next event, beyond those of the workload."""
        return self._context.next_sequence(node)

    def start(self) -> None:
        """Start every node, at time 0."""
        player = _WorkloadPlayer(self.network, self.kernel)
        for subscribe in self._workload.subscribes:
            player.schedule_subscribe(subscribe, self.scenario.duration_s)
        for advertise in self._advertisements:
            player.schedule_advertise(advertise, self.scenario.duration_s)
        with self._describe_errors():
            self.network.start()
        self._probes.start()
        player.schedule_publishes(self._workload.publishes)
        for command in self._commands:
            player.schedule_command(command)
        for request in self._requests:
            self.kernel.at(microseconds(request.time_s), player.request, request)

    def advance(self, until_s: float) -> None:
        """Run all entries of the event queue up to and including a time."""
        with self._describe_errors():
            self.kernel.run(microseconds(until_s))
            self.recorder.retention.check(until_s)

    def finish(self) -> RunResult:
        """Stop every node and return the result."""
        with self._describe_errors():
            self.network.stop()
        LOG.info("%s: done, %d steps of the queue", self.name, self.kernel.popped)
        stack = self._context.stack
        metrics = self.recorder.metrics() | self._probes.metrics(*_measured_window(self.scenario))
        settings = {**msgspec.to_builtins(self.scenario), "base": ""}
        settings["protocol"] = {"name": stack.protocol.name, **msgspec.to_builtins(stack.settings)}
        radio = self.scenario.radio_settings()
        settings["radio"] = {"model": radio.name, **msgspec.to_builtins(radio)}
        if stack.router is not None:
            settings["router"] = {"name": stack.router.name, **msgspec.to_builtins(stack.router_settings)}
        return RunResult(
            self.scenario.name,
            stack.protocol.name,
            self.seed,
            self.recorder.fingerprint.text(),
            metrics,
            settings,
            self.trace,
            self._sum_failures(),
            self._probes.series,
            self.engine,
        )

    def close(self) -> None:
        """Release what the run holds. The native engine needs this after every run."""
        self._close()

    def _hint(self, error: ViolationError) -> str:
        """For a repeated delivery, name the settings that may be too low: the node may have forgotten the event."""
        plan = self._context.stack
        known = {"protocol": plan.settings, "router": plan.router_settings}
        named = [f"{at}.{name}" for at, one in known.items() for name in SEEN_SETTINGS if hasattr(one, name)]
        if "a second time" not in str(error) or not named:
            return ""
        return f"; perhaps it was forgotten while copies of it were under way: raise {' and '.join(named)}"

    def _sum_failures(self) -> dict[ProcessorId, ProcessorFailures]:
        """The failures of each processor over all nodes, in the order of the scenario."""
        found: dict[ProcessorId, ProcessorFailures] = {}
        for entry in self.scenario.processors:
            failures = [
                node.computer.failures[entry.id] for node in self.network.nodes if entry.id in node.computer.failures
            ]
            if failures:
                first = min(failures, key=lambda one: one.first_s)
                found[entry.id] = ProcessorFailures(sum(one.times for one in failures), first.first, first.first_s)
        return found

    @contextmanager
    def _describe_errors(self) -> Iterator[None]:
        """Add run, time, node and source line to an error that ends the run."""
        try:
            yield
        except ViolationError as error:
            raise ViolationError(f"{self.name}: {error}{self._hint(error)} (replay with --seed {self.seed})") from None
        except (UserError, WorkError):
            raise
        except Exception as error:
            text = describe_run_error(error, self.kernel.now_s)
            raise RunError(f"{self.name}: {text} (replay with --seed {self.seed})") from error


def run(
    scenario: Scenario,
    seed: int,
    trace: Level | None = None,
    trace_directory: Path | None = None,
    recode: bool = False,
    on_progress: Callable[[float], None] | None = None,
    engine: str = "auto",
) -> RunResult:
    """Simulate a scenario.

    `engine` is `python`, `native`, or `auto`: native if it covers the whole run. The results are equal.

    With `recode` every received message is encoded and decoded again, which is slower and must not change the result.
    `on_progress` is called from time to time with the simulated time.
    """
    check_seed(seed)
    simulation = Simulation(scenario, seed, trace, trace_directory, recode, engine=engine)
    # Reference counting frees all garbage of a run; the cyclic collector would only traverse the long-lived state.
    collecting = gc.isenabled()
    gc.disable()
    try:
        simulation.start()
        if on_progress is not None:
            for step in range(1, PROGRESS_STEPS):
                simulation.advance(scenario.duration_s * step / PROGRESS_STEPS)
                on_progress(scenario.duration_s * step / PROGRESS_STEPS)
        simulation.advance(scenario.duration_s)
        return simulation.finish()
    finally:
        simulation.close()
        if collecting:
            gc.enable()


def check_run(scenario: Scenario, seed: int = 1) -> None:
    """Raise the UserError that `run` would raise for a scenario: prepare the run completely without running it."""
    check_seed(seed)
    Simulation(scenario, seed)


def _draw_workload(scenario: Scenario, roles: dict[str, list[NodeId]], seed: int) -> Workload:
    published = scenario.resolve_files().publish
    sizes = (scenario.nodes, scenario.duration_s)
    return draw_workload(scenario.subscribe, published, roles, *sizes, seed, scenario.flow)


def _measured_window(scenario: Scenario) -> Window:
    measure = scenario.measure
    return Window(measure.from_s, scenario.duration_s if measure.to_s is None else measure.to_s)


def _make_recorder(
    scenario: Scenario, parts: EngineParts, trace: Trace, worst_drift: float, roles: dict[str, list[NodeId]]
) -> Recorder:
    window = _measured_window(scenario)
    recorder = parts.recorder(
        parts.kernel, trace, scenario.nodes, window, scenario.duration_s, worst_drift, bool(scenario.flow)
    )
    if any(entry.counts != "probe" for entry in scenario.measure.more):
        recorder.requested = RequestedMetrics(scenario.measure.more, scenario.nodes, *window, roles)
    return recorder


def _install_processors(
    scenario: Scenario, roles: dict[str, list[int]], seed: int
) -> list[dict[ProcessorId, InstalledFunction]]:
    tables: list[dict[ProcessorId, InstalledFunction]] = [{} for _ in range(scenario.nodes)]
    for place, entry in enumerate(scenario.resolve_files().processors):
        try:
            file, name = split_function(entry.function)
            function = load_function(Path(file), name)
        except ProcessorError as error:
            raise UserError(f"{scenario.name}: processors[{place}].function: {error}") from None
        for node in resolve_selection(entry.nodes, roles, scenario.nodes, stream(seed, f"processor {place}")):
            if entry.id in tables[node]:
                raise UserError(f"{scenario.name}: processors[{place}].id: node {node} has two processors {entry.id!r}")
            tables[node][entry.id] = InstalledFunction.of(entry.processor(), function)
    return tables


class _WorkloadPlayer:
    """Schedules the workload of a run and calls the nodes."""

    def __init__(self, network: Network, kernel: Kernel) -> None:
        self._network = network
        self._kernel = kernel
        self._publishes: list[TimedPublication] = []
        self._next = 0

    def schedule_subscribe(self, subscribe: TimedSubscription, duration_s: float) -> None:
        self._kernel.at(microseconds(subscribe.time_s), self._subscribe, subscribe)
        if subscribe.until_s is not None and subscribe.until_s <= duration_s:
            self._kernel.at(microseconds(subscribe.until_s), self._unsubscribe, subscribe)

    def schedule_advertise(self, advertise: TimedAdvertisement, duration_s: float) -> None:
        node, advertisement = self._network.nodes[advertise.advertisement.id.advertiser], advertise.advertisement
        self._kernel.at(microseconds(advertise.time_s), lambda _: node.advertise(advertisement), None)
        if advertise.until_s is not None and advertise.until_s <= duration_s:
            self._kernel.at(microseconds(advertise.until_s), lambda _: node.unadvertise(advertisement), None)

    def request(self, timed: object) -> None:
        assert isinstance(timed, TimedRequest)
        self._network.nodes[timed.request.id.requester].request(timed.request)

    def schedule_publishes(self, publishes: list[TimedPublication]) -> None:
        """Schedule the publications one at a time, so that the event queue stays small."""
        self._publishes = publishes
        self._schedule_next()

    def schedule_command(self, command: ApplicationCommand) -> None:
        self._kernel.at(microseconds(command.time_s), self._command, command)

    def _command(self, command: object) -> None:
        assert isinstance(command, ApplicationCommand)
        self._network.nodes[command.node].command(command.application, command.verb, command.body)

    def _schedule_next(self) -> None:
        if self._next < len(self._publishes):
            self._kernel.at(microseconds(self._publishes[self._next].time_s), self._publish, None)

    def _subscribe(self, subscribe: object) -> None:
        assert isinstance(subscribe, TimedSubscription)
        self._network.nodes[subscribe.subscription.id.subscriber].subscribe(subscribe.subscription)

    def _unsubscribe(self, subscribe: object) -> None:
        assert isinstance(subscribe, TimedSubscription)
        self._network.nodes[subscribe.subscription.id.subscriber].unsubscribe(subscribe.subscription.id)

    def _publish(self, _: object) -> None:
        event = self._publishes[self._next].event
        self._next += 1
        self._network.nodes[event.id.source].publish(event)
        self._schedule_next()
