"""The configuration file of a node: one struct for each table. docs/live.md describes each key."""

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


class TraceSection(Section, frozen=True):
    """`[trace]`: where the trace is written. A crash loses at most `flush_s` of it; `run` joins the traces of several
    nodes."""

    directory: str
    level: Level = Level.DELIVERIES
    run: Name = "live"
    flush_s: Annotated[float, Meta(ge=1, le=86_400)] = 60.0


class StoreSection(Section, frozen=True):
    """`[store]`: the file of the durable store, and the bounds of the backlog of one named subscription."""

    file: str
    backlog_bytes: Annotated[int, Meta(ge=1, le=1 << 40)] = BacklogSettings().max_bytes
    backlog_s: Annotated[float, Meta(gt=0, le=1e9)] = BacklogSettings().max_age_s


class PositionSection(Section, frozen=True):
    """`[position]`: the position of a node at its start."""

    x_m: Coordinate
    y_m: Coordinate


class ProcessorSection(Section, frozen=True):
    """One `[[processors]]`: a processor that this node can run. A call should take far less than a second."""

    id: Name
    function: Annotated[str, Meta(pattern=r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$")]
    filter: FilterText
    inputs: Annotated[int, Meta(ge=1, le=64)] = 1
    time_limit_s: Annotated[float, Meta(gt=0, le=3600)] = 1.0


class ControlSection(Section, frozen=True):
    """`[control]`: the address of the client API, a Unix socket, or a port on 127.0.0.1 and its token file."""

    socket: str | None = None
    port: Port | None = None
    token_file: str | None = None

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
    host: str = "127.0.0.1"

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
    settings: dict[str, object] = msgspec.field(default_factory=dict)


class CommandSection(Section, frozen=True):
    """One `[enforcement.commands.NAME]`: a program, and every list of arguments that a policy may give it."""

    run: Annotated[tuple[str, ...], Meta(min_length=1)]
    arguments: tuple[tuple[str, ...], ...] = ((),)


class EnforcementSection(Section, frozen=True):
    """`[enforcement]`: the actions that policies may take on the node. A command that is not listed is not allowed."""

    settings: bool = True
    commands: dict[Name, CommandSection] = msgspec.field(default_factory=dict)

    def make_allowed_actions(self) -> AllowedActions:
        """Convert the table for the runtime."""
        commands = {name: AllowedCommand(one.run, one.arguments) for name, one in self.commands.items()}
        return AllowedActions(self.settings, commands)


class NodeFile(Section, frozen=True):
    """The whole file."""

    name: Name
    protocol: dict[str, object] = msgspec.field(default_factory=lambda: {"name": DEFAULT_PROTOCOL})
    key_file: str | None = None
    keys: KeysSection | None = None
    listen: dict[str, object] | None = None
    """Its keys depend on the link adapter."""
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
    """The table of the gateway for MQTT."""
    gateways: dict[Name, dict[str, object]] = msgspec.field(default_factory=dict)
    """The tables of gateways that are plug-ins, by name."""
    position: PositionSection | None = None
    processors: tuple[ProcessorSection, ...] = ()
    applications: tuple[ApplicationSection, ...] = ()
    enforcement: EnforcementSection = EnforcementSection()
    keeps: tuple[FilterText, ...] = ()
    roles: tuple[Name, ...] = ()
    directory: dict[Name, list[Name | NodeId]] | None = None
    area_m: tuple[Extent, Extent] | None = None
    map: Annotated[str, Meta(min_length=1)] | None = None
    """The name of a built-in map, or a .toml file."""
    load_window_s: LoadWindow = DEFAULT_WINDOW_S
    log: LogSection = LogSection()


def read_config_file(path: Path) -> NodeFile:
    """Read a configuration file; a UserError says which key is wrong."""
    table = read_toml(path)
    if "duration_s" in table:
        raise UserError(f"{path}: is a scenario; `carrycast run` simulates it, `carrycast emulate` plays it live")
    return parse_config_tables(table, str(path))


def parse_config_tables(tables: Mapping[str, object], where: str) -> NodeFile:
    """Check the tables of a configuration file; a UserError says which key is wrong."""
    return parse_settings(dict(tables), NodeFile, where)
