"""Live nodes in one process on loopback sockets, with links that can be made and cut.

It serves tests, and trying protocols on real sockets without a network. Every node is a peer of every other. Links are
made by the set of nodes that each adapter receives from, set by hand or by a contact plan.
"""

import asyncio
import math
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from types import TracebackType

from carrycast.core.model import Event, EventId, NodeId, SubscriptionId
from carrycast.core.protocol import Interface
from carrycast.errors import UserError, WorkError
from carrycast.node import LiveNode, NodeConfig
from carrycast.node.link import (
    UDP,
    AdapterSettings,
    AddressScope,
    LinkAdapter,
    LinkAddress,
    ReceiveDatagram,
    ReportDrop,
    UdpAdapter,
    UdpSettings,
    read_sender,
)
from carrycast.sim.contacts import ContactPlan


class ReachAdapter(LinkAdapter):
    """Receives only from the nodes in `reach`, given by address or by node id. The set may change at any time.

    Each datagram takes `delay_s`, and is received if its sender is in `reach` when it arrives. A fraction `loss` of the
    datagrams is lost at random. As on the air, the node does not notice lost datagrams; `lost` counts them.
    """

    name = "reach"
    settings_type = UdpSettings

    def __init__(self, inner: LinkAdapter, delay_s: float = 0.0) -> None:
        self.mtu_bytes = inner.mtu_bytes
        self.reach: set[LinkAddress | NodeId] = set()
        self.lost = 0
        self.loss = 0.0
        self._random = random.Random(0)
        self._inner = inner
        self._delay_s = delay_s
        self._closed = False
        self._receive: ReceiveDatagram | None = None

    @property
    def address(self) -> LinkAddress:
        return self._inner.address

    @property
    def broadcast_address(self) -> LinkAddress | None:
        return self._inner.broadcast_address

    def open(self, receive: ReceiveDatagram, report_drop: ReportDrop) -> None:
        self._receive = receive
        self._inner.open(self._on_datagram, report_drop)

    def send(self, datagram: bytes, address: LinkAddress) -> bool:
        return self._inner.send(datagram, address)

    def close(self) -> None:
        self._closed = True
        self._inner.close()

    async def resolve_address(self, address: LinkAddress) -> LinkAddress:
        return await self._inner.resolve_address(address)

    @classmethod
    def parse_address(cls, text: str) -> LinkAddress:
        return UdpAdapter.parse_address(text)

    @classmethod
    def format_address(cls, address: LinkAddress) -> str:
        return UdpAdapter.format_address(address)

    @classmethod
    def scope_of(cls, address: LinkAddress) -> AddressScope:
        return UdpAdapter.scope_of(address)

    @classmethod
    def from_settings(cls, settings: AdapterSettings, queue: int) -> "ReachAdapter":
        return cls(UdpAdapter.from_settings(settings, queue))

    def _on_datagram(self, datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
        if self._delay_s > 0:
            waited_ms += int(self._delay_s * 1000)
            asyncio.get_running_loop().call_later(self._delay_s, self._arrive, datagram, address, to_group, waited_ms)
        else:
            self._arrive(datagram, address, to_group, waited_ms)

    def _arrive(self, datagram: bytes, address: LinkAddress, to_group: bool, waited_ms: int) -> None:
        assert self._receive is not None
        if self._closed:
            return
        if self.loss and self._random.random() < self.loss:
            self.lost += 1
        elif address in self.reach or read_sender(datagram) in self.reach:
            self._receive(datagram, address, to_group, waited_ms)
        else:
            self.lost += 1


POLL_S = 0.005
MAX_TURN_S = 0.1
"""The most time that one iteration of the event loop counts in `until`."""


class LoopbackNetwork:
    """`async with LoopbackNetwork(configs) as network:` runs a node for each configuration, at first without links.

    Interfaces of the same name can be linked with each other; `delays_s` is the delay of datagrams over each.
    """

    def __init__(self, configs: Iterable[NodeConfig], delays_s: Mapping[Interface, float] | None = None) -> None:
        self.nodes: dict[NodeId, LiveNode] = {}
        self.adapters: dict[tuple[NodeId, Interface], ReachAdapter] = {}
        self._links: set[tuple[NodeId, NodeId, Interface]] = set()
        self._configs = {config.node: config for config in configs}
        self._delays_s = dict(delays_s or {})
        self._ports: dict[tuple[NodeId, Interface], int] = {}
        """The port of each node and interface. A node that restarts keeps its ports, as a rebooted machine would."""

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
        """Start or restart a node. A node that restarts keeps its links and addresses."""
        config = self._configs[id]
        adapters = {
            interface.name: ReachAdapter(
                UdpAdapter("127.0.0.1", self._ports.get((id, interface.name), 0), None, interface.link.queue),
                self._delays_s.get(interface.name, 0.0),
            )
            for interface in config.interfaces
        }
        node = LiveNode(config, adapters)
        await node.start()
        for interface, address in node.addresses.items():
            assert isinstance(address, tuple), "a UDP address"
            self._ports[id, interface] = address[1]
        for other in self.nodes.values():
            for interface in node.addresses.keys() & other.addresses.keys():
                node.add_peer(other.addresses[interface], interface)
                other.add_peer(node.addresses[interface], interface)
        self.nodes[id] = node
        for interface, transport in adapters.items():
            self.adapters[id, interface] = transport
        for a, b, interface in self._links:
            if id in (a, b):
                self.link(a, b, interface)
        return node

    async def stop(self, id: NodeId) -> None:
        """Stop a node cleanly."""
        await self._remove(id).stop()

    async def crash(self, id: NodeId) -> None:
        """End a node as if its process had been killed: its protocol is not stopped and sends no last messages."""
        await self._remove(id).crash()

    def _remove(self, id: NodeId) -> LiveNode:
        node = self.nodes.pop(id)
        for interface, address in node.addresses.items():
            del self.adapters[id, interface]
            for other in self.nodes.values():
                if interface in other.addresses:
                    other.remove_peer(address, interface)
        return node

    def link(self, a: NodeId, b: NodeId, on: Interface = UDP) -> None:
        """Make a link between two nodes."""
        self._links.add((a, b, on))
        for one, other in ((a, b), (b, a)):
            if (one, on) in self.adapters:
                self.adapters[one, on].reach.add(other)

    def cut(self, a: NodeId, b: NodeId, on: Interface = UDP) -> None:
        """Cut the link between two nodes."""
        self._links -= {(a, b, on), (b, a, on)}
        for one, other in ((a, b), (b, a)):
            if (one, on) in self.adapters:
                self.adapters[one, on].reach.discard(other)

    def line(self) -> None:
        """Link each node with the next."""
        ids = list(self._configs)
        for a, b in pairwise(ids):
            self.link(a, b)

    async def play(self, plan: ContactPlan, pace: float = 1.0, on: Interface = UDP) -> None:
        """Play a contact plan from its start to its end, `pace` seconds of the plan in each second.

        Node k of the plan is the network's k-th. Links that are not in the plan stay as they are. Links that are
        open at its end stay open.
        """
        if not (pace > 0 and math.isfinite(pace)):
            raise UserError(f"pace: {pace:g} is no pace; expected seconds of the plan in one second, above 0")
        ids = list(self._configs)
        if plan.nodes > len(ids):
            raise UserError(f"the plan has {plan.nodes} nodes, but the network only {len(ids)}")
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        changes = plan.changes(plan.duration_s)
        columns = (changes.time_s.tolist(), changes.up.tolist(), changes.a.tolist(), changes.b.tolist())
        for time_s, up, a, b in zip(*columns, strict=True):
            # Wait until the time in the plan, so that delays do not accumulate.
            late_s = loop.time() - begun_s - time_s / pace
            if late_s < 0:
                await asyncio.sleep(-late_s)
            (self.link if up else self.cut)(ids[a], ids[b], on)
        await asyncio.sleep(max(0.0, begun_s + plan.duration_s / pace - loop.time()))

    async def wait_until_discovered(self, within_s: float = 5.0) -> None:
        """Wait until every node has discovered exactly its links."""
        await until(lambda: self.is_discovered, within_s)

    @property
    def is_discovered(self) -> bool:
        """Whether every node has discovered exactly its links."""
        return all(_discovered_links(node) == self._actual_links(id) for id, node in self.nodes.items())

    def _actual_links(self, id: NodeId) -> set[tuple[NodeId, Interface]]:
        ends = [(a, b, on) for a, b, on in self._links if id in (a, b) and {a, b} <= self.nodes.keys()]
        return {(b if a == id else a, on) for a, b, on in ends}

    async def _stop_all(self) -> None:
        for id in list(self.nodes):
            await self.stop(id)


def _discovered_links(node: LiveNode) -> set[tuple[NodeId, Interface]]:
    return {(link.neighbor, link.interface) for link in node.links}


class Inbox:
    """A listener that stores deliveries: `node.subscribe("speed > 30", inbox)`."""

    def __init__(self) -> None:
        self.pairs: list[tuple[EventId, SubscriptionId]] = []
        self.hops: list[int] = []

    def __call__(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        self.pairs.append((event.id, subscription))
        self.hops.append(hops)

    @property
    def events(self) -> list[EventId]:
        """The ids of the delivered events, in order."""
        return [event for event, _ in self.pairs]


async def until(condition: Callable[[], bool], within_s: float = 5.0) -> None:
    """Wait for a condition; a WorkError if it does not become true in time.

    While the event loop is blocked, by a busy machine or by the condition itself, nothing can become true, so each
    iteration counts at most MAX_TURN_S.
    """
    loop = asyncio.get_running_loop()
    waited_s, checked_s = 0.0, loop.time()
    while not condition():
        if waited_s > within_s:
            raise WorkError(f"not so within {within_s:g} s")
        await asyncio.sleep(POLL_S)
        now_s = loop.time()
        waited_s += min(now_s - checked_s, MAX_TURN_S)
        checked_s = now_s
