"""Datagrams over UDP.

Sockets are read with `add_reader` and drained at each wake-up, which is some ten times faster than asyncio's
DatagramProtocol. Both directions are bounded: at most DRAIN datagrams are read before timers get their turn, and at
most `queue` wait for a socket that cannot take more. What waited, there or in the buffer of a socket that was not read,
is so much `older`: on Linux each datagram comes with the time at which it arrived.
"""

import asyncio
import errno
import ipaddress
import socket
import struct
import sys
import time
from collections import deque

from carrycast.errors import WorkError
from carrycast.node.link.adapter import NotThereError, Receive, Transport, Trouble
from carrycast.node.link.frame import older
from carrycast.node.link.moderation import Moderation
from carrycast.node.link.socket_address import Address, format_address

DRAIN = 256
BUFFER_BYTES = 65_536
"""More than a UDP datagram can be, so that none is ever cut."""
SOCKET_BUFFER_BYTES = 1 << 20
"""Asked of the operating system, which may give less: room for a burst of contacts while a handler runs."""

SO_TIMESTAMPNS = 35
"""Of Linux; Python has no name for it. Asks for the time of arrival, and marks it beside a datagram."""
SO_RXQ_OVFL = 40
"""Of Linux, too. Asks for the number of datagrams that found no room in the socket's buffer, beside each that did."""
_TIMESTAMP = struct.Struct("@qq")
_MS = 0.001
_OVERFLOWN = struct.Struct("@I")
_BESIDE_BYTES = socket.CMSG_SPACE(_TIMESTAMP.size) + socket.CMSG_SPACE(_OVERFLOWN.size)

_NOT_THERE = frozenset({errno.EADDRNOTAVAIL, errno.ENODEV, errno.ENETUNREACH})


