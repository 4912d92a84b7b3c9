"""The configuration file of a node: one struct for each table. The text below a field is its meaning in the reference
of the docs."""

import ipaddress
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.model import Coordinate, Extent, FilterText, NodeId
from carrycast.core.settings import parse_settings, read_toml
from carrycast.core.stacks import DEFAULT_PROTOCOL
from carrycast.core.utilization import DEFAULT_WINDOW_S, LoadWindow
from carrycast.errors import UserError
from carrycast.node.link import DiscoverySection, LinkSettings, Name, Port, QuotaSettings, Section, SocketAddress
from carrycast.node.logs import LogSection
from carrycast.node.runtime import AllowedActions, AllowedCommand
from carrycast.node.security import KeysSection
from carrycast.node.storage import BacklogSettings
from carrycast.trace import Level

AREA = (
    "Width and height of the area that nodes move in, in meters from (0, 0), for protocols that need it; by default "
    "those of the map."
)


class TraceSection(Section, frozen=True):
    """`[trace]`: where the trace is written. A crash loses at most `flush_s` of it; `run` joins the traces of several
    nodes."""

    directory: str
    """The folder of the traces. Each start of the node writes a new folder below it."""
    level: Level = Level.DELIVERIES
    """`deliveries` records publications, subscriptions and deliveries; `full` also every transmission, reception, drop
    and link; `metrics` nothing."""
    run: Name = "live"
    """The run that the trace belongs to. The traces of all nodes of a run are evaluated as one network."""
    flush_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0
    """How often a part of the trace is written, in seconds. A crash loses at most this much of it."""


class StoreSection(Section, frozen=True):
    """`[store]`: the file of the durable store, and the bounds of the backlog of one named subscription."""

    file: str
    """The SQLite file. It has the durable store of the protocol, the named subscriptions with their backlogs, and
    the sequence numbers that were used."""
    backlog_bytes: Annotated[int, Meta(ge=1, le=1 << 40)] = BacklogSettings().max_bytes
    """The most bytes that may wait for one named subscription. The oldest events are dropped first (`backlog_full`)."""
    backlog_s: Annotated[float, Meta(gt=0, le=1e9)] = BacklogSettings().max_age_s
    """How long an event may wait for the reader of a named subscription, in seconds (`backlog_old`)."""


class PositionSection(Section, frozen=True):
    """`[position]`: the position of a node at its start."""

    x_m: Coordinate
    """The first coordinate, in meters, in the plane that all nodes share."""
    y_m: Coordinate
    """The second coordinate, in meters."""


