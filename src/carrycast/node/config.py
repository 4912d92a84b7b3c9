"""The configuration of a node: one TOML file. docs/live.md describes each key."""

import errno
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from carrycast.core.functions import ProcessorError, split_function
from carrycast.core.maps import read_map
from carrycast.core.matching import Filter
from carrycast.core.model import Area, FilterText, NodeId, Position, Processor, RoadMap
from carrycast.core.model.identity import Coordinate, Extent
from carrycast.core.protocol import Advertises, BeaconSettings, RunsProcessors, StackPlan
from carrycast.core.settings import parse_settings, read_toml
from carrycast.core.stacks import DEFAULT_PROTOCOL, make_stack_plan, needed_roles
from carrycast.core.utilization import DEFAULT_WINDOW_S, LoadWindow
from carrycast.errors import UserError, WorkError
from carrycast.node.application_config import ApplicationSection, EnforcementSection, configured
from carrycast.node.control_config import ControlSection, control_place, token_file
from carrycast.node.gateways import Opener, gateway_named
from carrycast.node.identity import identity
from carrycast.node.link.config import (
    DiscoverySection,
    InterfaceConfig,
    LinkSettings,
    Name,
    Section,
    several_interfaces,
    single_interface,
)
from carrycast.node.link.rate_limit import QuotaSettings
from carrycast.node.link.socket_address import SocketAddress
from carrycast.node.logs import LogSection
from carrycast.node.metrics_config import MetricsSection, metrics_place
from carrycast.node.runtime.actions import AllowedActions
from carrycast.node.runtime.application_host import ApplicationConfig
from carrycast.node.runtime.host import HostFacts, Whereabouts, offered_capabilities
from carrycast.node.runtime.processing import ProcessorConfig
from carrycast.node.security.identity import KeysSection, node_of
from carrycast.node.storage.backlog import BacklogSettings
from carrycast.trace import Level

if TYPE_CHECKING:
    from carrycast.node.security.config import Keys


class TraceSection(Section, frozen=True):
    """Where the trace goes. A minute is what a crash may cost of it; `run` joins the traces of several nodes."""

    directory: str
    level: Level = Level.DELIVERIES
    run: Name = "live"
    flush_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0


class StoreSection(Section, frozen=True):
    """The file of what outlives a restart, and how much may wait in it for one named subscription."""

    file: str
    backlog_bytes: Annotated[int, Meta(ge=1, le=1 << 40)] = BacklogSettings().max_bytes
    backlog_s: Annotated[float, Meta(gt=0, le=1e9)] = BacklogSettings().max_age_s


class PositionSection(Section, frozen=True):
    """Where a node stands, until it is told otherwise."""

    x_m: Coordinate
    y_m: Coordinate


