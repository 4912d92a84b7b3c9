"""The blocking connection of the synchronous client: lines out, lines in."""

import math
import re
import select
import socket
import time
from collections import deque

from carrycast.errors import ConnectionLostError, UserError, WorkError
from carrycast.node.api.token import first_line, split_token
from carrycast.node.link import SocketAddress, parse_socket_address

CONNECT_S = 5.0
SEND_S = 30.0
CHUNK_BYTES = 1 << 16


class Connection:
    """One connection to a node at an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._received = bytearray()
        self._lines: deque[bytes] = deque()
        try:
            token, place = parse_place(address)
            self._socket = _open_socket(place)
            if token is not None:
                self._socket.sendall(first_line(token))
        except UnicodeError:
            raise UserError(f"{address!r} names no host") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise WorkError(f"no node answers at {address} ({reason}); is `carrycast node` running there?") from None

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def send(self, line: bytes) -> None:
        """Send a line."""
        rest = memoryview(line)
        while rest:
            try:
                self._socket.settimeout(0)
                rest = rest[self._socket.send(rest) :]
            except BlockingIOError:
                self._wait_to_send()
            except OSError as error:
                raise self._lost(error) from None

    def _wait_to_send(self) -> None:
        """A node stops reading from a client that does not read, so lines that arrive meanwhile are received."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN | select.POLLOUT)
        found = poll.poll(SEND_S * 1000)
        if not found:
            raise ConnectionLostError(f"the node at {self.address} has taken nothing for {SEND_S:g} s")
        if found[0][1] & select.POLLIN:
            self._read()

    @property
    def has_line(self) -> bool:
        """Whether a line has been received."""
        return bool(self._lines)

    def receive(self, deadline: float) -> bytes | None:
        """The next line; None at the deadline."""
        while not self._lines:
            wait_s = deadline - time.monotonic()
            if wait_s <= 0:
                return None
            self._socket.settimeout(None if math.isinf(wait_s) else wait_s)
            if not self._read():
                return None
        return self._lines.popleft()

    def _read(self) -> bool:
        """Read from the socket; False if nothing arrived before its timeout."""
        try:
            chunk = self._socket.recv(CHUNK_BYTES)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            raise self._lost(error) from None
        if not chunk:
            raise ConnectionLostError(f"the node at {self.address} hung up")
        self._received += chunk
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        self._lines.extend(bytes(line) for line in lines)
        return True

    def _lost(self, error: OSError) -> ConnectionLostError:
        return ConnectionLostError(f"the node at {self.address} is gone: {error.strerror or error}")


def parse_place(address: str) -> tuple[str | None, SocketAddress | str]:
    """The token for the node, if it needs one, and its port or the path of its socket."""
    token, place = split_token(address)
    return token, parse_socket_address(place) if re.search(r":[0-9]+$", place) else place


def _open_socket(place: SocketAddress | str) -> socket.socket:
    if not isinstance(place, str):
        return socket.create_connection(place, CONNECT_S)
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.settimeout(CONNECT_S)
        opened.connect(place)
    except BaseException:
        opened.close()
        raise
    return opened
