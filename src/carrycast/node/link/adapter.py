"""Link adapters send and receive the datagrams of a node. UDP is built in (`udp.py`); others are plug-ins.

Addresses are opaque to every other module: they are hashable values that only the adapter parses, formats and resolves.
The class of an adapter also makes adapters from the configuration of a node:

    [[interfaces]]
    name = "radio"
    kind = "udp"        # the name of the adapter; the default
    port = 7001         # settings of the adapter
    retries = 5         # settings of the link layer, the same for every adapter
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

import msgspec

from carrycast.core.plugins import find_plugin
from carrycast.errors import UserError, WorkError

LinkAddress: TypeAlias = Hashable
"""The source or destination of a datagram. Only the adapter knows its content."""

ReceiveDatagram: TypeAlias = Callable[[bytes, LinkAddress, bool, int], None]
"""Receives a datagram, its source address, whether it was sent to the broadcast address rather than to this node, and
how many milliseconds it has waited to be read."""
ReportDrop: TypeAlias = Callable[[str, int], None]
"""Receives the reason for which datagrams were dropped, and their number."""
SettingPlace: TypeAlias = Callable[[str], str]
"""Returns the location of a setting, given its key, for messages to the user: file, table and key."""


class AddressUnavailableError(WorkError):
    """The machine does not have the address to listen on, perhaps because its network is not up yet."""


class AddressScope(NamedTuple):
    """The host, prefix and site of an address. Rate limits apply to each of them."""

    host: str
    prefix: str
    """The addresses that one attacker can easily have."""
    site: str
    """The addresses of one organization."""


class AdapterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one kind of adapter, as they are written in the table of an interface."""


class LinkAdapter(ABC):
    """Sends and receives datagrams for one interface of a node. Everything happens in the event loop's thread."""

    name: ClassVar[str]
    """The `kind` of an interface in configurations."""
    settings_type: ClassVar[type[AdapterSettings]]
    mtu_bytes: int
    """The longest datagram that the adapter can send."""

    # While it runs.

    @property
    @abstractmethod
    def address(self) -> LinkAddress:
        """The address at which this adapter receives; known once it is open."""

    @property
    def broadcast_address(self) -> LinkAddress | None:
        """The broadcast or multicast address that reaches all nodes in range, if there is one."""
        return None

    @abstractmethod
    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        """Start to receive. `report_drop` is called when the operating system later rejects or drops datagrams."""

    @abstractmethod
    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        """Send or queue a datagram; False if the queue is full."""

    @abstractmethod
    def close(self) -> None:
        """Stop; queued datagrams are not sent. An adapter that was not opened may be closed."""

    async def resolve_address(self, address: LinkAddress) -> LinkAddress:
        """Resolve the host name in a parsed address; a WorkError if that fails."""
        return address

    # Addresses.

    @classmethod
    @abstractmethod
    def parse_address(cls, text: str) -> LinkAddress:
        """Parse the text of an address; a UserError says what is wrong."""

    @classmethod
    @abstractmethod
    def format_address(cls, address: LinkAddress) -> str:
        """Return the text that `parse_address` parses."""

    @classmethod
    def scope_of(cls, address: LinkAddress) -> AddressScope:
        """Return the host, prefix and site to which rate limits assign an address."""
        text = cls.format_address(address)
        return AddressScope(text, text, text)

    # Configuration.

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: AdapterSettings, queue: int) -> "LinkAdapter":
        """Make an adapter from checked settings. `queue` is the most datagrams that may wait for a busy socket."""

    @classmethod
    def check_settings(cls, settings: AdapterSettings, place: SettingPlace) -> AdapterSettings:
        """Check and normalize the settings; a UserError says what is wrong, and where."""
        return settings

    @classmethod
    def conflict(cls, one: AdapterSettings, other: AdapterSettings) -> tuple[str, str] | None:
        """Explain why two adapters with these settings cannot be open at once: the key, and what to do. None if they
        can."""
        return None

    @classmethod
    def parse_peers(cls, texts: Sequence[str], place: SettingPlace) -> tuple[LinkAddress, ...]:
        """Parse the addresses of the configured peers; a UserError says what is wrong, and where."""
        return tuple(parse_at(cls, text, place(f"peers[{index}]")) for index, text in enumerate(texts))


def parse_at(adapter: type[LinkAdapter], text: str, place: str) -> LinkAddress:
    """Parse an address in a configuration; a UserError names its place and says what is wrong."""
    try:
        return adapter.parse_address(text)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


LINK_ADAPTERS = {"udp": "carrycast.node.link.udp:UdpAdapter"}
"""The built-in adapters. Others are entry points of the group `carrycast.link_adapters`."""


def find_link_adapter(name: str) -> type[LinkAdapter]:
    """Return the class of an adapter, built in or installed; a UserError lists the known ones."""
    found: type[LinkAdapter] = find_plugin("link_adapters", name)
    return found
