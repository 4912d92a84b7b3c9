"""Link adapters: how datagrams leave and reach a node. UDP is built in (`udp.py`); others are plug-ins.

An adapter sends datagrams to addresses and receives those of others. Its addresses are opaque to every other module:
they are hashable values that only the adapter parses, formats and resolves. The class says how a table of a node's
configuration becomes an adapter:

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
"""Where a datagram comes from or goes to. Only the adapter knows what is in it."""

ReceiveDatagram: TypeAlias = Callable[[bytes, LinkAddress, bool, int], None]
"""A datagram, the address it came from, whether it was sent to the broadcast address rather than to this node, and how
many milliseconds it has waited to be read."""
ReportDrop: TypeAlias = Callable[[str, int], None]
"""The reason for which datagrams were dropped, and how many."""
SettingPlace: TypeAlias = Callable[[str], str]
"""Where a setting stands, by its key, for messages to the user: file, table and key."""


class AddressUnavailableError(WorkError):
    """The machine does not have the address to listen on; perhaps not yet."""


class AddressScope(NamedTuple):
    """What an address belongs to, from the narrowest to the widest: rate limits count all of these."""

    host: str
    prefix: str
    """What one attacker has easily."""
    site: str
    """What one organization has."""


class AdapterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one kind of adapter, as people write them in the table of an interface."""


class LinkAdapter(ABC):
    """Sends and receives datagrams for one interface of a node. Everything happens in the event loop's thread."""

    name: ClassVar[str]
    """The `kind` of an interface in configurations."""
    settings_type: ClassVar[type[AdapterSettings]]
    mtu_bytes: int
    """The longest datagram that it carries."""

    # While it runs.

    @property
    @abstractmethod
    def address(self) -> LinkAddress:
        """Where this adapter receives; known once it is open."""

    @property
    def broadcast_address(self) -> LinkAddress | None:
        """The broadcast or multicast address that reaches everybody in range, if there is one."""
        return None

    @abstractmethod
    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        """Start to receive. `report_drop` is called when the system refuses or drops something later on."""

    @abstractmethod
    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        """Send or queue a datagram; False if the queue is full."""

    @abstractmethod
    def close(self) -> None:
        """Stop; what is queued is not sent. One that was not opened may be closed."""

    async def resolve_address(self, address: LinkAddress) -> LinkAddress:
        """The address that datagrams carry, of one that was parsed and may hold a name; a WorkError if none is
        known."""
        return address

    # Addresses.

    @classmethod
    @abstractmethod
    def parse_address(cls, text: str) -> LinkAddress:
        """An address from its text; a UserError says what is wrong."""

    @classmethod
    @abstractmethod
    def format_address(cls, address: LinkAddress) -> str:
        """The text that `parse_address` reads."""

    @classmethod
    def scope_of(cls, address: LinkAddress) -> AddressScope:
        """What rate limits count an address as."""
        text = cls.format_address(address)
        return AddressScope(text, text, text)

    # Configuration.

    @classmethod
    @abstractmethod
    def from_settings(cls, settings: AdapterSettings, queue: int) -> "LinkAdapter":
        """An adapter with checked settings, that queues at most so many datagrams which cannot be sent at once."""

    @classmethod
    def check_settings(cls, settings: AdapterSettings, place: SettingPlace) -> AdapterSettings:
        """The settings, normalized; a UserError says what is wrong where."""
        return settings

    @classmethod
    def conflict(cls, one: AdapterSettings, other: AdapterSettings) -> tuple[str, str] | None:
        """Why two adapters with these settings cannot be open at once: the key, and what to do; None if they can."""
        return None

    @classmethod
    def parse_peers(cls, texts: Sequence[str], place: SettingPlace) -> tuple[LinkAddress, ...]:
        """The addresses of configured peers; a UserError says what is wrong where."""
        return tuple(parse_at(cls, text, place(f"peers[{index}]")) for index, text in enumerate(texts))


def parse_at(adapter: type[LinkAdapter], text: str, place: str) -> LinkAddress:
    """An address that stands at a place of a configuration; a UserError says what is wrong."""
    try:
        return adapter.parse_address(text)
    except UserError as error:
        raise UserError(f"{place}: {error}") from None


LINK_ADAPTERS = {"udp": "carrycast.node.link.udp:UdpAdapter"}
"""The adapters that come with carrycast. Others are entry points of the group `carrycast.link_adapters`."""


def find_link_adapter(name: str) -> type[LinkAdapter]:
    """The class of an adapter, built in or installed; a UserError names those that there are."""
    found: type[LinkAdapter] = find_plugin("link_adapters", name)
    return found