class ProcessorSection(Section, frozen=True):
    """A processor that this node can run. A second is far more than a function on one event should take."""

    id: Name
    function: Annotated[str, Meta(pattern=r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$")]
    filter: FilterText
    inputs: Annotated[int, Meta(ge=1, le=64)] = 1
    time_limit_s: Annotated[float, Meta(gt=0, le=3600)] = 1.0


class NodeFile(Section, frozen=True):
    """The whole file."""

    name: Name
    protocol: dict[str, object] = msgspec.field(default_factory=lambda: {"name": DEFAULT_PROTOCOL})
    key_file: str | None = None
    keys: KeysSection | None = None
    listen: dict[str, object] | None = None
    """Its keys are those of the link adapter."""
    discovery: DiscoverySection = DiscoverySection()
    link: LinkSettings | None = None
    interfaces: tuple[dict[str, object], ...] = ()
    router: dict[str, object] | None = None
    trace: TraceSection | None = None
    store: StoreSection | None = None
    control: ControlSection | None = None
    quotas: QuotaSettings = QuotaSettings()
    metrics: MetricsSection | None = None
    mqtt: dict[str, object] | None = None
    position: PositionSection | None = None
    processors: tuple[ProcessorSection, ...] = ()
    applications: tuple[ApplicationSection, ...] = ()
    enforcement: EnforcementSection = EnforcementSection()
    keeps: tuple[FilterText, ...] = ()
    roles: tuple[Name, ...] = ()
    directory: dict[Name, list[Name | NodeId]] | None = None
    area_m: tuple[Extent, Extent] | None = None
    map: Annotated[str, Meta(min_length=1)] | None = None
    """A map that comes with carrycast, or a .toml file."""
    load_window_s: LoadWindow = DEFAULT_WINDOW_S
    log: LogSection = LogSection()


class NoRoomError(WorkError):
    """A disk is full."""


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """How much of the trace is kept, and where; without a directory it stays in memory."""

    level: Level = Level.METRICS
    directory: Path | None = None
    run: str = "live"
    flush_s: float = 60.0

    def new_directory(self, name: str) -> Path | None:
        """A folder of its own for each start of a node, so that no trace overwrites an older one."""
        base = self.directory
        if base is None or self.level is Level.METRICS:
            return None
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        directory = base / f"{name}-{stamp}-{os.getpid()}"
        number = 1
        while directory.exists():
            number += 1
            directory = base / f"{name}-{stamp}-{os.getpid()}-{number}"
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise NoRoomError(f"there is no room for the trace in {base}") from None
            raise WorkError(f"cannot write traces to {base}: {error.strerror or error}") from None
        return directory


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """Everything a live node needs to know, checked."""

    name: str
    node: NodeId
    plan: StackPlan
    interfaces: tuple[InterfaceConfig, ...] = (InterfaceConfig(),)
    """At least one."""
    keys: "Keys | None" = None
    """Without any the node is open: everybody in reach takes part."""
    trace: TraceConfig = field(default_factory=TraceConfig)
    store: Path | None = None
    backlog: BacklogSettings = field(default_factory=BacklogSettings)
    control: Path | int | None = None
    control_token: Path | None = None
    metrics: SocketAddress | None = None
    """Where monitoring asks how the node is."""
    gateways: Mapping[str, Opener] = field(default_factory=dict)
    """Where clients of other protocols come in."""
    position: Position | None = None
    processors: tuple[ProcessorConfig, ...] = ()
    roles: tuple[str, ...] = ()
    directory: Mapping[str, tuple[NodeId, ...]] | None = None
    names: Mapping[NodeId, str] = field(default_factory=dict)
    """What the directory calls the nodes that it knows by name."""
    area: Area | None = None
    roads: RoadMap | None = None
    applications: tuple[ApplicationConfig, ...] = ()
    allowed: AllowedActions = field(default_factory=AllowedActions)
    keeps: tuple[str, ...] = ()
    """The filters of what the node stores for later."""
    load_window_s: float = DEFAULT_WINDOW_S
    foreseeable: bool = False
    """Events are numbered as the simulator does, so that frames are as long as there; only for closed worlds."""

    def facts(self) -> HostFacts:
        """What the node's state machines may be told of it; each start begins at the position given here."""
        there = None if self.position is None else Whereabouts(self.position)
        processors = tuple(installed.processor for installed in self.processors)
        return HostFacts(there, processors, self.roles, self.directory, self.area, self.roads, self.name)


def read_file(path: Path) -> NodeFile:
    """What a configuration says, as far as it can be checked by itself."""
    table = read_toml(path)
    if "duration_s" in table:
        raise UserError(f"{path}: is a scenario; `carrycast run` simulates it, `carrycast emulate` plays it live")
    return parse_settings(table, NodeFile, str(path))


def load_config(path: Path) -> NodeConfig:
    """Read and check a node's configuration. Paths in it are relative to its folder. A UserError says what is wrong."""
    return _checked_config(read_file(path), path)


def config_from(tables: Mapping[str, object], folder: Path = Path()) -> NodeConfig:
    """The same from tables that a program made; paths in them are relative to the folder."""
    return _checked_config(parse_settings(dict(tables), NodeFile, "config"), folder / "config")


def _checked_config(file: NodeFile, path: Path) -> NodeConfig:
    folder = path.parent
    facts = _facts(file, path)
    plan = _plan(file, facts, path)
    processors = tuple(_processor(section, index, path) for index, section in enumerate(file.processors))
    ids = [config.processor.id for config in processors]
    if len(set(ids)) != len(ids):
        raise UserError(f"{path}: processors: two have the same id")
    if processors and not issubclass(plan.protocol, RunsProcessors):
        raise UserError(f"{path}: processors: protocol {plan.protocol.name!r} runs none")
    trace = file.trace
    keys, node = identity(file.name, file.key_file, file.keys, path)
    return NodeConfig(
        name=file.name,
        node=node,
        keys=keys,
        plan=plan,
        interfaces=tuple(replace(one, quotas=file.quotas) for one in _interfaces(file, path)),
        trace=TraceConfig()
        if trace is None
        else TraceConfig(trace.level, folder / trace.directory, trace.run, trace.flush_s),
        store=None if file.store is None else folder / file.store.file,
        backlog=_backlog(file.store),
        control=None if file.control is None else control_place(file.control, path),
        control_token=token_file(file.control, path),
        metrics=metrics_place(file.metrics, path),
        gateways={} if file.mqtt is None else {"mqtt": gateway_named("mqtt")(file.mqtt, str(path))},
        position=None if facts.whereabouts is None else facts.whereabouts.position,
        processors=processors,
        roles=file.roles,
        directory=facts.directory,
        names={node_of(name.encode()): name for name in _named(file)},
        area=facts.area,
        roads=facts.roads,
        applications=configured(file.applications, offered_capabilities(file.store is not None, facts), path),
        allowed=file.enforcement.allowed(),
        keeps=_keeps(file, plan, path),
        load_window_s=file.load_window_s,
    )


def _backlog(store: StoreSection | None) -> BacklogSettings:
    return BacklogSettings() if store is None else BacklogSettings(store.backlog_bytes, store.backlog_s)


def _plan(file: NodeFile, facts: HostFacts, path: Path) -> StackPlan:
    offers = offered_capabilities(file.store is not None, facts)
    discovery = file.discovery
    beacons = BeaconSettings(**{name: getattr(discovery, name) for name in BeaconSettings.__struct_fields__})
    # Only a directory says what others are.
    roles = None if file.directory is None else [*file.roles, *file.directory]
    plan = make_stack_plan(file.protocol, file.router, beacons, offers, str(path), roles)
    needed = needed_roles(plan.protocol, plan.settings)
    if roles is None and needed and not needed & set(file.roles):
        known = ", ".join(sorted(needed))
        raise UserError(
            f"{path}: roles: {plan.protocol.name} knows nodes as {known}; say what this one is, or give a [directory]"
        )
    if file.router is not None and plan.router is None:
        # A scenario may name a router for some of the protocols that are compared in it; a node has one protocol.
        raise UserError(f"{path}: router: {plan.protocol.name} uses no router; leave it out")
    return plan


def _keeps(file: NodeFile, plan: StackPlan, path: Path) -> tuple[str, ...]:
    if file.keeps and not issubclass(plan.protocol, Advertises):
        raise UserError(f"{path}: keeps: {plan.protocol.name} stores no events")
    try:
        return tuple(Filter(text).text for text in file.keeps)
    except UserError as error:
        raise UserError(f"{path}: keeps: {error}") from None


def _facts(file: NodeFile, path: Path) -> HostFacts:
    area = None if file.area_m is None else Area(*file.area_m)
    roads = None
    if file.map is not None:
        try:
            roads = read_map(str(path.parent / file.map) if file.map.endswith(".toml") else file.map)
        except UserError as error:
            raise UserError(f"{path}: map: {error}") from None
        # A map has a rectangle of its own; who says nothing else of the area means that.
        area = area or Area(roads.width_m, roads.height_m)
        if roads.width_m > area.width_m or roads.height_m > area.height_m:
            raise UserError(
                f"{path}: area_m: the map {roads.name} needs {roads.width_m:g} m x {roads.height_m:g} m; "
                f"make the area as large, or leave it out"
            )
    there = None if file.position is None else Whereabouts(Position(file.position.x_m, file.position.y_m))
    return HostFacts(there, roles=file.roles, directory=_directory(file), area=area, roads=roads)


def _directory(file: NodeFile) -> dict[str, tuple[NodeId, ...]] | None:
    """The nodes of each role: by name where a node has no key file, else by id."""
    if file.directory is None:
        return None
    return {
        role: tuple(node_of(node.encode()) if isinstance(node, str) else node for node in nodes)
        for role, nodes in file.directory.items()
    }


def _named(file: NodeFile) -> list[str]:
    return [node for nodes in (file.directory or {}).values() for node in nodes if isinstance(node, str)]


def _interfaces(file: NodeFile, path: Path) -> tuple[InterfaceConfig, ...]:
    if not file.interfaces:
        return (single_interface(file.listen, file.discovery, file.link, path),)
    elsewhere = {
        "listen": file.listen is not None,
        "link": file.link is not None,
        "discovery.peers": bool(file.discovery.peers),
        "discovery.group": file.discovery.group is not None,
    }
    for key, given in elsewhere.items():
        if given:
            raise UserError(f"{path}: {key}: leave it out and say it of each of the [[interfaces]]")
    return several_interfaces(file.interfaces, path)


def _processor(section: ProcessorSection, index: int, path: Path) -> ProcessorConfig:
    place = f"{path}: processors[{index}]"
    try:
        file, function = split_function(section.function)
    except ProcessorError as error:
        raise UserError(f"{place}.function: {error}") from None
    source = path.parent / file
    if not source.is_file():
        raise UserError(f"{place}.function: there is no file {source}")
    try:
        text = Filter(section.filter).text
    except UserError as error:
        raise UserError(f"{place}.filter: {error}") from None
    return ProcessorConfig(
        Processor(section.id, text, section.inputs), source.resolve(), function, section.time_limit_s
    )
