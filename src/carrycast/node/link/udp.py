"""The UDP adapter: unicast, and IPv4 broadcast or multicast to a group.

Sockets are read with `add_reader` and drained at each wake-up, which is some ten times faster than asyncio's
DatagramProtocol. Both directions are bounded: at most DRAIN datagrams are read before timers run, and at most `queue`
datagrams wait for a full socket. The time that a datagram waits in this queue or in the receive buffer of a socket is
added to its waiting time: Linux reports the time of arrival of each datagram.
"""

import asyncio
import errno
import ipaddress
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence

from msgspec.structs import replace

from carrycast.errors import UserError, WorkError
from carrycast.node.link.adapter import (
    AdapterSettings,
    AddressScope,
    AddressUnavailableError,
    LinkAdapter,
    LinkAddress,
    ReceiveDatagram,
    ReportDrop,
    SettingPlace,
    parse_at,
)
from carrycast.node.link.frame import MAX_DATAGRAM_BYTES, add_waiting_time
from carrycast.node.link.moderation import InterruptModeration
from carrycast.node.link.socket_address import (
    Port,
    SocketAddress,
    format_socket_address,
    parse_socket_address,
    resolve_socket_address,
)

DRAIN = 256
"""The most datagrams that are read at once."""
BUFFER_BYTES = 65_536
"""More than the longest UDP datagram, so that none is truncated."""
SOCKET_BUFFER_BYTES = 1 << 20
"""Requested from the operating system, which may grant less: room for a burst of datagrams while a handler runs."""

SO_TIMESTAMPNS = 35
"""A socket option of Linux without a name in Python: report the time of arrival of each datagram as ancillary data."""
SO_RXQ_OVFL = 40
"""Another one: report the number of datagrams that were dropped because the receive buffer was full."""
_TIMESTAMP = struct.Struct("@qq")
_OVERFLOW_COUNT = struct.Struct("@I")
_ANCILLARY_BYTES = socket.CMSG_SPACE(_TIMESTAMP.size) + socket.CMSG_SPACE(_OVERFLOW_COUNT.size)

_UNAVAILABLE = frozenset({errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENETUNREACH})

EVERYWHERE = "0.0.0.0"
PREFIX_BITS = {4: 24, 6: 64}
"""The prefix lengths of a subnet, whose addresses one attacker can easily have."""
SITE_BITS = {4: 16, 6: 48}
"""The prefix lengths that a provider assigns to a site (RFC 6177)."""


class UdpSettings(AdapterSettings, frozen=True):
    """The address to listen on. With port 0 the operating system chooses one, which is useful for trials only."""

    port: Port
    """The UDP port to receive on. With 0 the operating system chooses one."""
    host: str = EVERYWHERE
    """The IPv4 or IPv6 address to receive on; the default is every address of the machine."""
    group: str | None = None
    """The IPv4 broadcast or multicast address that reaches all nodes, and its port."""


