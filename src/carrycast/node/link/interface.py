"""One of a node's ways to reach others: its socket, its link layer, and who is found over it at what cost."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from carrycast.core.model import Failure, NodeId
from carrycast.core.protocol import Beacon, Link, Stack, Token
from carrycast.core.wire import LEASE_EXPIRED, Codec, DecodeError, Flaw, Layer, Message, layer_of
from carrycast.errors import WorkError
from carrycast.node.link.adapter import Transport
from carrycast.node.link.config import InterfaceConfig
from carrycast.node.link.cost import LinkCosts
from carrycast.node.link.frame import MAX_SENDERS, LinkFlaw
from carrycast.node.link.link_layer import Exchange, ExchangeUser, Refused
from carrycast.node.link.neighbor_eviction import NeighborPlaces
from carrycast.node.link.rate_limit import Notices, Quota
from carrycast.node.link.socket_address import Address, format_address, resolve
from carrycast.node.recorder import LOG, NodeRecorder

KEYED_NEARBY = "a node with keys is in reach, and this one has none: they stay strangers"

RESOLVE_S = 5.0
"""Between two attempts to find a peer by its name."""
FULL_SHARE = 0.75
"""Of the queue: more than that is not left to one neighbor."""
BUSY_SHARE = 0.25
"""Of the queue. Publishers are held up then, and three quarters are left for what follows from what they published."""


class Unicast(NamedTuple):
    """A unicast on its way."""

    layer: Layer
    message: Message
    target: NodeId
    size_bytes: int
    tokens: tuple[Token, ...]


class Understood(NamedTuple):
    """A message that has arrived."""

    layer: Layer
    message: Message
    size_bytes: int


WhenKept: TypeAlias = Callable[[Callable[[], None]], None]
"""Does something when all that was written so far is kept; never, if it cannot be."""


class LiveInterface(ExchangeUser[Unicast, Understood]):
    """An interface at work. What it remembers of other nodes is bounded, whatever is sent to it."""

    def __init__(
        self,
        node: NodeId,
        config: InterfaceConfig,
        transport: Transport,
        codecs: Mapping[Layer, Codec],
        record: NodeRecorder,
        stack: Stack,
        when_kept: WhenKept,
    ) -> None:
        self.name = config.name
        self.peers: dict[Address, None] = {}
        self.neighbors: dict[NodeId, None] = {}
        """Who has a link over this interface, as far as discovery can tell."""
        self._config = config
        self._transport = transport
        self._codecs: Mapping[int, Codec] = dict(codecs.items())
        self._record = record
        self._stack = stack
        self._when_kept = when_kept
        self._resolving: list[asyncio.Task[None]] = []
        self._exchange: Exchange[Unicast, Understood] = Exchange(node, transport, config.link, self._understood, self)
        self._quota = Quota(config.quotas, asyncio.get_running_loop().call_soon)
        self._places = NeighborPlaces()
        self._notices = Notices()
        self._measures = config.link.cost == "measured"
        self._costs = LinkCosts(config.link.cost_s)
        self._addresses: OrderedDict[NodeId, Address] = OrderedDict()
        self._apart: set[NodeId] = set()
        """Neighbors whose beacons come to this node itself: a datagram to the group may not reach them."""

    async def resolve_peers(self) -> None:
        """Look up the addresses of the peers in the configuration; those that are not found, again and again."""
        for peer in self._config.peers:
            try:
                self.peers[await resolve(peer, self._transport.family)] = None
            except WorkError as error:
                LOG.warning("%s; it is tried again", error, extra={"fields": {"interface": self.name}})
                self._resolving.append(asyncio.create_task(self._resolve_later(peer)))

    async def _resolve_later(self, peer: Address) -> None:
        """A name may not be known yet, as before the network is there."""
        while True:
            await asyncio.sleep(RESOLVE_S)
            with suppress(WorkError):
                self.peers[await resolve(peer, self._transport.family)] = None
                LOG.info("a peer is found", extra={"fields": {"peer": format_address(peer), "interface": self.name}})
                return

    def open(self) -> None:
        """Start to hear."""
        self._exchange.open()

    def close(self) -> None:
        """Stop; nothing is heard, sent or told from now on. One that was not opened may be closed."""
        for task in self._resolving:
            task.cancel()
        self._exchange.close()

    @property
    def address(self) -> Address:
        """Where the node is heard over this interface."""
        return self._transport.address

    @property
    def waiting(self) -> int:
        """How many messages to neighbors have not arrived yet."""
        return self._exchange.waiting

    @property
    def busy(self) -> bool:
        """Whether so much waits that nothing new should be added: what neighbors ask for needs room as well.

        One neighbor that takes its time, or only says so, holds up nobody while others take what they get: what waits
        for it alone counts only when there is little room left."""
        waiting, queue = self._exchange.waiting, self._config.link.queue
        if waiting < queue * BUSY_SHARE:
            return False
        if len(self.neighbors) < 2 or waiting >= queue * FULL_SHARE:
            return True
        return waiting - self._exchange.longest >= queue * BUSY_SHARE

    def leads_to(self, node: NodeId) -> bool:
        """Whether a node was ever heard over this interface, so that it can be sent to."""
        return node in self._addresses

    def cost_s(self, neighbor: NodeId) -> float:
        """The cost of a link."""
        return self._costs.cost_s(neighbor)

    def linked(self, neighbor: NodeId, up: bool) -> None:
        """Discovery has found or lost a link."""
        if up:
            self.neighbors[neighbor] = None
        else:
            self.neighbors.pop(neighbor, None)
            self._places.forget(neighbor)
            self._apart.discard(neighbor)
            self._costs.forget(neighbor)
            self._exchange.forget(neighbor)

    def send(self, unicast: Unicast, body: bytes) -> Failure | None:
        """To one node; why not, if it cannot be tried."""
        address = self._addresses.get(unicast.target)
        if address is None:
            return Failure.OUT_OF_REACH
        accepted = self._exchange.send(unicast.target, address, body, unicast)
        return None if accepted else Failure.QUEUE_FULL

    def broadcast(self, layer: Layer, message: Message, body: bytes) -> None:
        """To everybody in reach."""
        self._record.send(layer, message, None, self.name, len(body))
        self._exchange.broadcast(self._everybody(), body)

    def _everybody(self) -> list[Address]:
        """Where a broadcast goes: to the group if there is one, to the given peers, to each neighbor apart from it."""
        group = self._transport.group
        everybody = dict(self.peers) if group is None else {group: None, **self.peers}
        for neighbor in self.neighbors:
            address = self._addresses.get(neighbor)
            if address is not None and neighbor in self._apart:
                everybody[address] = None
        return list(everybody)

    def _understood(self, sender: NodeId, body: bytes) -> Understood | Refused | None:
        if not self._quota.admit(sender):
            self._record.bad_datagram("neighbor_over_quota", sender)
            return None
        try:
            codec = self._codecs.get(layer_of(body))
            if codec is None:
                raise DecodeError(Flaw.LAYER)
            message = codec.decode(body)
            full = sender not in self.neighbors and len(self.neighbors) >= self._quota.neighbors
            # Only who could become a neighbor now makes another leave.
            if full and not (isinstance(message, Beacon) and self._make_room(sender)):
                self._record.bad_datagram("neighbors_full", sender)
                return None
            return Understood(codec.layer, message, len(body))
        except DecodeError as error:
            self._record.bad_datagram(str(error.flaw), sender)
            return None if isinstance(error.flaw, Flaw) else Refused.FOR_GOOD

    def _make_room(self, newcomer: NodeId) -> bool:
        """Whether a neighbor of which nothing more was heard has made room."""
        now_s, discovery = self._record.time_s(), self._stack.discovery
        assert discovery is not None  # It has found those who are there.
        host, settings = self._exchange.address(newcomer)[0], discovery.settings
        replaced = self._places.replaceable(host, now_s, settings.period_s, settings.missed)
        if replaced is None:
            return False
        self._record.bad_datagram("neighbor_replaced", replaced)
        self._stack.on_neighbor_failed(now_s, replaced, self.name, Failure.SILENT)
        return replaced not in self.neighbors

    # What the link layer tells.

    def heard(self, sender: NodeId, address: Address, to_group: bool, meaning: Understood, waited_s: float) -> None:
        layer, message, size_bytes = meaning
        self._addresses[sender] = address
        self._addresses.move_to_end(sender)
        if len(self._addresses) > MAX_SENDERS:
            self._addresses.popitem(last=False)
        beacon = layer is Layer.DISCOVERY
        if beacon and to_group:
            self._apart.discard(sender)
        elif beacon and len(self._apart) < MAX_SENDERS:
            self._apart.add(sender)
        self._record.receive(layer, message, sender, self.name, size_bytes)
        aged = message.age_by(waited_s) if waited_s else message
        if aged is None:
            self._record.drop(layer, LEASE_EXPIRED, sender, message)
        else:
            self._stack.on_message(self._record.time_s(), layer, sender, aged, self.name)
        if isinstance(message, Beacon) and sender in self.neighbors:
            self._note_beacon(sender, address, message)

    def _note_beacon(self, sender: NodeId, address: Address, beacon: Beacon) -> None:
        discovery = self._stack.discovery
        assert discovery is not None  # It has found this neighbor.
        self._places.on_beacon(sender, address[0], discovery.believed_s(beacon.period_s), self._record.time_s())
        if self._measures:
            self._exchange.probe(sender, address)

    def when_kept(self, then: Callable[[], None]) -> None:
        self._when_kept(then)

    def transmitted(self, unicast: Unicast, attempt: int) -> None:
        self._record.send(unicast.layer, unicast.message, unicast.target, self.name, unicast.size_bytes, attempt)

    def acknowledged(self, unicast: Unicast) -> None:
        self._places.on_answer(unicast.target)
        for token in unicast.tokens:
            self._stack.on_sent(self._record.time_s(), unicast.layer, token, None)

    def given_up(self, target: NodeId, unicasts: Sequence[Unicast]) -> None:
        # What a protocol sends again at once takes another way, if there is one.
        self.neighbors.pop(target, None)
        # First what failed, then the link: who sends again at once knows of it when the link is said to be gone.
        for unicast in unicasts:
            self._record.drop(unicast.layer, "unacknowledged", unicast.target, unicast.message)
            for token in unicast.tokens:
                self._stack.on_sent(self._record.time_s(), unicast.layer, token, Failure.UNREACHABLE)
        self._stack.on_neighbor_failed(self._record.time_s(), target, self.name, Failure.UNREACHABLE)

    def measured(self, target: NodeId, time_s: float) -> None:
        if target in self.neighbors and self._costs.observe(target, time_s):
            link = Link(target, self.name, self.cost_s(target))
            self._record.link_changed(link)
            self._stack.on_link_changed(self._record.time_s(), link)

    def dropped(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        if reason == LinkFlaw.KEYED:
            self._notices.tell(self.address, KEYED_NEARBY)
        self._record.bad_datagram(reason, peer, times)
