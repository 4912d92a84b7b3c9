"""What a live node writes down: rows of the trace, as the simulator writes them, and counts."""

import asyncio
import logging
import time
from collections import Counter

import msgspec

from driftcast.model import Event, Failure, NodeId, Subscription, SubscriptionId
from driftcast.protocol import Fact, Link
from driftcast.trace import Kind, Row, Trace
from driftcast.wire import EventMessage, Layer, Message, carried

LOG = logging.getLogger("driftcast.live")

LINK_LAYER = "link"
"""The layer, in the trace, of what happens beneath discovery, routing and dissemination."""
BAD_ROWS_PER_S = 100
"""Of dropped datagrams only so many a second become rows, so that garbage cannot fill the disk; all are counted."""
UNTRACED = frozenset({"link_own"})
"""A group brings back one's own datagrams all the time; that is worth a count, not a row."""

_LAYERS = {layer: layer.name.lower() for layer in Layer}


class Record:
    """The trace and the counts of one node.

    Rows carry the wall clock, read once and carried on by the loop's clock: it never jumps back within a trace, and the
    traces of nodes on one machine can be joined.
    """

    def __init__(self, node: NodeId, trace: Trace) -> None:
        self.trace = trace
        self.counts: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._wall_offset_s = time.time() - self._loop.time()
        self._bad_second = 0
        self._bad_rows = 0

    def time_s(self) -> float:
        """Now, as rows have it."""
        return self._loop.time() + self._wall_offset_s

    def mark(self, kind: Kind) -> None:
        """The node starts or stops."""
        if self.trace.full:
            self._add(kind)

    def publish(self, event: Event) -> None:
        """A local application publishes, or a processor has made an event."""
        self.counts["published"] += 1
        if self.trace.deliveries:
            size_bytes = len(msgspec.msgpack.encode(event))
            self.trace.add_event(event, self.time_s(), size_bytes)
            self._add(Kind.PUBLISH, event=str(event.id), size_bytes=size_bytes)

    def subscribe(self, subscription: Subscription) -> None:
        """A local application subscribes, or a subscription stands again after a start."""
        if self.trace.deliveries:
            self._add(Kind.SUBSCRIBE, subscription=str(subscription.id))
            self.trace.add_subscription(subscription, self.time_s())

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """A subscription has ended."""
        if self.trace.deliveries:
            self._add(Kind.UNSUBSCRIBE, subscription=str(subscription))
            self.trace.end_subscription(subscription, self.time_s())

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """An event reaches a local application."""
        self.counts["delivered"] += 1
        if self.trace.deliveries:
            self._add(Kind.DELIVER, event=str(event.id), subscription=str(subscription), hops=hops)

    def send(
        self,
        layer: Layer,
        message: Message,
        peer: NodeId | None,
        interface: str,
        size_bytes: int,
        attempt: int = 1,
    ) -> None:
        """A transmission; attempts after the first are retries."""
        kind = Kind.SEND if attempt == 1 else Kind.RETRY
        self.counts["sent" if attempt == 1 else "retried"] += 1
        if self.trace.full:
            self._add_message(kind, layer, message, peer, interface, size_bytes)

    def receive(self, layer: Layer, message: Message, peer: NodeId, interface: str, size_bytes: int) -> None:
        """A reception, repetitions by retry excluded."""
        self.counts["received"] += 1
        if self.trace.full:
            self._add_message(Kind.RECEIVE, layer, message, peer, interface, size_bytes)

    def link(self, link: Link, lost: Failure | None) -> None:
        """Discovery has found a link, or lost it and why."""
        if self.trace.full:
            kind = Kind.LINK_UP if lost is None else Kind.LINK_DOWN
            self._add(kind, peer=link.neighbor, interface=link.interface, reason=lost)

    def link_changed(self, link: Link) -> None:
        """A link costs something else."""
        if self.trace.full:
            self._add("link_changed", peer=link.neighbor, interface=link.interface, value=link.cost_s)

    def note(self, layer: Layer, fact: Fact) -> None:
        """What a state machine notes."""
        if fact.kind == Kind.DROP:
            self.drops[fact.reason] += 1
        if self.trace.full:
            event = None if fact.event is None else str(fact.event)
            self._add(
                fact.kind, _LAYERS[layer], event=event, peer=fact.peer, reason=fact.reason or None, value=fact.value
            )

    def drop(self, layer: Layer, reason: str, peer: NodeId | None = None, message: Message | None = None) -> None:
        """The host drops something of a layer."""
        self.drops[reason] += 1
        if self.trace.full:
            name = None if message is None else type(message).__name__
            event = None if message is None else carried(message)[1]
            named = None if event is None else str(event)
            self._add(Kind.DROP, _LAYERS[layer], message=name, event=named, peer=peer, reason=reason)

    def bad_datagram(self, reason: str, peer: NodeId | None) -> None:
        """A datagram is dropped."""
        self.drops[reason] += 1
        if not self.trace.full or reason in UNTRACED:
            return
        second = int(self._loop.time())
        if second != self._bad_second:
            self._bad_second, self._bad_rows = second, 0
        self._bad_rows += 1
        if self._bad_rows <= BAD_ROWS_PER_S:
            self._add(Kind.DROP, LINK_LAYER, peer=peer, reason=reason)

    def flush(self) -> None:
        """Write the rows so far. A disk that fails ends the trace, not the node."""
        try:
            self.trace.flush()
        except OSError as error:
            self._give_up(error)

    def _add_message(
        self, kind: Kind, layer: Layer, message: Message, peer: NodeId | None, interface: str, size_bytes: int
    ) -> None:
        traffic, event = carried(message)
        self._keep(
            Row(
                time_s=self.time_s(),
                node=self._node,
                layer=_LAYERS[layer],
                kind=kind,
                message=type(message).__name__,
                traffic=traffic.name.lower(),
                event=None if event is None else str(event),
                peer=peer,
                interface=interface,
                size_bytes=size_bytes,
                hops=message.hops if isinstance(message, EventMessage) else None,
            )
        )

    def _add(
        self,
        kind: str,
        layer: str = _LAYERS[Layer.DISSEMINATION],
        *,
        message: str | None = None,
        event: str | None = None,
        subscription: str | None = None,
        peer: NodeId | None = None,
        interface: str | None = None,
        size_bytes: int | None = None,
        hops: int | None = None,
        reason: str | None = None,
        value: float | None = None,
    ) -> None:
        self._keep(
            Row(
                time_s=self.time_s(),
                node=self._node,
                layer=layer,
                kind=str(kind),
                message=message,
                event=event,
                subscription=subscription,
                peer=peer,
                interface=interface,
                size_bytes=size_bytes,
                hops=hops,
                reason=reason,
                value=value,
            )
        )

    def _keep(self, row: Row) -> None:
        try:
            self.trace.add(row)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        LOG.error("the trace ends here: %s", error.strerror or error)
        self.trace.full = self.trace.deliveries = False
        self.drops["trace_failed"] += 1
