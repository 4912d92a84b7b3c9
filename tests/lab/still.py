"""A transport without a socket, which hears what it is given."""

import socket

from carrycast.node.link.adapter import Receive, Transport, Trouble
from carrycast.node.link.socket_address import Address


class Still(Transport):
    """For tests of what lies between a socket and a node."""

    family = socket.AF_INET

    def __init__(self) -> None:
        self._receive: Receive | None = None

    @property
    def address(self) -> Address:
        return ("here", 1)

    @property
    def group(self) -> Address | None:
        return None

    def open(self, receive: Receive, trouble: Trouble) -> None:
        self._receive = receive

    def hear(self, datagram: bytes, address: Address) -> None:
        """A datagram has come."""
        assert self._receive is not None
        self._receive(datagram, address, False)

    def send(self, address: Address, datagram: bytes) -> bool:
        return True

    def close(self) -> None:
        self._receive = None
