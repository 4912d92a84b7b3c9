"""A shared medium for nodes with keys: it delivers datagrams when a test calls `carry`."""

import asyncio
import math
import time
from collections.abc import Callable
from random import Random

from carrycast.core.model import NodeId
from carrycast.node.link.adapter import LinkAddress, ReceiveDatagram, ReportDrop
from carrycast.node.link.frame import LinkFrame, LinkKind, pack
from carrycast.node.link.socket_address import SocketAddress
from carrycast.node.link.udp import UdpAdapter
from carrycast.node.security.handshake import OURS, VersionOffer
from carrycast.node.security.membership import Membership
from carrycast.node.security.sealed import SealedChannel
from tests.live.keyed import Operator

GROUP = ("group", 1)
OPERATOR = Operator()


class Air:
    """Delivers each datagram to its receivers when `carry` is called; a test can inspect all datagrams."""

    def __init__(self) -> None:
        self.ears: dict[SocketAddress, Ear] = {}
        self.said: list[tuple[SocketAddress, SocketAddress, bytes]] = []
        self.waiting: list[tuple[SocketAddress, SocketAddress, bytes]] = []
        self.loss = 0.0
        self.mtu = 65_507
        self.lost = 0
        self._rng = Random(1)

    def carry(self) -> None:
        while self.waiting:
            origin, target, datagram = self.waiting.pop(0)
            self.said.append((origin, target, datagram))
            if len(datagram) > self.mtu or self._rng.random() < self.loss:
                self.lost += 1
                continue
            for address, ear in self.ears.items():
                if address != origin and target in (address, GROUP):
                    ear.hear(datagram, origin, target == GROUP)


async def carry_until(air: Air, condition: Callable[[], bool], within_s: float = 60.0) -> None:
    """Deliver datagrams repeatedly until a condition holds."""
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s
        air.carry()
        await asyncio.sleep(0.005)


def meet(air: Air, *speakers: "Speaker") -> None:
    """Let all nodes establish sessions with each other."""
    for _ in range(2):
        for speaker in speakers:
            speaker.say(b"beacon")
            air.carry()
    for speaker in speakers:
        assert {session.member.node for session in speaker.transport.sessions} == {
            other.node for other in speakers if other is not speaker
        }


class Ear(UdpAdapter):
    """The link adapter of one node on the medium."""

    def __init__(self, air: Air, port: int) -> None:
        super().__init__("127.0.0.1", 0)
        self._air = air
        self._address = ("host", port)
        air.ears[self._address] = self

    @property
    def broadcast_address(self) -> LinkAddress | None:
        return GROUP

    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        self._receive = receive

    def hear(self, datagram: bytes, address: LinkAddress, to_group: bool) -> None:
        assert self._receive is not None
        self._receive(datagram, address, to_group, 0)

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        assert isinstance(address, tuple)
        self._air.waiting.append((self._address, address, datagram))
        return True

    def close(self) -> None:
        del self._air.ears[self._address]

    def move(self, address: SocketAddress) -> None:
        """Change the address."""
        self.close()
        self._address = address
        self._air.ears[address] = self


class Speaker:
    """A node with keys on the medium: sends datagrams, and records the frames that it receives."""

    def __init__(
        self,
        air: Air,
        node: NodeId,
        operator: Operator = OPERATOR,
        port: int | None = None,
        expires_s: float = math.inf,
        membership: Membership | None = None,
        offer: VersionOffer = OURS,
    ) -> None:
        self.node = node
        self.ear = Ear(air, node if port is None else port)
        self.membership = membership or operator.verifier(node, expires_s=expires_s).membership
        self.transport = SealedChannel(self.ear, node, self.membership, 256)
        self.transport.offer = offer
        self.heard: list[tuple[NodeId, bytes]] = []
        self.dropped: list[str] = []
        self.transport.open(self._hear, lambda reason, times: self.dropped.append(reason))

    def _hear(self, frame: LinkFrame, address: LinkAddress, to_group: bool) -> None:
        self.heard.append((frame.sender, frame.body))

    def say(self, body: bytes, address: SocketAddress = GROUP) -> None:
        self.transport.send(pack(LinkFrame(LinkKind.DATA, self.node, 1, 1, body)), address)
