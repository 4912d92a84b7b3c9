"""The configurations of a scenario's live nodes: ids, stack, roles, interfaces and processors as in the scenario."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from carrycast.core.functions import ProcessorError, load_function, split_function
from carrycast.core.model import NodeId, Position
from carrycast.core.protocol import Interface, StackPlan
from carrycast.core.stacks import make_stack_plan
from carrycast.core.streams import stream
from carrycast.errors import UserError
from carrycast.node import NodeConfig, TraceConfig
from carrycast.node.link import InterfaceConfig, LinkSettings
from carrycast.node.runtime import HostFacts, ProcessorConfig, Whereabouts, find_capabilities
from carrycast.sim.engine import RADIO
from carrycast.sim.mobility import Trajectories
from carrycast.sim.radio import DiskRadio
from carrycast.sim.scenario import ProcessorEntry, Scenario, resolve_selection
from carrycast.trace import Level

MARGIN_S = 10.0
"""Added to the duration of a processor call, so that the call does not time out on a busy machine."""

DELAYED_FUNCTION = """import functools, pathlib, time
from carrycast.core.functions import load_function

_function = load_function(pathlib.Path({file!r}), {function!r})


@functools.wraps(_function)
def delayed(*arguments):
    time.sleep({cost_s!r})
    return _function(*arguments)
"""
"""A module whose function takes as long as the scenario says."""

_ORIGIN = Position(0.0, 0.0)


@dataclass(frozen=True, slots=True)
class LabNodes:
    """The scenario of a run, what was drawn for it, and the folder of the nodes' files."""

    scenario: Scenario
    seed: int
    roles: Mapping[str, list[NodeId]]
    trajectories: Trajectories | None
    folder: Path

    def make_configs(self) -> list[NodeConfig]:
        """A configuration for each node; a UserError if live nodes cannot run the scenario's stack."""
        plan = self._make_stack_plan()
        processors = self._make_processors()
        interfaces = self._make_interfaces()
        window_s = self.scenario.computer.load_window_s
        run = f"{self.scenario.name}/{plan.protocol.name}/{self.seed}/live"
        made = []
        for node in range(self.scenario.nodes):
            facts = self._host_facts(node)
            made.append(
                NodeConfig(
                    name=f"node-{node}",
                    node=node,
                    plan=plan,
                    interfaces=interfaces[node],
                    trace=TraceConfig(Level.FULL, run=run),
                    store=self.folder / f"node-{node}.db",
                    position=None if facts.whereabouts is None else facts.whereabouts.position,
                    processors=tuple(processors[node]),
                    roles=facts.roles,
                    directory=facts.directory,
                    area=facts.area,
                    roads=facts.roads,
                    load_window_s=window_s,
                    predictable_ids=True,
                )
            )
        return made

    def _make_stack_plan(self) -> StackPlan:
        """The simulator's stack, after a check that a live node offers what it needs."""
        scenario = self.scenario
        offers = find_capabilities(True, self._host_facts(0))
        make_stack_plan(
            scenario.protocol, scenario.router, None, offers, f"{scenario.name} on live nodes", scenario.roles
        )
        return scenario.make_stack_plan()

    def _host_facts(self, node: NodeId) -> HostFacts:
        scenario, model = self.scenario, self.scenario.mobility_model()
        directory = {"all": tuple(range(scenario.nodes))}
        directory |= {role: tuple(nodes) for role, nodes in self.roles.items()}
        there = None
        if self.trajectories is not None:
            where = self.trajectories.position(node, 0.0)
            there = Whereabouts(_ORIGIN if where is None else Position(*where))
        return HostFacts(
            there,
            roles=tuple(role for role, nodes in self.roles.items() if node in nodes),
            directory=directory,
            area=None if model is None else scenario.area,
            roads=model.road_map() if model is not None and model.on_roads() else None,
        )

    def _make_interfaces(self) -> list[tuple[InterfaceConfig, ...]]:
        """The interfaces of each node: the radio, if there is one, and the wires that end at the node."""
        scenario = self.scenario
        delays_s = link_delays(scenario)
        own: list[dict[Interface, None]] = [{} for _ in range(scenario.nodes)]
        for node in range(scenario.nodes):
            if not scenario.has_no_radio:
                own[node][RADIO] = None
        for wire in scenario.wires:
            for pair in wire.pairs(scenario.nodes):
                for node in pair:
                    own[node][wire.interface] = None
        # A node without radio and wires still needs an interface; it has no peers.
        first = next(iter(delays_s))
        return [tuple(_make_interface(name, delays_s[name]) for name in names or {first: None}) for names in own]

    def _make_processors(self) -> list[list[ProcessorConfig]]:
        """The processors of each node."""
        scenario = self.scenario
        made: list[list[ProcessorConfig]] = [[] for _ in range(scenario.nodes)]
        for place, entry in enumerate(scenario.resolve_files().processors):
            config = self._make_processor(entry, place)
            for node in resolve_selection(
                entry.nodes, dict(self.roles), scenario.nodes, stream(self.seed, f"processor {place}")
            ):
                if any(other.processor.id == entry.id for other in made[node]):
                    raise UserError(f"{scenario.name}: processors[{place}].id: node {node} has two {entry.id!r}")
                made[node].append(config)
        return made

    def _make_processor(self, entry: ProcessorEntry, place: int) -> ProcessorConfig:
        try:
            file, function = split_function(entry.function)
            load_function(Path(file), function)
        except ProcessorError as error:
            raise UserError(f"{self.scenario.name}: processors[{place}].function: {error}") from None
        source = Path(file).resolve()
        if entry.cost_s > 0:
            text = DELAYED_FUNCTION.format(file=str(source), function=function, cost_s=entry.cost_s)
            source, function = self.folder / f"processor-{place}.py", "delayed"
            source.write_text(text)
        return ProcessorConfig(entry.processor(), source, function, entry.cost_s + MARGIN_S)


def link_delays(scenario: Scenario) -> dict[Interface, float]:
    """The delay of a datagram over each interface, in seconds."""
    wires = {wire.interface: wire.delay_s for wire in scenario.wires}
    if scenario.has_no_radio:
        return wires
    radio = scenario.radio_model()
    assert isinstance(radio, DiskRadio), "check_playable refuses other radios"
    return {RADIO: radio.delay_s, **wires}


def _make_interface(name: Interface, delay_s: float) -> InterfaceConfig:
    # An acknowledgement comes after two delays at the earliest. Costs are those of the simulator.
    ack_timeout_s = min(60.0, max(LinkSettings().ack_timeout_s, 4 * delay_s))
    return InterfaceConfig(name, link=LinkSettings(ack_timeout_s=ack_timeout_s, cost_s=delay_s))
