"""Scenarios: one TOML file says where nodes move, how they hear each other, who wants what, and what goes wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.functions import ProcessorError, split_function
from carrycast.core.model import Processor
from carrycast.core.protocol import BeaconSettings, Capability, StackPlan, serves_processors
from carrycast.core.settings import (
    FunctionInFile,
    InputFile,
    field_names,
    file_locator,
    map_files,
    parse_settings,
    read_toml,
    unknown_key,
)
from carrycast.core.stacks import make_stack_plan, needs_beacons
from carrycast.errors import UserError
from carrycast.sim.mobility import Area, MobilityModel, find_movement_model as mobility_named
from carrycast.sim.radio import DEFAULT_RADIO, DiskRadio, Radio, radio_named, radio_names
from carrycast.sim.scenario.applications import ApplicationEntry, Calendar, CommandEntry, check_applications
from carrycast.sim.scenario.draws import Selection, check_filter, check_selection
from carrycast.sim.scenario.faults import Fault, GpsError, check_fault
from carrycast.sim.scenario.measures import RequestedMetric, check_probes, check_requested_metrics
from carrycast.sim.scenario.resources import ComputerSettings, EnergySettings, ServiceSettings
from carrycast.sim.scenario.roles import Role, RoleEntry, check_roles
from carrycast.sim.scenario.workload import (
    AdvertiseEntry,
    PublishEntry,
    RequestEntry,
    SubscribeEntry,
    check_advertise,
    check_initial_state,
    check_request,
    check_workload_entry,
)
from carrycast.trace import Level

Time = Annotated[float, Meta(ge=0, le=1e9)]
DEFAULT_AREA_M = (1000.0, 1000.0)


class OracleDiscovery(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="mode", tag="oracle"
):
    """The simulator tells nodes of their links the moment they change."""


class NoDiscovery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="mode", tag="none"):
    """Nodes are told of no links; for protocols that find their neighbors by themselves."""


class BeaconMode(BeaconSettings, frozen=True, tag_field="mode", tag="beacon"):
    """Nodes find their links by beacons, as live nodes do."""


class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events count: those published in this window. And which metrics are wanted besides the usual ones."""

    from_s: Time = 0.0
    to_s: Time | None = None
    more: list[RequestedMetric] = []


class ProcessorEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[processors]]` of a scenario: a function that some nodes can run."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    function: FunctionInFile
    """`file.py:name`, the file relative to the scenario's folder."""
    nodes: Selection
    filter: str = "true"
    inputs: Annotated[int, Meta(ge=1, le=64)] = 1
    cost_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0

    def processor(self) -> Processor:
        """What the protocol is told."""
        return Processor(self.id, self.filter, self.inputs, self.cost_s)


class Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[wires]]` of a scenario: an interface over which some nodes are always linked."""

    interface: Annotated[str, Meta(min_length=1, max_length=32)] = "ethernet"
    between: list[tuple[int, int]] = []
    tree: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Instead: all nodes in a balanced tree from node 0, each with so many children; 1 makes a line."""
    delay_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0001
    rate_bps: Annotated[float, Meta(ge=1, le=1e12)] | None = None
    queue: Annotated[int, Meta(ge=1, le=1_000_000)] = 50

    def pairs(self, nodes: int) -> list[tuple[int, int]]:
        """Whom it joins, in a network of so many nodes."""
        if self.tree is None:
            return self.between
        return [((node - 1) // self.tree, node) for node in range(1, nodes)]

    def radio(self) -> DiskRadio:
        """A wire carries frames as a radio does that nobody can leave."""
        return DiskRadio(delay_s=self.delay_s, rate_bps=self.rate_bps, queue=self.queue)


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about a run but its seed. `mobility`, `radio`, `protocol` and `router` keep the tables as written."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] = "scenario"
    description: str = ""
    duration_s: Annotated[float, Meta(gt=0, le=1e7)]
    nodes: Annotated[int, Meta(ge=1, le=1_000_000)]
    area_m: tuple[Annotated[float, Meta(gt=0, le=1e7)], Annotated[float, Meta(gt=0, le=1e7)]] = DEFAULT_AREA_M
    mobility: dict[str, object] | None = None
    contacts: InputFile | None = None
    """Instead of mobility: a contact plan (.parquet) or a file of ONE's CONN events."""
    radio: dict[str, object] = {}
    wires: list[Wire] = []
    discovery: OracleDiscovery | BeaconMode | NoDiscovery = BeaconMode()
    """Beacons by default: they exist in every environment, with their cost."""
    protocol: dict[str, object] = {}
    router: dict[str, object] | None = None
    roles: dict[str, RoleEntry] = {}
    subscribe: list[SubscribeEntry] = []
    publish: list[PublishEntry] = []
    advertise: list[AdvertiseEntry] = []
    request: list[RequestEntry] = []
    processors: list[ProcessorEntry] = []
    applications: list[ApplicationEntry] = []
    command: list[CommandEntry] = []
    calendar: Calendar = Calendar()
    faults: list[Fault] = []
    service: ServiceSettings | None = None
    energy: EnergySettings | None = None
    computer: ComputerSettings = ComputerSettings()
    measure: Measure = Measure()
    trace: Level = Level.METRICS
    base: str = "."
    """The folder from which relative file names are taken; set by `load_scenario`."""

    @property
    def area(self) -> Area:
        """The rectangle in which nodes move."""
        return Area(*self.area_m)

    @property
    def has_no_radio(self) -> bool:
        """Whether nodes have their wires and nothing else: nobody said how they meet."""
        return self.mobility is None and self.contacts is None

    def resolved(self) -> "Scenario":
        """A copy in which the files that it names itself are taken from its folder."""
        return map_files(self, file_locator(Path(self.base)))

    def mobility_model(self) -> MobilityModel | None:
        """The movement model with its settings, or None if a contact plan is replayed."""
        if self.mobility is None:
            return None
        table = dict(self.mobility)
        kind = mobility_named(str(table.pop("model")))
        return parse_settings(table, kind, self.name, "mobility").resolved(Path(self.base))

    def radio_model(self) -> Radio:
        """The radio model with its settings."""
        table = dict(self.radio) or {"model": DEFAULT_RADIO}
        kind = radio_named(str(table.pop("model")))
        return map_files(parse_settings(table, kind, self.name, "radio"), file_locator(Path(self.base)))

    def make_stack_plan(self) -> StackPlan:
        """The machines of every node. It beacons if the scenario says so and anybody in the stack would be told."""
        plan = make_stack_plan(self.protocol, self.router, None, self.offers(), self.name, self.roles)
        if not isinstance(self.discovery, BeaconMode) or not needs_beacons(plan):
            return plan
        beacons = BeaconSettings(**{name: getattr(self.discovery, name) for name in BeaconSettings.__struct_fields__})
        return StackPlan(plan.protocol, plan.settings, plan.router, plan.router_settings, beacons)

    def offers(self) -> frozenset[Capability]:
        """What the simulator can give to protocols in this scenario."""
        always = {
            Capability.CALENDAR,
            Capability.DURABLE_STORE,
            Capability.GLOBAL_VIEW,
            Capability.DIRECTORY,
            Capability.LOAD,
            Capability.OVERHEARING,
        }
        model = self.mobility_model()
        moving = {Capability.POSITION, Capability.VELOCITY, Capability.AREA} if model is not None else set()
        roads = {Capability.MAP} if model is not None and model.on_roads() else set()
        powered = {Capability.ENERGY} if self.energy is not None else set()
        roomy = {Capability.MEMORY} if self.computer.memory_bytes is not None else set()
        return frozenset(always | moving | roads | powered | roomy)


_OTHER_FILES = {
    "listen": "the configuration of a live node; `carrycast node` runs it",
    "interfaces": "the configuration of a live node; `carrycast node` runs it",
    "figures": "an experiment; `carrycast reproduce` runs it",
}
"""What else people write, by a key that no scenario has."""


def load_scenario(path: Path) -> Scenario:
    """A scenario from its file, checked; whatever is wrong is named with file and key."""
    table = read_toml(path)
    if "duration_s" not in table:
        for key, what in _OTHER_FILES.items():
            if key in table:
                raise UserError(f"{path}: is no scenario but {what}")
    table.setdefault("name", path.stem)
    if "base" in table:
        raise UserError(f"{path}: {unknown_key('base', field_names(Scenario))}")
    return parse_scenario({**table, "base": str(path.parent)}, str(path))


def parse_scenario(table: Mapping[str, object], where: str) -> Scenario:
    """A scenario from tables, checked."""
    scenario = parse_settings(dict(table), Scenario, where)
    check_scenario(scenario, where)
    return scenario


def check_scenario(scenario: Scenario, where: str) -> None:
    """Everything that can be known to be wrong before a run."""
    both = scenario.mobility is not None and scenario.contacts is not None
    if both or (scenario.has_no_radio and not scenario.wires):
        raise UserError(
            f"{where}: needs either [mobility] or contacts (a file of contacts to replay), or only [[wires]]"
        )
    if scenario.mobility is not None:
        _check_mobility(scenario.mobility, scenario.nodes, where)
    _check_radio(scenario, where)
    check_wires(scenario.wires, scenario.nodes, where)
    check_roles(scenario.roles, scenario.nodes, where)
    entries: list[tuple[str, SubscribeEntry | PublishEntry]] = []
    entries += [(f"{where}: subscribe[{place}]", entry) for place, entry in enumerate(scenario.subscribe)]
    entries += [(f"{where}: publish[{place}]", entry) for place, entry in enumerate(scenario.publish)]
    for at, entry in entries:
        check_selection(entry.nodes, scenario.nodes, scenario.roles, f"{at}.nodes")
        check_workload_entry(entry, at)
        if isinstance(entry, SubscribeEntry):
            ids = dict.fromkeys(processor.id for processor in scenario.processors)
            check_initial_state(entry.processor, entry.state, entry.parameters, ids, at)
        if isinstance(entry, PublishEntry) and entry.from_s > scenario.duration_s:
            raise UserError(f"{at}.from_s: is after the end of the run, {scenario.duration_s:g} s")
    _check_retrieval(scenario, where)
    _check_processors(scenario, where)
    check_applications(
        scenario.applications, scenario.command, scenario.nodes, scenario.roles, scenario.offers(), where
    )
    for place, fault in enumerate(scenario.faults):
        check_fault(fault, scenario.nodes, scenario.roles, scenario.duration_s, f"{where}: faults[{place}]")
        if isinstance(fault, GpsError) and scenario.mobility is None:
            raise UserError(
                f"{where}: faults[{place}]: where contacts are replayed nobody has a position; leave it out"
            )
    if scenario.measure.from_s > scenario.duration_s:
        raise UserError(f"{where}: measure.from_s: is after the end of the run, {scenario.duration_s:g} s")
    to_s = scenario.measure.to_s
    if to_s is not None and to_s < scenario.measure.from_s:
        raise UserError(f"{where}: measure.to_s: must not be before from_s = {scenario.measure.from_s}")
    check_requested_metrics(
        scenario.measure.more, scenario.nodes, f"{where}: measure.more", scenario.roles, scenario.duration_s
    )
    if scenario.protocol:
        plan = make_stack_plan(scenario.protocol, scenario.router, None, scenario.offers(), where, scenario.roles)
        known = [
            *(["energy"] if scenario.energy is not None else []),
            *(["free_memory_bytes"] if scenario.computer.memory_bytes is not None else []),
        ]
        check_probes(scenario.measure.more, plan.protocol.probes, known, f"{where}: measure.more")
        for place, subscribe in enumerate(scenario.subscribe):
            if subscribe.processor is not None and not serves_processors(plan.protocol):
                raise UserError(
                    f"{where}: subscribe[{place}].processor: {plan.protocol.name} runs no processors for subscriptions"
                )


def _check_retrieval(scenario: Scenario, where: str) -> None:
    for place, advertise in enumerate(scenario.advertise):
        at = f"{where}: advertise[{place}]"
        check_selection(advertise.nodes, scenario.nodes, scenario.roles, f"{at}.nodes")
        check_advertise(advertise, at)
    for place, request in enumerate(scenario.request):
        at = f"{where}: request[{place}]"
        check_selection(request.nodes, scenario.nodes, scenario.roles, f"{at}.nodes")
        check_request(request, at)


def _check_processors(scenario: Scenario, where: str) -> None:
    """Two at a node may not have the same id; of nodes that are drawn that is only known in a run."""
    taken: set[tuple[str, int]] = set()
    for place, processor in enumerate(scenario.processors):
        at = f"{where}: processors[{place}]"
        check_selection(processor.nodes, scenario.nodes, scenario.roles, f"{at}.nodes")
        check_filter(processor.filter, f"{at}.filter")
        try:
            split_function(processor.function)
        except ProcessorError as error:
            raise UserError(f"{at}.function: {error}") from None
        nodes: RoleEntry = processor.nodes
        if isinstance(nodes, str):
            nodes = scenario.roles.get(nodes, nodes)
        if isinstance(nodes, Role):
            # All of a role are not all nodes; a list is what it says.
            nodes = nodes.nodes if isinstance(nodes.nodes, list) else []
        for node in range(scenario.nodes) if nodes == "all" else nodes if isinstance(nodes, list) else []:
            if (processor.id, node) in taken:
                raise UserError(f"{at}.id: node {node} has another processor {processor.id!r}")
            taken.add((processor.id, node))


def _check_radio(scenario: Scenario, where: str) -> None:
    settings = dict(scenario.radio) or {"model": DEFAULT_RADIO}
    name = settings.pop("model", None)
    if not isinstance(name, str):
        given = " or ".join(map(repr, radio_names()))
        raise UserError(f"{where}: radio.model: this key is required; give {given}")
    try:
        kind = radio_named(name)
    except UserError as error:
        raise UserError(f"{where}: radio.model: {error}") from None
    parse_settings(settings, kind, where, "radio")
    if kind.needs_positions and scenario.mobility is None:
        raise UserError(f"{where}: radio.model: {name} must know where nodes are: it needs [mobility], not contacts")


def _check_mobility(table: Mapping[str, object], nodes: int, where: str) -> None:
    settings = dict(table)
    name = settings.pop("model", None)
    if not isinstance(name, str):
        raise UserError(f"{where}: mobility.model: is needed; `carrycast mobility` lists the models")
    try:
        kind = mobility_named(name)
    except UserError as error:
        raise UserError(f"{where}: mobility.model: {error}") from None
    model = parse_settings(settings, kind, where, "mobility")
    try:
        model.check(nodes)
    except UserError as error:
        raise UserError(f"{where}: mobility: {error}") from None


def check_wires(wires: list[Wire], nodes: int, where: str) -> None:
    """Refuse, at loading, wires that join nobody."""
    for place, wire in enumerate(wires):
        at = f"{where}: wires[{place}]"
        if bool(wire.between) == (wire.tree is not None):
            raise UserError(f"{at}: needs either between, pairs of nodes, or tree, how many children each has")
        for pair in wire.between:
            check_selection(list(pair), nodes, {}, f"{at}.between")
            if pair[0] == pair[1]:
                raise UserError(f"{at}.between: a wire joins two different nodes, not {pair[0]} twice")
    interfaces = [wire.interface for wire in wires]
    if len(set(interfaces)) != len(interfaces) or "radio" in interfaces:
        raise UserError(f"{where}: wires: each has an interface name of its own, and none is 'radio'")
