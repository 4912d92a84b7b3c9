"""What a node's configuration says of its interfaces: one in the short form, or a list of them.

How hard a link tries, and what it costs.
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from carrycast.core.protocol import Interface
from carrycast.errors import UserError
from carrycast.node.link.adapter import Transport
from carrycast.node.link.rate_limit import QuotaSettings
from carrycast.node.link.socket_address import Address, parse_address
from carrycast.node.link.udp import UdpTransport


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How hard to try. The defaults give up after 3 s in all, when discovery by default gives up on a neighbor too."""

    ack_timeout_s: Annotated[
        float, Meta(gt=0, le=60, description="wait for an acknowledgement while it is not known how long one takes")
    ] = 0.2
    retries: Annotated[int, Meta(ge=0, le=20, description="how often an unacknowledged frame is sent again")] = 3
    window: Annotated[
        int, Meta(ge=1, le=512, description="the most unacknowledged frames to one neighbor, however fast it answers")
    ] = 256
    queue: Annotated[int, Meta(ge=1, le=1_000_000, description="frames that may wait, all neighbors together")] = 4096
    cost: Annotated[
        Literal["fixed", "measured"], Meta(description="whether links cost `cost_s` or the time that probes take")
    ] = "fixed"
    cost_s: Annotated[
        float,
        Meta(
            ge=0,
            le=3600,
            description="cost of a link; 500 bytes take this long at 6 Mbit/s, the slowest rate of 802.11g",
        ),
    ] = 0.0007


UDP: Interface = "udp"
"""The name of the interface of a node that has one."""

Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Port = Annotated[int, Meta(ge=0, le=65535)]
Peers = Annotated[tuple[str, ...], Meta(max_length=1024)]

MAX_INTERFACES = 16
"""More than a device has; each costs sockets and a broadcast for every broadcast."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file."""


class ListenSection(Section, frozen=True):
    """Where the node hears. Port 0 lets the operating system choose, which only makes sense for trials."""

    port: Port
    host: str = "0.0.0.0"


class DiscoverySection(Section, frozen=True):
    """Beacons: when, and, with one interface, to whom. The defaults of the times are those of `BeaconSettings`."""

    period_s: Annotated[float, Meta(ge=0.01, le=3600)] = 1.0
    missed: Annotated[int, Meta(ge=1, le=100)] = 3
    jitter: Annotated[float, Meta(ge=0, le=0.5)] = 0.1
    believed_s: Annotated[float, Meta(ge=0.01, le=3600)] = 60.0
    peers: Peers = ()
    group: str | None = None


class InterfaceSection(LinkSettings, frozen=True):
    """One of several interfaces: what `[listen]`, `[discovery]` and `[link]` say of a single one."""

    name: Name
    port: Port
    host: str = "0.0.0.0"
    peers: Peers = ()
    group: str | None = None


@dataclass(frozen=True, slots=True)
class InterfaceConfig:
    """Where an interface hears, whom it speaks to, and how hard it tries."""

    name: Interface = UDP
    host: str = "127.0.0.1"
    port: int = 0
    group: Address | None = None
    peers: tuple[Address, ...] = ()
    link: LinkSettings = field(default_factory=LinkSettings)
    quotas: QuotaSettings = field(default_factory=QuotaSettings)

    def transport(self) -> Transport:
        """A socket of its own."""
        return UdpTransport(self.host, self.port, self.group, self.link.queue)


def single_interface(
    listen: ListenSection | None, discovery: DiscoverySection, link: LinkSettings | None, path: Path
) -> InterfaceConfig:
    """The interface of a node that has one; a UserError says what is wrong."""
    if listen is None:
        raise UserError(f"{path}: listen: this table is required, unless there are [[interfaces]]")
    return InterfaceConfig(
        host=_host(listen.host, f"{path}: listen.host"),
        port=listen.port,
        group=_group(discovery.group, listen.host, f"{path}: discovery.group"),
        peers=_peers(discovery.peers, f"{path}: discovery.peers"),
        link=link or LinkSettings(),
    )


def several_interfaces(sections: Sequence[InterfaceSection], path: Path) -> tuple[InterfaceConfig, ...]:
    """The interfaces of a node that lists them; a UserError says what is wrong."""
    if len(sections) > MAX_INTERFACES:
        raise UserError(f"{path}: interfaces: a node has at most {MAX_INTERFACES}, not {len(sections)}")
    interfaces: list[InterfaceConfig] = []
    for index, section in enumerate(sections):
        place = f"{path}: interfaces[{index}]"
        made = InterfaceConfig(
            name=section.name,
            host=_host(section.host, f"{place}.host"),
            port=section.port,
            group=_group(section.group, section.host, f"{place}.group"),
            peers=_peers(section.peers, f"{place}.peers"),
            link=LinkSettings(**{key: getattr(section, key) for key in LinkSettings.__struct_fields__}),
        )
        for other in interfaces:
            _check_apart(made, other, place)
        interfaces.append(made)
    return tuple(interfaces)


def _check_apart(one: InterfaceConfig, other: InterfaceConfig, place: str) -> None:
    if one.name == other.name:
        raise UserError(f"{place}.name: there is another interface {one.name!r}; each has a name of its own")
    if one.port == other.port != 0 and one.host == other.host:
        raise UserError(f"{place}.port: interface {other.name!r} listens there; each has a port of its own")
    if one.group is not None and one.group == other.group:
        # Both would hear what is meant for either.
        raise UserError(f"{place}.group: interface {other.name!r} is in this group; take another port for this one")


def _peers(texts: Sequence[str], place: str) -> tuple[Address, ...]:
    return tuple(_address(text, f"{place}[{index}]") for index, text in enumerate(texts))


def _address(text: str, place: str) -> Address:
    try:
        return parse_address(text)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


def _host(host: str, place: str) -> str:
    try:
        return str(ipaddress.ip_address("127.0.0.1" if host == "localhost" else host))
    except ValueError:
        raise UserError(f"{place}: {host!r} is no IP address of this machine; 0.0.0.0 means all") from None


def _group(text: str | None, listening: str, place: str) -> Address | None:
    if text is None:
        return None
    host, port = _address(text, place)
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        raise UserError(f"{place}: {host!r} is no IPv4 broadcast or multicast address") from None
    if ":" in listening:
        raise UserError(f"{place}: a group needs an IPv4 address to listen on, not {listening!r}")
    if port == 0:
        raise UserError(f"{place}: the port must not be 0; it is the same on every node")
    return host, port
