"""The interfaces in the configuration of a node, either one (`[listen]`) or a list (`[[interfaces]]`), and the settings
of the link layer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from carrycast.core.protocol import Interface
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.node.link.adapter import (
    AdapterSettings,
    LinkAdapter,
    LinkAddress,
    SettingPlace,
    find_link_adapter,
)
from carrycast.node.link.rate_limit import QuotaSettings
from carrycast.node.link.udp import UdpAdapter, UdpSettings


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[link]`: settings of the link layer. With the defaults, a neighbor is given up after 3 s, as by discovery."""

    ack_timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=60,
            description="seconds to wait for an acknowledgement until the RTT is known; each retry waits twice as long",
        ),
    ] = 0.2
    retries: Annotated[int, Meta(ge=0, le=20, description="how often an unacknowledged frame is sent again")] = 3
    window: Annotated[
        int, Meta(ge=1, le=512, description="the largest congestion window: unacknowledged frames to one neighbor")
    ] = 256
    queue: Annotated[
        int, Meta(ge=1, le=1_000_000, description="the most frames in the send queue, for all neighbors together")
    ] = 4096
    cost: Annotated[
        Literal["fixed", "measured"],
        Meta(description="whether the cost of a link is `cost_s` or is measured by probes"),
    ] = "fixed"
    cost_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="seconds that 500 bytes take, here at 6 Mbit/s, the slowest rate of 802.11g",
        ),
    ] = 0.0007


S = TypeVar("S", bound=msgspec.Struct)

UDP: Interface = "udp"
"""The name of the interface of a node with a single interface."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Peers = Annotated[tuple[str, ...], Meta(max_length=1024)]

MAX_INTERFACES = 16
"""More than a device has. Each interface needs sockets, and sends every broadcast."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the configuration file."""


class ListenSection(Section, frozen=True):
    """`[listen]`: the adapter of a single interface. The table also has the settings of this kind of adapter."""

    kind: str = UdpAdapter.name
    """The link adapter. The node needs a plug-in for any other than `udp`."""


class DiscoverySection(Section, frozen=True):
    """`[discovery]`: when beacons are sent, and, for a single interface, where to."""

    period_s: Annotated[float, Meta(ge=0.01, le=3600)] = 1.0
    """Seconds between two beacons on each interface."""
    missed: Annotated[int, Meta(ge=1, le=100)] = 3
    """A neighbor is lost after this many of its periods without a beacon."""
    jitter: Annotated[float, Meta(ge=0, le=0.5)] = 0.1
    """The random share by which each period varies."""
    believed_s: Annotated[float, Meta(ge=0.01, le=3600)] = 60.0
    """The longest period that is accepted from a neighbor, besides the node's own. A neighbor that announces a
    longer one is treated as if it had announced this (`beacon_period_too_long`). Raise it for networks whose nodes
    sleep longer."""
    peers: Peers = ()
    """`host:port` of nodes that get beacons and broadcasts one by one. A host name that is unknown is looked up again
    every 5 s."""
    group: str | None = None
    """An IPv4 multicast or broadcast `address:port`, the same on every node: one datagram reaches all. With the port
    of `[listen]`, `host` must be an address of the machine, not 0.0.0.0."""


class InterfaceSection(LinkSettings, frozen=True):
    """One `[[interfaces]]`: the settings that `[listen]`, `[discovery]` and `[link]` have for a single interface. The
    table also has the settings of this kind of adapter."""

    name: Name
    """The name of the interface in this node; the other end of a link may use another one."""
    kind: str = UdpAdapter.name
    """The link adapter. The node needs a plug-in for any other than `udp`."""
    peers: Peers = ()
    """`host:port` of nodes that get beacons and broadcasts one by one. A host name that is unknown is looked up again
    every 5 s."""


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """The configuration of an interface: its adapter, its peers, and the settings of its link layer."""

    name: Interface = UDP
    kind: str = UdpAdapter.name
    adapter: AdapterSettings = field(default_factory=lambda: UdpSettings(host="127.0.0.1", port=0))
    peers: tuple[LinkAddress, ...] = ()
    """Parsed addresses, whose host names are not resolved yet."""
    link: LinkSettings = field(default_factory=LinkSettings)
    quotas: QuotaSettings = field(default_factory=QuotaSettings)

    def make_adapter(self) -> LinkAdapter:
        """Make the adapter; it is not open yet."""
        return find_link_adapter(self.kind).from_settings(self.adapter, self.link.queue)


