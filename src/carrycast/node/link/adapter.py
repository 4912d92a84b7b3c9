"""A way to send datagrams to addresses and to hear others'."""

import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from carrycast.errors import WorkError
from carrycast.node.link.socket_address import Address

Receive: TypeAlias = Callable[[bytes, Address, bool], None]
"""A datagram, whom it came from, and whether it was sent to the group rather than to this node."""
Trouble: TypeAlias = Callable[[str, int], None]
"""The reason for which something was dropped, and how much."""


class NotThereError(WorkError):
    """The machine does not have the address to listen on; perhaps not yet."""


class Transport(ABC):
    """A way to send datagrams to addresses and to hear others'."""

    family: socket.AddressFamily

    @property
    @abstractmethod
    def address(self) -> Address:
        """Where this transport is heard; known once it is open."""

    @property
    @abstractmethod
    def group(self) -> Address | None:
        """The broadcast or multicast address that reaches everybody, if there is one."""

    @abstractmethod
    def open(self, receive: Receive, trouble: Trouble) -> None:
        """Start to hear. `trouble` is told when the operating system refuses or drops something later on."""

    @abstractmethod
    def send(self, address: Address, datagram: bytes) -> bool:
        """Send or keep for sending; False if the queue is full."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the sockets; what still waits is not sent."""
