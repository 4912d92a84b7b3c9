"""A socket that speaks as it likes, with the keys of a member or without any; and what an attack may cost."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from carrycast.core.model import NodeId
from carrycast.core.wire import Codec, Layer, Message
from carrycast.lab.loopback.network import Inbox, until
from carrycast.node.config import NodeConfig
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.frame import LinkFrame, LinkKind, pack
from carrycast.node.link.udp import UdpAdapter
from carrycast.node.node import LiveNode
from carrycast.node.security.sealed import SealedChannel

MORE_MB = 50


class Insider:
    """A member gone bad: what it sends is sealed as it should be, and says whatever a story tells it to say."""

    def __init__(self, config: NodeConfig, target: LinkAddress) -> None:
        assert config.keys is not None
        self.node = config.node
        self.verifier = config.keys.make_verifier()
        self.air = UdpAdapter("127.0.0.1", 0)
        self.transport = SealedChannel(self.air, config.node, self.verifier.membership, 256)
        self.target = target
        self.heard: list[LinkFrame] = []
        self._codecs = config.plan.codecs
        self._sequence = 0

    def codec(self, layer: Layer = Layer.DISSEMINATION) -> Codec:
        return self._codecs[layer]

    async def join(self) -> None:
        """Until the target has heard it."""
        self.transport.open(self._hear, lambda reason, times: None)
        while LinkKind.CHALLENGE not in {frame.kind for frame in self.heard}:
            self.say(b"x")
            await asyncio.sleep(0.02)

    def _hear(self, frame: LinkFrame, address: LinkAddress, to_group: bool) -> None:
        self.heard.append(frame)
        if frame.kind is LinkKind.CHALLENGE:
            self.transport.send(pack(frame._replace(kind=LinkKind.RESPONSE, sender=self.node)), address)

    def say(self, body: bytes, sender: NodeId | None = None, sequence: int | None = None) -> None:
        """A datagram of the link layer, sealed."""
        self._sequence += 1
        number = self._sequence if sequence is None else sequence
        name = self.node if sender is None else sender
        self.transport.send(pack(LinkFrame(LinkKind.DATA, name, 1, number, body)), self.target)

    def tell(self, message: Message, layer: Layer = Layer.DISSEMINATION) -> None:
        self.say(self.codec(layer).encode(message))


@asynccontextmanager
async def insider(config: NodeConfig, victim: LiveNode) -> AsyncIterator[Insider]:
    made = Insider(config, victim.address)
    try:
        await made.join()
        yield made
    finally:
        made.transport.close()


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


async def fifty_arrive(publisher: LiveNode, inbox: Inbox) -> None:
    """Legitimate traffic: 50 of 50, and nothing else."""
    ids = [publisher.publish({"honest": n}) for n in range(50)]
    await until(lambda: sorted(inbox.events) == sorted(ids), 20)


async def joined(first: LiveNode, second: LiveNode) -> Inbox:
    """The second wants what the first publishes honestly."""
    first.add_peer(second.address)
    second.add_peer(first.address)
    await until(lambda: second.node in first.neighbors and first.node in second.neighbors, 10)
    inbox = Inbox()
    second.subscribe("honest >= 0", inbox)
    return inbox


async def paced(count: int, act: Callable[[int], None]) -> None:
    """Again and again, with the node's turn in between."""
    for number in range(count):
        act(number)
        if number % 20 == 19:
            await asyncio.sleep(0.001)
