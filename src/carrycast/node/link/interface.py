"""An interface of a node: its link layer, its codecs, and the neighbors and link costs on it."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from typing import NamedTuple

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Beacon, Link, Stack, Token
from carrycast.core.wire import LEASE_EXPIRED, Codec, DecodeError, Flaw, Layer, Message, layer_of
from carrycast.errors import WorkError
from carrycast.node.link.adapter import LinkAddress
from carrycast.node.link.channel import FrameChannel
from carrycast.node.link.coalescing import WhenDurable
from carrycast.node.link.config import InterfaceConfig
from carrycast.node.link.cost import LinkCosts
from carrycast.node.link.frame import MAX_SENDERS, LinkFlaw
from carrycast.node.link.link_layer import LinkLayer, LinkLayerUser
from carrycast.node.link.neighbor_eviction import NeighborEviction
from carrycast.node.link.rate_limit import CpuLimiter, LogLimiter
from carrycast.node.recorder import LOG, NodeRecorder

KEYED_NEARBY = "a node with keys is in reach, and this one has none: they cannot communicate"

RESOLVE_S = 5.0
"""The time between two attempts to resolve the host name of a peer."""
NAMES_S = 2.0
"""How long a starting node waits until the host names of its peers are resolved. A name server that does not respond
costs 10 s or more for each name, and a service manager waits 90 s in all. Numeric addresses need no time."""
FULL_SHARE = 0.75
"""The share of the send queue above which the interface is busy, even if only one neighbor is slow."""
BUSY_SHARE = 0.25
"""The share of the send queue above which publishers have to wait. The rest is for messages that follow from events
that are already published."""


class Unicast(NamedTuple):
    """A unicast whose outcome is not known yet."""

    layer: Layer
    message: Message
    target: NodeId
    size_bytes: int
    tokens: tuple[Token, ...]


class LiveInterface(LinkLayerUser[Unicast]):
    """A running interface. Its state about other nodes is bounded, whatever they send."""

    def __init__(
        self,
        node: NodeId,
        config: InterfaceConfig,
        channel: FrameChannel,
        codecs: Mapping[Layer, Codec],
        record: NodeRecorder,
        stack: Stack,
        when_durable: WhenDurable,
    ) -> None:
        self.name = config.name
        self.peers: dict[LinkAddress, None] = {}
        self.neighbors: dict[NodeId, None] = {}
        """The nodes to which discovery has found a link over this interface."""
        self._config = config
        self._adapter = channel.adapter
        self._codecs: Mapping[int, Codec] = dict(codecs.items())
        self._record = record
        self._stack = stack
        self._resolving: list[asyncio.Task[None]] = []
        on_transmission = _make_transmission_recorder(record, config.name)
        self._link_layer = LinkLayer(node, channel, config.link, self, on_transmission, when_durable)
        self._cpu_limiter = CpuLimiter(config.quotas, asyncio.get_running_loop().call_soon)
        self._eviction = NeighborEviction()
        self._log_limiter = LogLimiter()
        self._measures = config.link.cost == "measured"
        self._costs = LinkCosts(config.link.cost_s)
        self._addresses: OrderedDict[NodeId, LinkAddress] = OrderedDict()
        self._unicast_only: set[NodeId] = set()
        """Neighbors whose beacons arrive by unicast: datagrams to the broadcast address may not reach them."""

    async def resolve_peers(self) -> None:
        """Resolve the addresses of the configured peers; retry those that fail in the background."""
        for peer in self._config.peers:
            try:
                self.peers[await self._adapter.resolve_address(peer)] = None
            except WorkError as error:
                LOG.warning("%s; it is tried again", error, extra={"fields": {"interface": self.name}})
                self._resolving.append(asyncio.create_task(self._resolve_later(peer)))

    async def _resolve_later(self, peer: LinkAddress) -> None:
        """Resolve the address of a peer repeatedly: a host name may be unknown before the network is up."""
        while True:
            await asyncio.sleep(RESOLVE_S)
            with suppress(WorkError):
                self.peers[await self._adapter.resolve_address(peer)] = None
                fields = {"peer": self._adapter.format_address(peer), "interface": self.name}
                LOG.info("a peer is found", extra={"fields": fields})
                return

    def open(self) -> None:
        """Start to receive."""
        self._link_layer.open()

    def close(self) -> None:
        """Stop; nothing is received, sent or reported from now on. An interface that was not opened may be closed."""
        for task in self._resolving:
            task.cancel()
        self._link_layer.close()

    @property
    def address(self) -> LinkAddress:
        """The address at which the node receives over this interface."""
        return self._adapter.address

    @property
    def pending(self) -> int:
        """How many unicasts are queued or in flight."""
        return self._link_layer.pending

    @property
    def busy(self) -> bool:
        """Whether the send queue is so long that publishers should wait.

        Frames for the slowest neighbor do not count until the queue is nearly full, so that one slow neighbor does not
        block publishers while others keep up."""
        pending, queue = self._link_layer.pending, self._config.link.queue
        if pending < queue * BUSY_SHARE:
            return False
        if len(self.neighbors) < 2 or pending >= queue * FULL_SHARE:
            return True
        return pending - self._link_layer.longest_queue >= queue * BUSY_SHARE

    def leads_to(self, node: NodeId) -> bool:
        """Whether a node was heard over this interface, so that its address is known."""
        return node in self._addresses

    def cost_s(self, neighbor: NodeId) -> float:
        """Return the cost of the link to a neighbor."""
        return self._costs.cost_s(neighbor)

    def on_link(self, neighbor: NodeId, up: bool) -> None:
        """Discovery has found or lost a link."""
        if up:
            self.neighbors[neighbor] = None
        else:
            self.neighbors.pop(neighbor, None)
            self._eviction.forget(neighbor)
            self._unicast_only.discard(neighbor)
            self._costs.forget(neighbor)
            self._link_layer.forget(neighbor)

    def send(self, unicast: Unicast, body: bytes) -> Failure | None:
        """Send to one node; the failure if the message is not accepted."""
        address = self._addresses.get(unicast.target)
        if address is None:
            return Failure.OUT_OF_REACH
        accepted = self._link_layer.send(unicast.target, address, body, unicast)
        return None if accepted else Failure.QUEUE_FULL

    def broadcast(self, layer: Layer, message: Message, body: bytes) -> None:
        """Send to all nodes in range."""
        self._record.send(layer, message, None, self.name, len(body))
        self._link_layer.broadcast(self._find_broadcast_addresses(), body)

    def _find_broadcast_addresses(self) -> list[LinkAddress]:
        """Return the broadcast address if there is one, the peers, and the neighbors that a broadcast may not reach."""
        group = self._adapter.broadcast_address
        addresses = dict(self.peers) if group is None else {group: None, **self.peers}
        for neighbor in self.neighbors:
            address = self._addresses.get(neighbor)
            if address is not None and neighbor in self._unicast_only:
                addresses[address] = None
        return list(addresses)

    # Called by the link layer.

    def on_frame(self, sender: NodeId, address: LinkAddress, to_group: bool, body: bytes, waited_s: float) -> bool:
        if not self._cpu_limiter.admit(sender):
            self._record.drop_datagram("neighbor_over_quota", sender)
            return False
        try:
            codec = self._codecs.get(layer_of(body))
            if codec is None:
                raise DecodeError(Flaw.LAYER)
            message = codec.decode(body)
        except DecodeError as error:
            self._record.drop_datagram(str(error.flaw), sender)
            # A well-formed message that is not authorized is acknowledged: to send it again would not help, and a
            # neighbor that forwards it for another node must not be given up.
            return not isinstance(error.flaw, Flaw)
        full = sender not in self.neighbors and len(self.neighbors) >= self._config.quotas.neighbors
        # Only a beacon may evict a neighbor, because only its sender can become a neighbor now.
        if full and not (isinstance(message, Beacon) and self._evict_for(address)):
            self._record.drop_datagram("neighbors_full", sender)
            return False
        layer = codec.layer
        self._note_address(sender, address, layer is Layer.DISCOVERY, to_group)
        self._record.receive(layer, message, sender, self.name, len(body))
        aged = message.age_by(waited_s) if waited_s else message
        if aged is None:
            self._record.drop(layer, LEASE_EXPIRED, sender, message)
        else:
            self._stack.on_message(self._record.time_s(), layer, sender, aged, self.name)
        if isinstance(message, Beacon) and sender in self.neighbors:
            self._on_beacon(sender, address, message)
        return True

    def _note_address(self, sender: NodeId, address: LinkAddress, beacon: bool, to_group: bool) -> None:
        self._addresses[sender] = address
        self._addresses.move_to_end(sender)
        if len(self._addresses) > MAX_SENDERS:
            self._addresses.popitem(last=False)
        if beacon and to_group:
            self._unicast_only.discard(sender)
        elif beacon and len(self._unicast_only) < MAX_SENDERS:
            self._unicast_only.add(sender)

    def _evict_for(self, address: LinkAddress) -> bool:
        """Evict an unproven neighbor for a node at an address; False if there is none."""
        now_s, discovery = self._record.time_s(), self._stack.discovery
        assert discovery is not None  # Discovery has found the neighbors.
        prefix, settings = self._adapter.scope_of(address).prefix, discovery.settings
        evicted = self._eviction.choose(prefix, now_s, settings.period_s, settings.missed)
        if evicted is None:
            return False
        self._record.drop_datagram("neighbor_replaced", evicted)
        self._stack.on_neighbor_failed(now_s, evicted, self.name, Failure.SILENT)
        return evicted not in self.neighbors

    def _on_beacon(self, sender: NodeId, address: LinkAddress, beacon: Beacon) -> None:
        discovery = self._stack.discovery
        assert discovery is not None  # Discovery has found this neighbor.
        prefix, period_s = self._adapter.scope_of(address).prefix, discovery.limit_period_s(beacon.period_s)
        self._eviction.on_beacon(sender, prefix, period_s, self._record.time_s())
        if self._measures:
            lost_s = self._link_layer.probe(sender, address)
            if lost_s is not None:
                self.on_probe(sender, lost_s)

    def on_acknowledged(self, context: Unicast) -> None:
        self._eviction.on_ack(context.target)
        for token in context.tokens:
            self._stack.on_sent(self._record.time_s(), context.layer, token, None)

    def on_given_up(self, target: NodeId, contexts: Sequence[Unicast]) -> None:
        # A message that a protocol sends again at once takes another path, if there is one.
        self.neighbors.pop(target, None)
        # First the failed messages are reported, then the lost link.
        for unicast in contexts:
            self._record.drop(unicast.layer, "unacknowledged", unicast.target, unicast.message)
            for token in unicast.tokens:
                self._stack.on_sent(self._record.time_s(), unicast.layer, token, Failure.UNREACHABLE)
        self._stack.on_neighbor_failed(self._record.time_s(), target, self.name, Failure.UNREACHABLE)

    def on_probe(self, target: NodeId, time_s: float) -> None:
        if target in self.neighbors and self._costs.observe(target, time_s):
            link = Link(target, self.name, self.cost_s(target))
            self._record.change_cost(link)
            self._stack.on_link_changed(self._record.time_s(), link)

    def on_drop(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        if reason == LinkFlaw.KEYED:
            text = self._adapter.format_address(self.address)
            self._log_limiter.warn(text, text, KEYED_NEARBY)
        self._record.drop_datagram(reason, peer, times)


def _make_transmission_recorder(record: NodeRecorder, interface: str) -> Callable[[Unicast, int], None]:
    """Make the function that records transmissions of unicasts. The link layer calls it instead of the interface,
    because sending calls nothing above."""
    send = record.send

    def on_transmission(unicast: Unicast, attempt: int) -> None:
        send(unicast.layer, unicast.message, unicast.target, interface, unicast.size_bytes, attempt)

    return on_transmission


async def resolve_all_peers(interfaces: Iterable[LiveInterface], cleanup: AsyncExitStack) -> None:
    """Resolve the peers of interfaces; after NAMES_S the rest continues in the background."""
    tasks = [asyncio.create_task(one.resolve_peers()) for one in interfaces]
    for task in tasks:
        cleanup.callback(task.cancel)
    await asyncio.wait(tasks, timeout=NAMES_S)
