"""A malicious member that sends arbitrary frames with valid keys, and checks of the cost of an attack."""

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
    """A malicious member: its datagrams are encrypted correctly, and have any content that a test chooses."""

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
        """Wait until the target has received a frame of this node."""
        self.transport.open(self._hear, lambda reason, times: None)
        while LinkKind.CHALLENGE not in {frame.kind for frame in self.heard}:
            self.say(b"x")
            await asyncio.sleep(0.02)

    def _hear(self, frame: LinkFrame, address: LinkAddress, to_group: bool) -> None:
        self.heard.append(frame)
        if frame.kind is LinkKind.CHALLENGE:
            self.transport.send(pack(frame._replace(kind=LinkKind.RESPONSE, sender=self.node)), address)

    def say(self, body: bytes, sender: NodeId | None = None, sequence: int | None = None) -> None:
        """Send an encrypted datagram of the link layer."""
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


async def check_fifty_arrive(publisher: LiveNode, inbox: Inbox) -> None:
    """Check that 50 of 50 legitimate events arrive, and nothing else."""
    ids = [publisher.publish({"honest": n}) for n in range(50)]
    await until(lambda: sorted(inbox.events) == sorted(ids), 20)


async def connect(first: LiveNode, second: LiveNode) -> Inbox:
    """Make two nodes neighbors; the second subscribes to the legitimate events of the first."""
    first.add_peer(second.address)
    second.add_peer(first.address)
    await until(lambda: second.node in first.neighbors and first.node in second.neighbors, 10)
    inbox = Inbox()
    second.subscribe("honest >= 0", inbox)
    return inbox


async def repeat_slowly(count: int, act: Callable[[int], None]) -> None:
    """Repeat an action, with turns of the event loop in between."""
    for number in range(count):
        act(number)
        if number % 20 == 19:
            await asyncio.sleep(0.001)
