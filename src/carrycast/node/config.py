"""The checked configuration of a node, and its identity. `load_config` reads a TOML file (`config_file.py`)."""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.core.functions import ProcessorError, split_function
from carrycast.core.maps import read_map
from carrycast.core.matching import Filter
from carrycast.core.model import Area, NodeId, Position, Processor, RoadMap
from carrycast.core.protocol import Advertises, BeaconSettings, Capability, RunsProcessors, StackPlan, find_application
from carrycast.core.settings import parse_settings
from carrycast.core.stacks import make_stack_plan, needed_roles
from carrycast.core.utilization import DEFAULT_WINDOW_S
from carrycast.errors import UserError, WorkError
from carrycast.node.config_file import (
    ApplicationSection,
    NodeFile,
    ProcessorSection,
    StoreSection,
    parse_config_tables,
    read_config_file,
)
from carrycast.node.gateways import GatewayFactory, configure_gateway
from carrycast.node.link import InterfaceConfig, SocketAddress, parse_interfaces, parse_single_interface
from carrycast.node.runtime import (
    AllowedActions,
    ApplicationConfig,
    HostFacts,
    ProcessorConfig,
    Whereabouts,
    find_capabilities,
)
from carrycast.node.security import KeysSection, derive_node_id
from carrycast.node.storage import BacklogSettings
from carrycast.node.trace_files import TraceConfig

if TYPE_CHECKING:
    from carrycast.node.security import Keys

KEY_BYTES = 32
"""The length of a key file of a node without `[keys]`."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The checked configuration of a live node."""

    name: str
    node: NodeId
    plan: StackPlan
    interfaces: tuple[InterfaceConfig, ...] = (InterfaceConfig(),)
    """At least one."""
    keys: "Keys | None" = None
    """Without keys the node is open: every node in reach takes part."""
    trace: TraceConfig = field(default_factory=TraceConfig)
    store: Path | None = None
    backlog: BacklogSettings = field(default_factory=BacklogSettings)
    control: Path | int | None = None
    control_token: Path | None = None
    metrics: SocketAddress | None = None
    """The address of the monitoring server."""
    gateways: Mapping[str, GatewayFactory] = field(default_factory=dict)
    """The gateways for clients of other protocols, by name."""
    position: Position | None = None
    processors: tuple[ProcessorConfig, ...] = ()
    roles: tuple[str, ...] = ()
    directory: Mapping[str, tuple[NodeId, ...]] | None = None
    names: Mapping[NodeId, str] = field(default_factory=dict)
    """The names of the nodes that the directory knows by name."""
    area: Area | None = None
    roads: RoadMap | None = None
    applications: tuple[ApplicationConfig, ...] = ()
    allowed: AllowedActions = field(default_factory=AllowedActions)
    keeps: tuple[str, ...] = ()
    """The filters of the events that the node stores."""
    load_window_s: float = DEFAULT_WINDOW_S
    predictable_ids: bool = False
    """Whether events are numbered as in the simulator, so that frames have the same length; for tests and the lab
    only."""

    def make_host_facts(self) -> HostFacts:
        """Return the part of the configuration that state machines may read, for one start of the node."""
        there = None if self.position is None else Whereabouts(self.position)
        processors = tuple(installed.processor for installed in self.processors)
        return HostFacts(there, processors, self.roles, self.directory, self.area, self.roads, self.name)


def load_config(path: Path) -> NodeConfig:
    """Read and check a node's configuration. Paths in it are relative to its folder. A UserError says what is wrong."""
    return _check_config(read_config_file(path), path)


def config_from(tables: Mapping[str, object], folder: Path = Path()) -> NodeConfig:
    """Check the configuration in a dictionary; paths in it are relative to the folder."""
    return _check_config(parse_config_tables(tables, "config"), folder / "config")


def _check_config(file: NodeFile, path: Path) -> NodeConfig:
    folder = path.parent
    facts = _parse_facts(file, path)
    plan = _parse_plan(file, facts, path)
    processors = tuple(_parse_processor(section, index, path) for index, section in enumerate(file.processors))
    ids = [config.processor.id for config in processors]
    if len(set(ids)) != len(ids):
        raise UserError(f"{path}: processors: two have the same id")
    if processors and not issubclass(plan.protocol, RunsProcessors):
        raise UserError(f"{path}: processors: protocol {plan.protocol.name!r} runs none")
    trace = file.trace
    keys, node = read_identity(file.name, file.key_file, file.keys, path)
    return NodeConfig(
        name=file.name,
        node=node,
        keys=keys,
        plan=plan,
        interfaces=tuple(replace(one, quotas=file.quotas) for one in _parse_interfaces(file, path)),
        trace=TraceConfig()
        if trace is None
        else TraceConfig(trace.level, folder / trace.directory, trace.run, trace.flush_s),
        store=None if file.store is None else folder / file.store.file,
        backlog=_parse_backlog(file.store),
        control=None if file.control is None else file.control.find_address(path),
        control_token=None if file.control is None else file.control.find_token_file(path),
        metrics=None if file.metrics is None else file.metrics.find_address(path),
        gateways=_parse_gateways(file, path),
        position=None if facts.whereabouts is None else facts.whereabouts.position,
        processors=processors,
        roles=file.roles,
        directory=facts.directory,
        names={derive_node_id(name.encode()): name for name in _find_directory_names(file)},
        area=facts.area,
        roads=facts.roads,
        applications=_parse_applications(file.applications, find_capabilities(file.store is not None, facts), path),
        allowed=file.enforcement.make_allowed_actions(),
        keeps=_parse_keeps(file, plan, path),
        load_window_s=file.load_window_s,
    )