class ProcessorSection(Section, frozen=True):
    """One `[[processors]]`: a processor that this node can run. A call should take far less than a second."""

    id: Name
    """The name by which subscriptions and protocols refer to the processor."""
    function: Annotated[str, Meta(pattern=r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$")]
    """The Python function that it runs: `file.py:name`, relative to the configuration."""
    filter: FilterText
    """The events that the processor takes as inputs."""
    inputs: Annotated[int, Meta(ge=1, le=64)] = 1
    """How many events the function takes at each call."""
    time_limit_s: Annotated[float, Meta(gt=0, le=3600)] = 1.0
    """How long a call may take. Then its process is killed, and the protocol gets `processor_timeout`."""


class ControlSection(Section, frozen=True):
    """`[control]`: the address of the client API, a Unix socket, or a port on 127.0.0.1 and its token file."""

    socket: str | None = None
    """The path of a Unix socket. Give either this or `port`."""
    port: Port | None = None
    """A TCP port on 127.0.0.1, for clients that know the content of the token file."""
    token_file: str | None = None
    """The token file of the port, which the node creates; by default beside the configuration, as `CONFIG.token`."""

    def find_address(self, path: Path) -> Path | int:
        """Return the path of the socket, or the port; a UserError if the table has neither or both."""
        if self.socket is not None and self.port is None:
            return path.parent / self.socket
        if self.port is not None and self.socket is None:
            return self.port
        raise UserError(f"{path}: control: give either socket (a path) or port (on 127.0.0.1)")

    def find_token_file(self, path: Path) -> Path | None:
        """Return the token file of a port, by default beside the configuration; None for a socket."""
        return None if self.port is None else path.parent / (self.token_file or f"{path.stem}.token")


class MetricsSection(Section, frozen=True):
    """`[metrics]`: the address of the monitoring server; by default only this machine can connect."""

    port: Port
    """The TCP port of `/metrics` and `/health`."""
    host: str = "127.0.0.1"
    """The IP address to listen on. The server has no authentication: use 127.0.0.1, or a proxy in front of it."""

    def find_address(self, path: Path) -> SocketAddress:
        """Return the address to listen on; a UserError if the host is no IP address."""
        try:
            # An empty host would mean every address of the machine, and the server has no authentication.
            host = ipaddress.ip_address("127.0.0.1" if self.host == "localhost" else self.host)
        except ValueError:
            raise UserError(
                f"{path}: metrics.host: {self.host!r} is no IP address of this machine; 0.0.0.0 means all"
            ) from None
        return str(host), self.port


class ApplicationSection(Section, frozen=True):
    """One `[[applications]]`: an application that the node runs."""

    name: Name
    """The application; `carrycast applications` lists them."""
    settings: dict[str, object] = msgspec.field(default_factory=dict)
    """Its settings; `carrycast applications NAME` lists them."""


class CommandSection(Section, frozen=True):
    """One `[enforcement.commands.NAME]`: a program, and every list of arguments that a policy may give it."""

    run: Annotated[tuple[str, ...], Meta(min_length=1)]
    """The program, and the arguments that it always gets."""
    arguments: tuple[tuple[str, ...], ...] = ((),)
    """Every list of further arguments that a policy may give it; by default none."""


class EnforcementSection(Section, frozen=True):
    """`[enforcement]`: the actions that policies may take on the node. A command that is not listed is not allowed."""

    settings: bool = True
    """Whether policies may change the settings of the protocol, the router and discovery."""
    commands: dict[Name, CommandSection] = msgspec.field(default_factory=dict)
    """The programs that policies may run, by name."""

    def make_allowed_actions(self) -> AllowedActions:
        """Convert the table for the runtime."""
        commands = {name: AllowedCommand(one.run, one.arguments) for name, one in self.commands.items()}
        return AllowedActions(self.settings, commands)


class NodeFile(Section, frozen=True):
    """The keys outside all tables, and the tables."""

    name: Name
    """The name of the node. The node id is a hash of it, unless the node has a `key_file` or the key of a network. Give
    each node another name."""
    protocol: dict[str, object] = msgspec.field(default_factory=lambda: {"name": DEFAULT_PROTOCOL})
    """The protocol: `name`, `variant` and its settings (reference of protocols)."""
    key_file: str | None = None
    """A file of 32 random bytes, which the node creates at its first start; the node id is a hash of them. Only for
    nodes without `[keys]`."""
    keys: KeysSection | None = None
    """The keys of a closed network. Without this table every node in reach takes part."""
    listen: dict[str, object] | None = None
    """The single interface of the node, called `udp`: its adapter and its address. Required unless there are
    `[[interfaces]]`."""
    discovery: DiscoverySection = DiscoverySection()
    """When beacons are sent on every interface, and the addresses of other nodes."""
    link: LinkSettings | None = None
    """The link layer of the single interface: acknowledgements, retries and costs."""
    interfaces: tuple[dict[str, object], ...] = ()
    """Up to 16 interfaces, in place of `[listen]`, `[link]`, `discovery.peers` and `discovery.group`."""
    router: dict[str, object] | None = None
    """The router below a protocol that uses one: `name`, `variant` and its settings. The default is the protocol's
    own; `carrycast routers` lists them."""
    trace: TraceSection | None = None
    """Where the trace is written; without this table there is none."""
    store: StoreSection | None = None
    """The durable store. Without it nothing survives a restart, and level `stored` is refused."""
    control: ControlSection | None = None
    """The address of the client API. Without this table no client can connect."""
    quotas: QuotaSettings = QuotaSettings()
    """The share of the node that one neighbor may use."""
    metrics: MetricsSection | None = None
    """The HTTP server for monitoring; without this table there is none."""
    mqtt: dict[str, object] | None = None
    """The listener for MQTT clients; without this table there is none."""
    gateways: dict[Name, dict[str, object]] = msgspec.field(default_factory=dict)
    """The tables of gateways that are plug-ins, by name."""
    position: PositionSection | None = None
    """The position at the start. Clients of a node with this table may change it; others may not."""
    processors: tuple[ProcessorSection, ...] = ()
    """User functions, for protocols that place processors."""
    applications: tuple[ApplicationSection, ...] = ()
    """Applications that run on the node itself, above the protocol."""
    enforcement: EnforcementSection = EnforcementSection()
    """The actions that policies may take on this node."""
    keeps: tuple[FilterText, ...] = ()
    """Filters of the events that the node stores for later requests, with protocols that store events."""
    roles: tuple[Name, ...] = ()
    """The roles of the node. A protocol that needs certain roles rejects a node that has none of them, unless there
    is a `[directory]`."""
    directory: dict[Name, list[Name | NodeId]] | None = None
    """The nodes of each role: their names, or the ids of nodes with a key file. The role `all`, if it is not given,
    has every node of the table."""
    area_m: Annotated[tuple[Extent, Extent], Meta(description=AREA)] | None = None
    map: Annotated[str, Meta(min_length=1)] | None = None
    """The roads that nodes move on: `highway`, `city`, or a .toml file."""
    load_window_s: LoadWindow = DEFAULT_WINDOW_S
    log: LogSection = LogSection()
    """The level and the format of the log."""


def read_config_file(path: Path) -> NodeFile:
    """Read a configuration file; a UserError says which key is wrong."""
    table = read_toml(path)
    if "duration_s" in table:
        raise UserError(f"{path}: is a scenario; `carrycast run` simulates it, `carrycast emulate` plays it live")
    return parse_config_tables(table, str(path))


def parse_config_tables(tables: Mapping[str, object], where: str) -> NodeFile:
    """Check the tables of a configuration file; a UserError says which key is wrong."""
    return parse_settings(dict(tables), NodeFile, where)
