"""Live nodes of one process on loopback, between which links come and go.

For tests, and for seeing protocols at work on real sockets without a network. Every node is told of every other; who
hears whom is decided by each node's reach list.
"""

import asyncio
from collections.abc import Callable, Iterable
from itertools import pairwise
from types import TracebackType

from driftcast.errors import WorkError
from driftcast.live.config import NodeConfig
from driftcast.live.node import LiveNode
from driftcast.live.reach import ReachTransport
from driftcast.live.transport import UdpTransport
from driftcast.model import Event, EventId, NodeId, SubscriptionId

POLL_S = 0.005


class LoopbackNetwork:
    """`async with LoopbackNetwork(configs) as network:` runs a node for each configuration, at first without links."""

    def __init__(self, configs: Iterable[NodeConfig]) -> None:
        self.nodes: dict[NodeId, LiveNode] = {}
        self.transports: dict[NodeId, ReachTransport] = {}
        self._links: set[tuple[NodeId, NodeId]] = set()
        self._configs = {config.node: config for config in configs}

    async def __aenter__(self) -> "LoopbackNetwork":
        try:
            for id in self._configs:
                await self.start(id)
        except BaseException:
            await self._stop_all()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stop_all()

    async def start(self, id: NodeId) -> LiveNode:
        """Start a node, for the first time or again; its links are as they were."""
        config = self._configs[id]
        transport = ReachTransport(UdpTransport("127.0.0.1", 0, None, config.link.queue))
        node = LiveNode(config, transport)
        await node.start()
        for other in self.nodes.values():
            node.add_peer(other.address)
            other.add_peer(node.address)
        self.nodes[id], self.transports[id] = node, transport
        for a, b in self._links:
            if id in (a, b):
                self.link(a, b)
        return node

    async def stop(self, id: NodeId) -> None:
        """Stop a node cleanly."""
        node = self.nodes.pop(id)
        del self.transports[id]
        for other in self.nodes.values():
            other.remove_peer(node.address)
        await node.stop()

    def link(self, a: NodeId, b: NodeId) -> None:
        """From now on two nodes hear each other."""
        self._links.add((a, b))
        for one, other in ((a, b), (b, a)):
            if one in self.transports:
                self.transports[one].reach.add(other)

    def cut(self, a: NodeId, b: NodeId) -> None:
        """From now on they do not."""
        self._links -= {(a, b), (b, a)}
        for one, other in ((a, b), (b, a)):
            if one in self.transports:
                self.transports[one].reach.discard(other)

    def line(self) -> None:
        """Link each node with the next."""
        ids = list(self._configs)
        for a, b in pairwise(ids):
            self.link(a, b)

    async def discovered(self, within_s: float = 5.0) -> None:
        """Wait until every node knows exactly the neighbors that it is linked with."""
        await until(lambda: all(set(node.neighbors) == self._linked(id) for id, node in self.nodes.items()), within_s)

    def _linked(self, id: NodeId) -> set[NodeId]:
        ends = [pair for pair in self._links if id in pair and set(pair) <= self.nodes.keys()]
        return {b if a == id else a for a, b in ends}

    async def _stop_all(self) -> None:
        for id in list(self.nodes):
            await self.stop(id)


class Inbox:
    """A listener that remembers: `node.subscribe("speed > 30", inbox)`."""

    def __init__(self) -> None:
        self.pairs: list[tuple[EventId, SubscriptionId]] = []
        self.hops: list[int] = []

    def __call__(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self.pairs.append((event.id, subscription))
        self.hops.append(hops)

    @property
    def events(self) -> list[EventId]:
        """What was delivered, in order."""
        return [event for event, _ in self.pairs]


async def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait for a condition; a WorkError if it does not come true in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while not condition():
        if loop.time() > deadline:
            raise WorkError(f"not so within {within_s:g} s")
        await asyncio.sleep(POLL_S)
