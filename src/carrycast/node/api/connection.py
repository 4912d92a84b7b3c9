"""A client's end of a control channel: lines out, lines in, and which node is gone."""

import math
import re
import select
import socket
import time
from collections import deque

from carrycast.errors import ConnectionLostError, UserError, WorkError
from carrycast.node.api.messages import MAX_LINE_BYTES
from carrycast.node.api.token import first_line, split_token
from carrycast.node.link.socket_address import parse_socket_address

CONNECT_S = 5.0
SEND_S = 30.0
CHUNK_BYTES = 1 << 16


class Connection:
    """One connection to a node at an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._received = bytearray()
        self._lines: deque[bytes] = deque()
        token, place = split_token(address)
        try:
            self._socket = _connected(place)
            if token is not None:
                self._socket.sendall(first_line(token))
        except UnicodeError:
            raise UserError(f"{address!r} names no host") from None
        except OSError as error:
            reason = error.strerror or str(error)
            raise WorkError(f"no node answers at {address} ({reason}); is `carrycast node` running there?") from None

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def send(self, line: bytes) -> None:
        """One line, without its end."""
        if len(line) >= MAX_LINE_BYTES:
            raise UserError(f"at most {MAX_LINE_BYTES} bytes fit through the control channel, not {len(line) + 1}")
        left = memoryview(line + b"\n")
        while left:
            try:
                self._socket.settimeout(0)
                left = left[self._socket.send(left) :]
            except BlockingIOError:
                self._wait_to_send()
            except OSError as error:
                raise self._gone(error) from None

    def _wait_to_send(self) -> None:
        """A node does not hear who does not read what it says, so what comes meanwhile is taken in."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN | select.POLLOUT)
        found = waiting.poll(SEND_S * 1000)
        if not found:
            raise ConnectionLostError(f"the node at {self.address} has taken nothing for {SEND_S:g} s")
        if found[0][1] & select.POLLIN:
            self._take_in()

    @property
    def ready(self) -> bool:
        """Whether a line is there without waiting."""
        return bool(self._lines)

    def receive(self, deadline: float) -> bytes | None:
        """The next line; None at the deadline."""
        while not self._lines:
            wait_s = deadline - time.monotonic()
            if wait_s <= 0:
                return None
            self._socket.settimeout(None if math.isinf(wait_s) else wait_s)
            if not self._take_in():
                return None
        return self._lines.popleft()

    def _take_in(self) -> bool:
        """Some of what has come; False if nothing has in the time that the socket waits."""
        try:
            chunk = self._socket.recv(CHUNK_BYTES)
        except (TimeoutError, BlockingIOError):
            return False
        except OSError as error:
            raise self._gone(error) from None
        if not chunk:
            raise ConnectionLostError(f"the node at {self.address} hung up")
        self._received += chunk
        *lines, rest = self._received.split(b"\n")
        self._received = rest
        self._lines.extend(bytes(line) for line in lines)
        return True

    def _gone(self, error: OSError) -> ConnectionLostError:
        return ConnectionLostError(f"the node at {self.address} is gone: {error.strerror or error}")


def _connected(address: str) -> socket.socket:
    if re.search(r":[0-9]+$", address):
        return socket.create_connection(parse_socket_address(address), CONNECT_S)
    connected = socket.socket(socket.AF_UNIX)
    try:
        connected.settimeout(CONNECT_S)
        connected.connect(address)
    except BaseException:
        connected.close()
        raise
    return connected