def parse_single_interface(
    listen: Mapping[str, object] | None, discovery: DiscoverySection, link: LinkSettings | None, path: Path
) -> InterfaceConfig:
    """Parse the configuration of a single interface; a UserError says what is wrong."""
    if listen is None:
        raise UserError(f"{path}: listen: this table is required, unless there are [[interfaces]]")
    adapter = _find_adapter(listen, f"{path}: listen")

    def place(key: str) -> str:
        return f"{path}: {'discovery' if key.startswith(('group', 'peers')) else 'listen'}.{key}"

    if discovery.group is not None and "group" not in adapter.settings_type.__struct_fields__:
        raise UserError(f"{path}: discovery.group: the link adapter {adapter.name!r} has no groups; leave it out")
    # The group is written in [discovery], beside the peers.
    fields = [one for one in msgspec.structs.fields(adapter.settings_type) if one.name != "group"]
    table = parse_settings(listen, _add_fields(ListenSection, fields), str(path), "listen")
    settings = _parse_adapter_settings(adapter, table, {"group": discovery.group}, place)
    peers = adapter.parse_peers(discovery.peers, place)
    return InterfaceConfig(kind=adapter.name, adapter=settings, peers=peers, link=link or LinkSettings())


def parse_interfaces(tables: Sequence[Mapping[str, object]], path: Path) -> tuple[InterfaceConfig, ...]:
    """Parse the `[[interfaces]]` of a node; a UserError says what is wrong."""
    if len(tables) > MAX_INTERFACES:
        raise UserError(f"{path}: interfaces: a node has at most {MAX_INTERFACES}, not {len(tables)}")
    interfaces: list[InterfaceConfig] = []
    for index, table in enumerate(tables):
        where = f"{path}: interfaces[{index}]"
        adapter = _find_adapter(table, where)
        fields = msgspec.structs.fields(adapter.settings_type)
        section = parse_settings(table, _add_fields(InterfaceSection, fields), str(path), f"interfaces[{index}]")

        def place(key: str, where: str = where) -> str:
            return f"{where}.{key}"

        made = InterfaceConfig(
            name=section.name,
            kind=adapter.name,
            adapter=_parse_adapter_settings(adapter, section, {}, place),
            peers=adapter.parse_peers(section.peers, place),
            link=LinkSettings(**{key: getattr(section, key) for key in LinkSettings.__struct_fields__}),
        )
        for other in interfaces:
            _check_conflict(made, other, place)
        interfaces.append(made)
    return tuple(interfaces)


def _find_adapter(table: Mapping[str, object], where: str) -> type[LinkAdapter]:
    try:
        return find_link_adapter(str(table.get("kind", UdpAdapter.name)))
    except UserError as error:
        raise UserError(f"{where}.kind: {error}") from None


def _add_fields(section: type[S], fields: Sequence[msgspec.structs.FieldInfo]) -> type[S]:
    """Make the type of a table that has the settings of an adapter besides its own."""
    added: list[tuple[str, Any, Any]] = []
    for one in fields:
        made = one.default_factory is not msgspec.NODEFAULT
        default = msgspec.field(default_factory=one.default_factory) if made else msgspec.field(default=one.default)
        added.append((one.name, one.type, default))
    combined: Any = msgspec.defstruct(
        section.__name__, added, bases=(section,), frozen=True, kw_only=True, forbid_unknown_fields=True
    )
    found: type[S] = combined
    return found


def _parse_adapter_settings(
    adapter: type[LinkAdapter], table: msgspec.Struct, elsewhere: Mapping[str, object], place: SettingPlace
) -> AdapterSettings:
    """Return the checked settings of an adapter, from its table or from elsewhere in the file."""
    names = adapter.settings_type.__struct_fields__
    values = {name: elsewhere[name] if name in elsewhere else getattr(table, name) for name in names}
    return adapter.check_settings(adapter.settings_type(**values), place)


def _check_conflict(one: InterfaceConfig, other: InterfaceConfig, place: SettingPlace) -> None:
    if one.name == other.name:
        raise UserError(f"{place('name')}: there is another interface {one.name!r}; each has a name of its own")
    found = find_link_adapter(one.kind).conflict(one.adapter, other.adapter) if one.kind == other.kind else None
    if found is not None:
        key, why = found
        raise UserError(f"{place(key)}: interface {other.name!r} {why}")