class UdpAdapter(LinkAdapter):
    """One UDP socket, and a second one to receive the group's datagrams if there is a group."""

    name = "udp"
    settings_type = UdpSettings
    mtu_bytes = MAX_DATAGRAM_BYTES

    def __init__(self, host: str, port: int, group: SocketAddress | None = None, queue: int = 1000) -> None:
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._wanted = (host, port)
        self._group = group
        self._queue = queue
        self._queued: deque[tuple[LinkAddress, bytes, float]] = deque()
        self._sockets: list[socket.socket] = []
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._turns = 1
        self._moderations: dict[socket.socket, InterruptModeration] = {}
        self._polled: dict[socket.socket, asyncio.TimerHandle] = {}
        """Sockets that are polled by a timer (`moderation.py`)."""
        self._receive: ReceiveDatagram | None = None
        self._report_drop: ReportDrop | None = None
        self._address = self._wanted
        self._overflows: dict[int, int] = {}

    @property
    def address(self) -> SocketAddress:
        return self._address

    @property
    def broadcast_address(self) -> LinkAddress | None:
        return self._group

    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        self._receive = receive
        self._report_drop = report_drop
        loop = asyncio.get_running_loop()
        try:
            self._sockets.append(self._open_socket())
            if self._group is not None:
                self._sockets.append(self._open_group_socket(self._group))
        except OSError as error:
            self.close()
            kind = AddressUnavailableError if error.errno in _UNAVAILABLE else WorkError
            raise kind(_explain(error, self._wanted, self._group)) from None
        host, port = self._sockets[0].getsockname()[:2]
        self._address = (host, port)
        for opened in self._sockets:
            self._moderations[opened] = InterruptModeration()
            loop.add_reader(opened.fileno(), self._drain, opened, opened is not self._sockets[0])

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        if self._queued:
            return self._enqueue(datagram, address)
        try:
            self._sockets[0].sendto(datagram, address)  # type: ignore[call-overload]  # a SocketAddress
        except (BlockingIOError, InterruptedError):
            asyncio.get_running_loop().add_writer(self._sockets[0].fileno(), self._send_queued)
            return self._enqueue(datagram, address)
        except OSError:
            # No route, or an address that cannot be reached: the datagram counts as lost.
            self._drop("send_failed")
        return True

    def close(self) -> None:
        for timer in self._polled.values():
            timer.cancel()
        self._polled.clear()
        for opened in self._sockets:
            if self._receive is not None:
                loop = asyncio.get_running_loop()
                loop.remove_reader(opened.fileno())
                loop.remove_writer(opened.fileno())
            opened.close()
        self._sockets.clear()
        self._queued.clear()

    async def resolve_address(self, address: LinkAddress) -> LinkAddress:
        return await resolve_socket_address(_check_socket_address(address), self._family)

    @classmethod
    def parse_address(cls, text: str) -> LinkAddress:
        return parse_socket_address(text)

    @classmethod
    def format_address(cls, address: LinkAddress) -> str:
        return format_socket_address(_check_socket_address(address))

    @classmethod
    def scope_of(cls, address: LinkAddress) -> AddressScope:
        host = _check_socket_address(address)[0]
        return AddressScope(host, *find_prefixes(host))

    @classmethod
    def from_settings(cls, settings: AdapterSettings, queue: int) -> "UdpAdapter":
        assert isinstance(settings, UdpSettings)
        group = None if settings.group is None else parse_socket_address(settings.group)
        return cls(settings.host, settings.port, group, queue)

    @classmethod
    def check_settings(cls, settings: AdapterSettings, place: SettingPlace) -> AdapterSettings:
        assert isinstance(settings, UdpSettings)
        try:
            host = str(ipaddress.ip_address("127.0.0.1" if settings.host == "localhost" else settings.host))
        except ValueError:
            raise UserError(
                f"{place('host')}: {settings.host!r} is no IP address of this machine; 0.0.0.0 means all"
            ) from None
        if settings.group is not None:
            port = _check_group(settings.group, host, place("group"))
            if host == EVERYWHERE and settings.port == port:
                # A socket that listens at every address would also receive the datagrams for the socket of the group.
                raise UserError(
                    f"{place('host')}: with a group on the same port it is this machine's own address, not {host}"
                )
        return replace(settings, host=host)

    @classmethod
    def conflict(cls, one: AdapterSettings, other: AdapterSettings) -> tuple[str, str] | None:
        assert isinstance(one, UdpSettings)
        assert isinstance(other, UdpSettings)
        if one.port == other.port != 0 and one.host == other.host:
            return "port", "listens there; each has a port of its own"
        if one.group is not None and one.group == other.group:
            # Each interface would also receive the datagrams for the other.
            return "group", "is in this group; take another port for this one"
        return None

    @classmethod
    def parse_peers(cls, texts: Sequence[str], place: SettingPlace) -> tuple[LinkAddress, ...]:
        """Numeric addresses come first, because host names are resolved one by one."""
        peers = [_check_socket_address(peer) for peer in super().parse_peers(texts, place)]
        for host, _ in peers:
            try:
                host.encode("idna")
            except UnicodeError:  # such as 192.168.1..12
                raise UserError(f"{place('peers')}: {host!r} is neither an address nor the name of a host") from None
        return tuple(sorted(peers, key=_is_name))

    def _open_socket(self) -> socket.socket:
        opened = socket.socket(self._family, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
            if self._group is not None:
                if ipaddress.ip_address(self._group[0]).is_multicast:
                    opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self._wanted[0]))
                else:
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            _request_ancillary_data(opened)
            opened.bind(self._wanted)
        except BaseException:
            opened.close()
            raise
        return opened

    def _open_group_socket(self, group: SocketAddress) -> socket.socket:
        """Open a socket that receives only datagrams to the group. All nodes of a machine may use the same port."""
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _request_ancillary_data(opened)
            opened.bind(group)
            if ipaddress.ip_address(group[0]).is_multicast:
                membership = struct.pack("4s4s", socket.inet_aton(group[0]), socket.inet_aton(self._wanted[0]))
                opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except BaseException:
            opened.close()
            raise
        return opened

    def _drain(self, opened: socket.socket, to_group: bool) -> None:
        """Read the datagrams in the buffer; then wait for the next wake-up, or poll after a pause."""
        if opened.fileno() < 0:
            return
        found = self._read(opened, to_group)
        if opened.fileno() < 0:  # A datagram made the node stop.
            return
        loop = asyncio.get_running_loop()
        pause_s = self._moderations[opened].choose_pause_s(loop.time(), found)
        if pause_s == 0.0:
            if opened in self._polled:
                del self._polled[opened]
                loop.add_reader(opened.fileno(), self._drain, opened, to_group)
            return
        if opened not in self._polled:
            loop.remove_reader(opened.fileno())
        # If there are more datagrams than are read at once, read again in the next turn of the event loop.
        self._polled[opened] = loop.call_later(0.0 if found >= DRAIN else pause_s, self._drain, opened, to_group)

    def _read(self, opened: socket.socket, to_group: bool) -> int:
        """Read at most DRAIN datagrams; their number."""
        receive = self._receive
        assert receive is not None
        turns = DRAIN if opened in self._polled else self._turns
        for turn in range(turns):
            try:
                length, ancillary, _, address = opened.recvmsg_into([self._buffer], _ANCILLARY_BYTES)
            except (BlockingIOError, InterruptedError):
                self._turns = max(1, turn)
                return turn
            except OSError:
                self._drop("receive_failed")
                return turn
            waited_ms = self._read_ancillary(opened.fileno(), ancillary) if ancillary else 0
            receive(bytes(self._view[:length]), address[:2], to_group, waited_ms)
            if opened.fileno() < 0:
                return turn
        # There may be more datagrams. A further read is cheaper than another wake-up.
        self._turns = min(DRAIN, 2 * turns)
        return turns

    def _read_ancillary(self, socket_number: int, ancillary: list[tuple[int, int, bytes]]) -> int:
        """Return how many milliseconds ago a datagram arrived, if the system reports it. Report the datagrams that the
        system has dropped since the last one, because this node did not read in time."""
        waited_ms = 0
        for level, kind, data in ancillary:
            if level != socket.SOL_SOCKET:
                continue
            if kind == SO_TIMESTAMPNS and len(data) == _TIMESTAMP.size:
                seconds, nanoseconds = _TIMESTAMP.unpack(data)
                # Negative if the clock was set back.
                waited_ms = max(int((time.time() - seconds - nanoseconds / 1e9) * 1000), 0)
            elif kind == SO_RXQ_OVFL and len(data) == _OVERFLOW_COUNT.size:
                total: int = _OVERFLOW_COUNT.unpack(data)[0]
                before = self._overflows.get(socket_number, 0)
                if total != before:
                    self._overflows[socket_number] = total
                    # The counter wraps at 2^32.
                    self._drop("socket_full", (total - before) % (1 << 32))
        return waited_ms

    def _enqueue(self, datagram: bytes, address: LinkAddress) -> bool:
        if len(self._queued) >= self._queue:
            return False
        self._queued.append((address, datagram, asyncio.get_running_loop().time()))
        return True

    def _send_queued(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._queued:
            address, datagram, since_s = self._queued[0]
            try:
                self._sockets[0].sendto(add_waiting_time(datagram, now - since_s), address)  # type: ignore[call-overload]
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._drop("send_failed")
            self._queued.popleft()
        asyncio.get_running_loop().remove_writer(self._sockets[0].fileno())

    def _drop(self, reason: str, times: int = 1) -> None:
        if self._report_drop is not None:
            self._report_drop(reason, times)


def find_prefixes(host: str) -> tuple[str, str]:
    """Return the prefix of a host and that of its site; the host itself if it is no IP address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host, host
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    version, number, bits = address.version, int(address), address.max_prefixlen

    def cut(length: int) -> str:
        return f"{version} {number >> (bits - length)}/{length}"

    return cut(PREFIX_BITS[version]), cut(SITE_BITS[version])


def _check_socket_address(address: LinkAddress) -> SocketAddress:
    assert isinstance(address, tuple)
    host, port = address
    return host, port


def _is_name(peer: SocketAddress) -> bool:
    try:
        ipaddress.ip_address(peer[0])
    except ValueError:
        return True
    return False


def _check_group(text: str, listening: str, place: str) -> int:
    """Return the port of a group; a UserError if a socket at the listening address cannot receive the group."""
    host, port = _check_socket_address(parse_at(UdpAdapter, text, place))
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        raise UserError(f"{place}: {host!r} is no IPv4 broadcast or multicast address") from None
    if ":" in listening:
        raise UserError(f"{place}: a group needs an IPv4 address to listen on, not {listening!r}")
    if port == 0:
        raise UserError(f"{place}: the port must not be 0; it is the same on every node")
    return port


def _request_ancillary_data(opened: socket.socket) -> None:
    if sys.platform == "linux":
        opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)


def _explain(error: OSError, wanted: SocketAddress, group: SocketAddress | None) -> str:
    place = format_socket_address(wanted)
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {place}: the port is already in use; stop the other node or choose another port"
    also = "" if group is None else f" (group {format_socket_address(group)})"
    return f"cannot listen on {place}{also}: {error.strerror or error}"
