"""Scenarios: one TOML file with the movement, radio, protocol, workload and faults of a simulated network."""

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
from carrycast.sim.mobility import FACTS_FILE, Area, MobilityModel, find_movement_model as mobility_named
from carrycast.sim.radio import DEFAULT_RADIO, DiskRadio, Radio, radio_named, radio_names
from carrycast.sim.scenario.applications import ApplicationEntry, Calendar, CommandEntry, check_applications
from carrycast.sim.scenario.draws import Selection, check_filter, check_selection
from carrycast.sim.scenario.faults import Fault, GpsError, check_fault
from carrycast.sim.scenario.flows import FlowEntry, check_flow
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
    """The simulator reports links to nodes at the moment when they change."""


class NoDiscovery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="mode", tag="none"):
    """Nodes are told of no links; for protocols that discover their neighbors themselves."""


class BeaconMode(BeaconSettings, frozen=True, tag_field="mode", tag="beacon"):
    """Nodes discover their links by beacons, as live nodes do."""


class Measure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[measure]` of a scenario: the window of publications that metrics count, and additional metrics."""

    from_s: Time = 0.0
    """Only events published from this time on are counted."""
    to_s: Time | None = None
    """Only events published until this time are counted; by default until the end of the run."""
    more: list[RequestedMetric] = []
    """Additional metrics."""


class ProcessorEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[processors]]` of a scenario: a function from events to events that the selected nodes can run."""

    id: Annotated[str, Meta(min_length=1, max_length=64)]
    """The name by which subscriptions refer to the processor."""
    function: FunctionInFile
    """`file.py:name`, the file relative to the scenario's folder."""
    nodes: Selection
    """The nodes that can run it: all, a number, a share, a list of ids, or a role."""
    filter: str = "true"
    """The events that it processes."""
    inputs: Annotated[int, Meta(ge=1, le=64)] = 1
    """How many events one call takes."""
    cost_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    """How long one call takes."""

    def processor(self) -> Processor:
        """The description of the processor that the protocol gets."""
        return Processor(self.id, self.filter, self.inputs, self.cost_s)