def _parse_gateways(file: NodeFile, path: Path) -> dict[str, GatewayFactory]:
    tables = dict(file.gateways)
    if file.mqtt is not None:
        if "mqtt" in tables:
            raise UserError(f"{path}: gateways.mqtt: is [mqtt] already; leave one of them out")
        tables["mqtt"] = file.mqtt
    return {name: configure_gateway(name, table, str(path)) for name, table in tables.items()}


def _parse_applications(
    sections: tuple[ApplicationSection, ...], offers: frozenset[Capability], path: Path
) -> tuple[ApplicationConfig, ...]:
    """Check the applications of a node; a UserError says what is wrong."""
    found: dict[str, ApplicationConfig] = {}
    for index, section in enumerate(sections):
        where = f"{path}: applications[{index}]"
        try:
            kind = find_application(section.name)
        except UserError as error:
            raise UserError(f"{where}.name: {error}") from None
        if section.name in found:
            raise UserError(f"{where}.name: {section.name} stands there already")
        settings = parse_settings(section.settings, kind.settings_type, where, "settings")
        lacking = (kind.needs | settings.needs()) - offers
        if lacking:
            raise UserError(f"{where}: {section.name} needs {', '.join(sorted(lacking))}, which this node has not")
        found[section.name] = ApplicationConfig(kind, settings)
    return tuple(found.values())


def _parse_backlog(store: StoreSection | None) -> BacklogSettings:
    return BacklogSettings() if store is None else BacklogSettings(store.backlog_bytes, store.backlog_s)


def _parse_plan(file: NodeFile, facts: HostFacts, path: Path) -> StackPlan:
    offers = find_capabilities(file.store is not None, facts)
    discovery = file.discovery
    beacons = BeaconSettings(**{name: getattr(discovery, name) for name in BeaconSettings.__struct_fields__})
    # The roles of other nodes are known only from a directory.
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


def _parse_keeps(file: NodeFile, plan: StackPlan, path: Path) -> tuple[str, ...]:
    if file.keeps and not issubclass(plan.protocol, Advertises):
        raise UserError(f"{path}: keeps: {plan.protocol.name} stores no events")
    try:
        return tuple(Filter(text).text for text in file.keeps)
    except UserError as error:
        raise UserError(f"{path}: keeps: {error}") from None


def _parse_facts(file: NodeFile, path: Path) -> HostFacts:
    area = None if file.area_m is None else Area(*file.area_m)
    roads = None
    if file.map is not None:
        try:
            roads = read_map(str(path.parent / file.map) if file.map.endswith(".toml") else file.map)
        except UserError as error:
            raise UserError(f"{path}: map: {error}") from None
        # The default of the area is that of the map.
        area = area or Area(roads.width_m, roads.height_m)
        if roads.width_m > area.width_m or roads.height_m > area.height_m:
            raise UserError(
                f"{path}: area_m: the map {roads.name} needs {roads.width_m:g} m x {roads.height_m:g} m; "
                f"make the area as large, or leave it out"
            )
    there = None if file.position is None else Whereabouts(Position(file.position.x_m, file.position.y_m))
    return HostFacts(there, roles=file.roles, directory=_parse_directory(file), area=area, roads=roads)


def _parse_directory(file: NodeFile) -> dict[str, tuple[NodeId, ...]] | None:
    """Return the ids of the nodes of each role. The file names a node by its name, or by its id if it has a key
    file."""
    if file.directory is None:
        return None
    return {
        role: tuple(derive_node_id(node.encode()) if isinstance(node, str) else node for node in nodes)
        for role, nodes in file.directory.items()
    }


def _find_directory_names(file: NodeFile) -> list[str]:
    return [node for nodes in (file.directory or {}).values() for node in nodes if isinstance(node, str)]


def _parse_interfaces(file: NodeFile, path: Path) -> tuple[InterfaceConfig, ...]:
    if not file.interfaces:
        return (parse_single_interface(file.listen, file.discovery, file.link, path),)
    elsewhere = {
        "listen": file.listen is not None,
        "link": file.link is not None,
        "discovery.peers": bool(file.discovery.peers),
        "discovery.group": file.discovery.group is not None,
    }
    for key, given in elsewhere.items():
        if given:
            raise UserError(f"{path}: {key}: leave it out and write it in each of the [[interfaces]]")
    return parse_interfaces(file.interfaces, path)


def _parse_processor(section: ProcessorSection, index: int, path: Path) -> ProcessorConfig:
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


def read_identity(
    name: str, key_file: str | None, keys: KeysSection | None, path: Path
) -> tuple["Keys | None", NodeId]:
    """Read the keys of a node, if it has any, and derive its id; a UserError says what is wrong."""
    if keys is None:
        return None, derive_node_id(name.encode() if key_file is None else read_or_create_key(path.parent / key_file))
    if key_file is not None:
        raise UserError(f"{path}: key_file: is for nodes without [keys], whose identity is their key; leave it out")
    from carrycast.node.security import read_keys

    read = read_keys(keys, path)
    return read, read.make_membership().mine.node


def read_or_create_key(path: Path) -> bytes:
    """Read the random key in a file. If there is no file, it is created, readable to its owner only."""
    try:
        if not path.exists():
            _create_key(path)
        with path.open("rb") as file:
            key = file.read(KEY_BYTES + 1)
    except OSError as error:
        raise WorkError(f"cannot use the key file {path}: {error.strerror or error}") from None
    if len(key) != KEY_BYTES:
        raise WorkError(f"the key file {path} must hold {KEY_BYTES} bytes; move it away to get a new key")
    return key


def _create_key(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The file is renamed when it is complete, because a truncated key would be the identity of another node.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    # A process that was killed may have left one, and in a container every process has the same id.
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(secrets.token_bytes(KEY_BYTES))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