class UdpTransport(Transport):
    """One UDP socket, and a second one to hear the group's datagrams if there is a group."""

    def __init__(self, host: str, port: int, group: Address | None = None, queue: int = 1000) -> None:
        self.family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._wanted = (host, port)
        self._group = group
        self._queue = queue
        self._waiting: deque[tuple[Address, bytes, float]] = deque()
        self._sockets: list[socket.socket] = []
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._turns = 1
        self._moderations: dict[socket.socket, Moderation] = {}
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        """Sockets that are looked at now and then."""
        self._receive: Receive | None = None
        self._trouble: Trouble | None = None
        self._address = self._wanted
        self._overflown: dict[int, int] = {}

    @property
    def address(self) -> Address:
        return self._address

    @property
    def group(self) -> Address | None:
        return self._group

    def open(self, receive: Receive, trouble: Trouble) -> None:
        self._receive = receive
        self._trouble = trouble
        loop = asyncio.get_running_loop()
        try:
            self._sockets.append(self._bound_socket())
            if self._group is not None:
                self._sockets.append(self._group_socket(self._group))
        except OSError as error:
            self.close()
            kind = NotThereError if error.errno in _NOT_THERE else WorkError
            raise kind(_why(error, self._wanted, self._group)) from None
        host, port = self._sockets[0].getsockname()[:2]
        self._address = (host, port)
        for opened in self._sockets:
            self._moderations[opened] = Moderation()
            loop.add_reader(opened.fileno(), self._drain, opened, opened is not self._sockets[0])

    def send(self, address: Address, datagram: bytes) -> bool:
        if self._waiting:
            return self._keep(address, datagram)
        try:
            self._sockets[0].sendto(datagram, address)
        except (BlockingIOError, InterruptedError):
            asyncio.get_running_loop().add_writer(self._sockets[0].fileno(), self._send_waiting)
            return self._keep(address, datagram)
        except OSError:
            # No route, an address that cannot be written to: as good as lost on the air.
            self._tell("send_failed")
        return True

    def close(self) -> None:
        for timer in self._paused.values():
            timer.cancel()
        self._paused.clear()
        for opened in self._sockets:
            if self._receive is not None:
                loop = asyncio.get_running_loop()
                loop.remove_reader(opened.fileno())
                loop.remove_writer(opened.fileno())
            opened.close()
        self._sockets.clear()
        self._waiting.clear()

    def _bound_socket(self) -> socket.socket:
        opened = socket.socket(self.family, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SOCKET_BUFFER_BYTES)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SOCKET_BUFFER_BYTES)
            if self._group is not None:
                if ipaddress.ip_address(self._group[0]).is_multicast:
                    opened.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(self._wanted[0]))
                else:
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            _ask_for_arrivals(opened)
            opened.bind(self._wanted)
        except BaseException:
            opened.close()
            raise
        return opened

    def _group_socket(self, group: Address) -> socket.socket:
        """A socket that hears the group only. Every node of a machine may have one on the same port."""
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            _ask_for_arrivals(opened)
            opened.bind(group)
            if ipaddress.ip_address(group[0]).is_multicast:
                membership = struct.pack("4s4s", socket.inet_aton(group[0]), socket.inet_aton(self._wanted[0]))
                opened.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        except BaseException:
            opened.close()
            raise
        return opened

    def _drain(self, opened: socket.socket, to_group: bool) -> None:
        """Read what there is, and wait to be told of more, or look again soon if there is much."""
        if opened.fileno() < 0:
            return
        found = self._read(opened, to_group)
        if opened.fileno() < 0:  # What was heard made the node stop.
            return
        loop = asyncio.get_running_loop()
        pause_s = self._moderations[opened].pause_s(loop.time(), found)
        if pause_s == 0.0:
            if opened in self._paused:
                del self._paused[opened]
                loop.add_reader(opened.fileno(), self._drain, opened, to_group)
            return
        if opened not in self._paused:
            loop.remove_reader(opened.fileno())
        # Where there was more than is read at a time, the loop goes around once and no more.
        self._paused[opened] = loop.call_later(0.0 if found >= DRAIN else pause_s, self._drain, opened, to_group)

    def _read(self, opened: socket.socket, to_group: bool) -> int:
        """How many datagrams there were, DRAIN at the most."""
        assert self._receive is not None
        turns = DRAIN if opened in self._paused else self._turns
        for turn in range(turns):
            try:
                length, beside, _, address = opened.recvmsg_into([self._buffer], _BESIDE_BYTES)
            except (BlockingIOError, InterruptedError):
                self._turns = max(1, turn)
                return turn
            except OSError:
                self._tell("receive_failed")
                return turn
            waited_s = self._read_beside(opened.fileno(), beside) if beside else 0.0
            datagram = bytes(self._view[:length])
            self._receive(older(datagram, waited_s) if waited_s >= _MS else datagram, address[:2], to_group)
            if opened.fileno() < 0:
                return turn
        # There may be more: to ask is cheaper than to be told, and to ask in vain is not.
        self._turns = min(DRAIN, 2 * turns)
        return turns

    def _read_beside(self, socket_number: int, beside: list[tuple[int, int, bytes]]) -> float:
        """How long ago a datagram arrived, where the system tells. Of datagrams that it dropped since the last one,
        because this node did not read in time, it is told how many."""
        waited_s = 0.0
        for level, kind, data in beside:
            if level != socket.SOL_SOCKET:
                continue
            if kind == SO_TIMESTAMPNS and len(data) == _TIMESTAMP.size:
                seconds, nanoseconds = _TIMESTAMP.unpack(data)
                waited_s = time.time() - seconds - nanoseconds / 1e9
            elif kind == SO_RXQ_OVFL and len(data) == _OVERFLOWN.size:
                total: int = _OVERFLOWN.unpack(data)[0]
                before = self._overflown.get(socket_number, 0)
                if total != before:
                    self._overflown[socket_number] = total
                    # It counts on from 0 behind 2^32.
                    self._tell("socket_full", (total - before) % (1 << 32))
        return waited_s

    def _keep(self, address: Address, datagram: bytes) -> bool:
        if len(self._waiting) >= self._queue:
            return False
        self._waiting.append((address, datagram, asyncio.get_running_loop().time()))
        return True

    def _send_waiting(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._waiting:
            address, datagram, since_s = self._waiting[0]
            try:
                self._sockets[0].sendto(older(datagram, now - since_s), address)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                self._tell("send_failed")
            self._waiting.popleft()
        asyncio.get_running_loop().remove_writer(self._sockets[0].fileno())

    def _tell(self, reason: str, times: int = 1) -> None:
        if self._trouble is not None:
            self._trouble(reason, times)


def _ask_for_arrivals(opened: socket.socket) -> None:
    if sys.platform == "linux":
        opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        opened.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)


def _why(error: OSError, wanted: Address, group: Address | None) -> str:
    place = format_address(wanted)
    if error.errno == errno.EADDRINUSE:
        return f"cannot listen on {place}: the port is already in use; stop the other node or choose another port"
    also = "" if group is None else f" (group {format_address(group)})"
    return f"cannot listen on {place}{also}: {error.strerror or error}"