class Wire(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[wires]]` of a scenario: an interface over which some nodes are always linked."""

    interface: Annotated[str, Meta(min_length=1, max_length=32)] = "ethernet"
    """The name of the interface."""
    between: list[tuple[int, int]] = []
    """Pairs of nodes that are linked."""
    tree: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """Instead of `between`: all nodes form a balanced tree from node 0 with this many children each; 1 is a line."""
    delay_s: Annotated[float, Meta(ge=0, le=3600)] = 0.0001
    """The time from the end of a transmission to its reception."""
    rate_bps: Annotated[float, Meta(ge=1, le=1e12)] | None = None
    """The data rate. Without it frames take no time and never queue."""
    queue: Annotated[int, Meta(ge=1, le=1_000_000)] = 50
    """How many frames may wait for the one being sent; more are dropped as `queue_full`."""

    def pairs(self, nodes: int) -> list[tuple[int, int]]:
        """The pairs of nodes that the wire joins in a network of `nodes` nodes."""
        if self.tree is None:
            return self.between
        return [((node - 1) // self.tree, node) for node in range(1, nodes)]

    def radio(self) -> DiskRadio:
        """The radio model that stands for the wire: a disk radio whose links never end."""
        return DiskRadio(delay_s=self.delay_s, rate_bps=self.rate_bps, queue=self.queue)


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about a run except its seed."""

    name: Annotated[str, Meta(min_length=1, max_length=100)] = "scenario"
    """The name of the scenario; by default the file's name."""
    description: str = ""
    """A description for readers."""
    duration_s: Annotated[float, Meta(gt=0, le=1e7)]
    """How long the run lasts."""
    nodes: Annotated[int, Meta(ge=1, le=1_000_000)]
    """The number of nodes; their ids are 0, 1, ..."""
    area_m: tuple[Annotated[float, Meta(gt=0, le=1e7)], Annotated[float, Meta(gt=0, le=1e7)]] = DEFAULT_AREA_M
    """The rectangle in which nodes move, from (0, 0) to this corner."""
    mobility: dict[str, object] | None = None
    """The movement model, `model`, and its settings."""
    contacts: InputFile | None = None
    """Instead of `mobility`: a contact plan (.parquet), or a file with CONN events of the ONE."""
    radio: dict[str, object] = {}
    """The radio model, `model`, and its settings; by default `disk`."""
    wires: list[Wire] = []
    """Interfaces over which nodes are always linked."""
    discovery: OracleDiscovery | BeaconMode | NoDiscovery = BeaconMode()
    """How nodes discover their neighbors. Beacons exist in every environment, with their cost."""
    protocol: dict[str, object] = {}
    """The protocol, `name`, perhaps a `variant` and a `router`, and its settings."""
    router: dict[str, object] | None = None
    """The router, `name`, and its settings, for protocols that use one; by default the protocol's own."""
    roles: dict[str, RoleEntry] = {}
    """Names of groups of nodes: each a selection of nodes, or a table that refers to other roles."""
    subscribe: list[SubscribeEntry] = []
    """The subscriptions."""
    publish: list[PublishEntry] = []
    """The publications."""
    flow: list[FlowEntry] = []
    """Unicast flows: packets from nodes to other nodes at a rate."""
    advertise: list[AdvertiseEntry] = []
    """The advertisements of repositories and publishers."""
    request: list[RequestEntry] = []
    """The requests for stored events."""
    processors: list[ProcessorEntry] = []
    """The functions from events to events that nodes can run."""
    applications: list[ApplicationEntry] = []
    """The applications that nodes run above their protocol."""
    command: list[CommandEntry] = []
    """The commands that users give to applications during the run."""
    calendar: Calendar = Calendar()
    """The date and time at time 0."""
    faults: list[Fault] = []
    """The faults of the run."""
    service: ServiceSettings | None = None
    """How long a node processes a message. Without it processing takes no time."""
    energy: EnergySettings | None = None
    """The batteries of the nodes. Without it nodes know no charge."""
    computer: ComputerSettings = ComputerSettings()
    """The resources of the machine that a node runs on."""
    measure: Measure = Measure()
    """The window of publications that metrics count, and additional metrics."""
    trace: Level = Level.METRICS
    """What the run records: only metrics, also deliveries, or every transmission, drop and link (`full`)."""
    base: str = "."
    """The folder from which relative file names are taken; set by `load_scenario`."""

    @property
    def area(self) -> Area:
        """The rectangle in which nodes move."""
        return Area(*self.area_m)

    @property
    def has_no_radio(self) -> bool:
        """Whether nodes have only wires: the scenario has neither movement nor contacts."""
        return self.mobility is None and self.contacts is None

    def resolve_files(self) -> "Scenario":
        """Return a copy whose relative file names are resolved against the scenario's folder."""
        return map_files(self, file_locator(Path(self.base)))

    def mobility_model(self) -> MobilityModel | None:
        """The movement model with its settings, or None if a contact plan is replayed."""
        if self.mobility is None:
            return None
        table = dict(self.mobility)
        kind = mobility_named(str(table.pop("model")))
        return parse_settings(table, kind, self.name, "mobility").resolved(Path(self.base))

    def radio_settings(self) -> Radio:
        """The radio model with its settings as they are written: names of files are relative to the scenario."""
        table = dict(self.radio) or {"model": DEFAULT_RADIO}
        kind = radio_named(str(table.pop("model")))
        return parse_settings(table, kind, self.name, "radio")

    def radio_model(self) -> Radio:
        """The radio model with its settings."""
        return map_files(self.radio_settings(), file_locator(Path(self.base)))

    def make_stack_plan(self) -> StackPlan:
        """Build the protocol stack of a node. It sends beacons if the scenario has them and some layer uses them."""
        plan = make_stack_plan(self.protocol, self.router, None, self.offers(), self.name, self.roles)
        if not isinstance(self.discovery, BeaconMode) or not needs_beacons(plan):
            return plan
        beacons = BeaconSettings(**{name: getattr(self.discovery, name) for name in BeaconSettings.__struct_fields__})
        return StackPlan(plan.protocol, plan.settings, plan.router, plan.router_settings, beacons)

    def offers(self) -> frozenset[Capability]:
        """The capabilities that the simulator offers to protocols in this scenario."""
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
"""Other kinds of TOML files that users may pass by mistake, by a key that no scenario has."""


def load_scenario(path: Path) -> Scenario:
    """Read and check a scenario file. A UserError names the file and the key that is wrong."""
    try:
        table = read_toml(path)
    except UserError as error:
        holds_movement = path.is_file() or (path / FACTS_FILE).is_file()
        if path.suffix == ".toml" or not holds_movement:
            raise
        raise UserError(
            f"{path}: is no scenario, which is a TOML file; if it holds movement, `carrycast new scenario NAME --from "
            f"{path}` makes a scenario that plays it ({str(error).removeprefix(f'{path}: ')})"
        ) from None
    if "duration_s" not in table:
        for key, what in _OTHER_FILES.items():
            if key in table:
                raise UserError(f"{path}: is no scenario but {what}")
    table.setdefault("name", path.stem)
    if "base" in table:
        raise UserError(f"{path}: {unknown_key('base', field_names(Scenario))}")
    return parse_scenario({**table, "base": str(path.parent)}, str(path))


def parse_scenario(table: Mapping[str, object], where: str) -> Scenario:
    """Parse and check the tables of a scenario. `where` begins the error messages."""
    scenario = parse_settings(dict(table), Scenario, where)
    check_scenario(scenario, where)
    return scenario


def check_scenario(scenario: Scenario, where: str) -> None:
    """Raise a UserError for the first mistake that can be found before a run."""
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
    for place, flow in enumerate(scenario.flow):
        check_flow(flow, scenario.nodes, scenario.roles, scenario.duration_s, f"{where}: flow[{place}]")
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
    """Reject two processors with one id at a node. Where nodes are drawn, only the run can check that."""
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
            # "all" within a role does not mean all nodes of the network; only a list names its nodes here.
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
    radio = parse_settings(settings, kind, where, "radio")
    try:
        radio.check(scenario.nodes, scenario.roles)
    except UserError as error:
        raise UserError(f"{where}: radio.{error}") from None
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
    """Reject wires that join no two different nodes, or that share an interface."""
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
