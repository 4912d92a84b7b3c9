"""A transport that hears only a given reach list, so that links come and go on one machine."""

import asyncio
import random

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import Receive, Transport, Trouble
from carrycast.node.link.frame import LinkFlaw, older, unpack
from carrycast.node.link.socket_address import Address


class ReachTransport(Transport):
    """Hears whoever is in `reach`, by address or by node id, and nobody else. The list may change at any time.

    Each datagram takes `delay_s` on its way, and who is in reach counts when it arrives.
    Of what would be heard a share of `loss` is lost all the same.
    Every other datagram is lost as if the air had not carried it: the node learns nothing of it. `lost` counts them.
    """

    def __init__(self, inner: Transport, delay_s: float = 0.0) -> None:
        self.family = inner.family
        self.reach: set[Address | NodeId] = set()
        self.lost = 0
        self.loss = 0.0
        self._chance = random.Random(0)
        self._inner = inner
        self._delay_s = delay_s
        self._closed = False
        self._receive: Receive | None = None

    @property
    def address(self) -> Address:
        return self._inner.address

    @property
    def group(self) -> Address | None:
        return self._inner.group

    def open(self, receive: Receive, trouble: Trouble) -> None:
        self._receive = receive
        self._inner.open(self._hear, trouble)

    def send(self, address: Address, datagram: bytes) -> bool:
        return self._inner.send(address, datagram)

    def close(self) -> None:
        self._closed = True
        self._inner.close()

    def _hear(self, datagram: bytes, address: Address, to_group: bool) -> None:
        if self._delay_s > 0:
            asyncio.get_running_loop().call_later(
                self._delay_s, self._arrive, older(datagram, self._delay_s), address, to_group
            )
        else:
            self._arrive(datagram, address, to_group)

    def _arrive(self, datagram: bytes, address: Address, to_group: bool) -> None:
        assert self._receive is not None
        if self._closed:
            return
        if self.loss and self._chance.random() < self.loss:
            self.lost += 1
        elif address in self.reach or self._sender(datagram) in self.reach:
            self._receive(datagram, address, to_group)
        else:
            self.lost += 1

    @staticmethod
    def _sender(datagram: bytes) -> NodeId | None:
        frame = unpack(datagram, keyed=True)
        return None if isinstance(frame, LinkFlaw) else frame.sender
