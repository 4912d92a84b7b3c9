"""A frame channel turns the datagrams of a link adapter into frames.

A node without keys has a `PlainChannel` on each interface. A node with keys has a `SealedChannel`
(`security/sealed.py`), which encrypts and decrypts. Both parse each datagram once and pass frames to the link layer.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeAlias

from carrycast.node.link.adapter import LinkAdapter, LinkAddress, ReportDrop
from carrycast.node.link.frame import LinkFlaw, LinkFrame, unpack

ReceiveFrame: TypeAlias = Callable[[LinkFrame, LinkAddress, bool], None]
"""Receives a frame, its source address, and whether it was sent to the broadcast address rather than to this node."""


class FrameChannel(ABC):
    """Connects the link adapter of an interface with its link layer."""

    adapter: LinkAdapter
    mtu_bytes: int
    """The longest datagram of the link layer that can be sent."""

    @abstractmethod
    def open(self, receive: ReceiveFrame, report_drop: ReportDrop) -> None:
        """Start to receive. `report_drop` is called for datagrams that the channel or the adapter drops."""

    @abstractmethod
    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        """Send or queue a datagram of the link layer; False if the queue is full."""

    @abstractmethod
    def close(self) -> None:
        """Close the adapter; queued datagrams are not sent."""


class PlainChannel(FrameChannel):
    """The channel without encryption: each datagram is one frame."""

    def __init__(self, adapter: LinkAdapter) -> None:
        self.adapter = adapter
        self.mtu_bytes = adapter.mtu_bytes
        # Saves one call for each datagram.
        self.send = adapter.send  # type: ignore[method-assign]

    def open(self, receive: ReceiveFrame, report_drop: ReportDrop) -> None:
        def on_datagram(datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
            frame = unpack(datagram, waited_ms=waited_ms)
            if isinstance(frame, LinkFlaw):
                report_drop(str(frame), 1)
            else:
                receive(frame, address, to_group)

        self.adapter.open(on_datagram, report_drop)

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        return self.adapter.send(datagram, address)

    def close(self) -> None:
        self.adapter.close()
