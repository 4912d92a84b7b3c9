"""The recorder of a live node: trace rows, as the simulator writes them, counters, delays, and the event feed."""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

from carrycast.core.model import Event, EventId, Failure, NodeId, ProcessorId, Subscription, SubscriptionId
from carrycast.core.protocol import CUSTODY, Fact, Gap, Link, RetentionAccounts
from carrycast.core.wire import Layer, Message
from carrycast.node.event_feed import EventFeed
from carrycast.trace import (
    Kind,
    Row,
    Trace,
    Transfer,
    delivery_row,
    drop_row,
    event_size_bytes,
    fact_row,
    lifecycle_row,
    link_change_row,
    link_row,
    publication_row,
    refusal_row,
    subscription_row,
    unsubscription_row,
)

LOG = logging.getLogger("carrycast.node")

BAD_ROWS_PER_S = 100
"""The most trace rows of dropped datagrams per second, so that garbage cannot fill the disk. All drops are counted."""
UNTRACED = frozenset({"link_own"})
"""A multicast group returns a node's own datagrams all the time; they are counted and not traced."""
FOREIGN = frozenset(
    {"link_truncated", "link_bad_magic", "link_version", "link_kind", "link_sender", "link_body", "link_unproven"}
    | {"frame_other_protocol", "frame_version"}
)
"""Drops of datagrams that come from outside this network, or from another version of carrycast."""
LOG_INTERVAL_S = 60.0
"""The least time between two log lines about foreign datagrams with the same reason."""

DELAY_BOUNDS_S = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
"""Buckets from one hop on a fast link to an hour of store-carry-forward."""

wall_s = time.time
"""The wall clock, which a node reads once, at its start."""


class DelayHistogram:
    """A histogram of the delivery delays since the start of a node."""

    def __init__(self) -> None:
        self._counts = [0] * (len(DELAY_BOUNDS_S) + 1)
        self.count = 0
        self.sum_s = 0.0

    def add(self, delay_s: float) -> None:
        """Add a delay. A delay that is negative because clocks differ counts as zero."""
        delay_s = max(0.0, delay_s)
        self._counts[bisect_left(DELAY_BOUNDS_S, delay_s)] += 1
        self.count += 1
        self.sum_s += delay_s

    def accumulate(self) -> Iterator[tuple[float | None, int]]:
        """Yield each bound and how many delays are within it; the last bound is None (infinite)."""
        total = 0
        for bound, count in zip((*DELAY_BOUNDS_S, None), self._counts, strict=True):
            total += count
            yield bound, total


class NodeRecorder:
    """The trace and the counters of one node.

    The times of rows are wall-clock times. The wall clock is read once, at the start, and advanced by the monotonic
    clock, so that times never go back within a trace, and the traces of nodes on one machine can be joined.
    """

    def __init__(self, node: NodeId, trace: Trace) -> None:
        self.trace = trace
        self.counts: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.buffered = 0
        """Events in the protocol's buffer, as far as the protocol notes them."""
        self.on_gap: Callable[[SubscriptionId, str], None] = lambda *_: None
        """Called when the results of a subscription do not continue where they were, with the reason."""
        self.retention_accounts = RetentionAccounts(node)
        """The accounts of the events that the protocol keeps."""
        self.feed = EventFeed()
        self.delays = DelayHistogram()
        self._node = node
        self._loop = asyncio.get_running_loop()
        # `time.monotonic` is the clock of asyncio's loops; calling it directly saves a call.
        self._wall_offset_s = wall_s() - time.monotonic()
        self._quiet_until_s: dict[str, float] = {}
        """By reason of a drop: until when it is not logged again."""
        self._bad_second = 0
        self._bad_rows = 0

    def time_s(self) -> float:
        """Return the present time, as in trace rows."""
        return time.monotonic() + self._wall_offset_s

    def mark(self, kind: Kind) -> None:
        """The node starts or stops."""
        if self.trace.full:
            self._add_row(lifecycle_row(self.time_s(), self._node, kind))

    def publish(self, event: Event, processor: ProcessorId | None = None) -> None:
        """A local application or a processor published an event."""
        self.counts["published"] += 1
        if self.feed.is_watched:
            self.feed.publish(self.time_s(), event, processor)
        if self.trace.deliveries:
            now_s, size_bytes = self.time_s(), event_size_bytes(event)
            self.trace.add_event(event, now_s, size_bytes, processor=processor)
            self._add_row(publication_row(now_s, self._node, event.id, size_bytes))

    def subscribe(self, subscription: Subscription) -> None:
        """A local application subscribed, or a subscription was restored."""
        self.feed.subscribe(subscription)
        if self.trace.deliveries:
            now_s = self.time_s()
            self.trace.add_subscription(subscription, now_s)
            self._add_row(subscription_row(now_s, self._node, subscription.id))

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """A subscription has ended."""
        self.feed.unsubscribe(subscription)
        if self.trace.deliveries:
            now_s = self.time_s()
            self.trace.end_subscription(subscription, now_s)
            self._add_row(unsubscription_row(now_s, self._node, subscription))

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """An event was delivered to a local application."""
        self.counts["delivered"] += 1
        self.delays.add(time.time() - event.time_s)
        if self.feed.is_watched:
            self.feed.note(self.time_s(), Kind.DELIVER, event.id)
        if self.trace.deliveries:
            self._add_row(delivery_row(self.time_s(), self._node, subscription, event.id, hops))

    def send(
        self,
        layer: Layer,
        message: Message,
        peer: NodeId | None,
        interface: str,
        size_bytes: int,
        attempt: int = 1,
    ) -> None:
        """A message was transmitted; attempts after the first are retries."""
        self.counts["sent" if attempt == 1 else "retried"] += 1
        # Beacons are not counted, as in the player of a trace.
        self.feed.frames += layer is not Layer.DISCOVERY
        if self.trace.full:
            transfer = Transfer(layer, message, interface, size_bytes)
            self._add_row(transfer.send_row(self.time_s(), self._node, peer, attempt))

    def receive(self, layer: Layer, message: Message, peer: NodeId, interface: str, size_bytes: int) -> None:
        """A message was received; duplicates by retransmission are not recorded."""
        self.counts["received"] += 1
        if self.feed.is_watched:
            self.feed.receive(self.time_s(), message, peer)
        if self.trace.full:
            [row] = Transfer(layer, message, interface, size_bytes).receive_rows(self.time_s(), [self._node], peer)
            self._add_row(row)

    def change_link(self, link: Link, lost: Failure | None) -> None:
        """Discovery has found a link, or lost it for a reason."""
        fields = {"neighbor": link.neighbor, "interface": link.interface} | ({"cause": str(lost)} if lost else {})
        LOG.info("link up" if lost is None else "link down", extra={"fields": fields})
        if self.trace.full:
            self._add_row(link_row(self.time_s(), self._node, link, lost))

    def change_cost(self, link: Link) -> None:
        """The cost of a link has changed."""
        if self.trace.full:
            self._add_row(link_change_row(self.time_s(), self._node, link))

    def note(self, layer: Layer, fact: Fact) -> None:
        """Record a fact that a state machine notes, or that the host notes for it."""
        if fact.kind in (Kind.DROP, Kind.PROCESSOR_ERROR):
            # The text after a colon differs every time, so it is not part of the counter's name.
            self.drops[fact.reason.partition(":")[0]] += 1
        if isinstance(fact, Gap):
            self.counts["gaps"] += 1
            fields = {"subscription": str(fact.subscription), "reason": fact.reason}
            LOG.warning("the results of a subscription do not continue where they were", extra={"fields": fields})
            self.on_gap(fact.subscription, fact.reason)
        if fact.event is not None:
            self._account(fact.kind, fact.event, fact.reason)
        if fact.kind in (Kind.STORE, Kind.EVICT, Kind.DROP):
            self.feed.note(self.time_s(), fact.kind, fact.event, fact.reason or None)
        if self.trace.full:
            self._add_row(fact_row(self.time_s(), self._node, layer, fact))

    def _account(self, kind: str, event: EventId, reason: str) -> None:
        flaw = None
        if kind == Kind.STORE:
            self.buffered += 1
            self.retention_accounts.on_store(event)
        elif kind == Kind.EVICT:
            self.buffered -= 1
            flaw = self.retention_accounts.on_evict(event, reason)
        elif kind == Kind.DROP:
            flaw = self.retention_accounts.on_drop(event, reason)
        elif kind == CUSTODY:
            self.retention_accounts.on_custody(event)
        if flaw is not None:
            LOG.error("a delivery guarantee is broken: %s", flaw)
            self.drops["promise_broken"] += 1

    def drop(self, layer: Layer, reason: str, peer: NodeId | None = None, message: Message | None = None) -> None:
        """The host has dropped a message of a layer."""
        self.drops[reason] += 1
        self.feed.drop(self.time_s(), reason, message)
        if self.trace.full:
            self._add_row(drop_row(self.time_s(), self._node, layer, reason, peer, message))

    def drop_datagram(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """One or several datagrams were dropped; they share one trace row."""
        self.drops[reason] += times
        if reason in FOREIGN:
            self._log_foreign(reason, peer)
        if reason not in UNTRACED:
            self.feed.drop(self.time_s(), reason)
        if not self.trace.full or reason in UNTRACED:
            return
        second = int(self._loop.time())
        if second != self._bad_second:
            self._bad_second, self._bad_rows = second, 0
        self._bad_rows += 1
        if self._bad_rows <= BAD_ROWS_PER_S:
            self._add_row(refusal_row(self.time_s(), self._node, reason, peer))

    def _log_foreign(self, reason: str, peer: NodeId | None) -> None:
        """Log foreign datagrams once a minute for each reason."""
        now_s = time.monotonic()
        if now_s >= self._quiet_until_s.get(reason, 0.0):
            self._quiet_until_s[reason] = now_s + LOG_INTERVAL_S
            fields = {"reason": reason, "peer": peer, "so_far": self.drops[reason]}
            LOG.warning("datagrams from outside the network are rejected", extra={"fields": fields})

    def flush(self) -> None:
        """Write the rows so far. A disk error ends the trace, not the node."""
        try:
            self.trace.flush()
        except OSError as error:
            self.end_trace(error.strerror or error)

    def _add_row(self, row: Row) -> None:
        try:
            self.trace.add(row)
        except OSError as error:
            self.end_trace(error.strerror or error)

    def end_trace(self, reason: object) -> None:
        """End a trace that cannot be written, so that it does not grow in memory."""
        LOG.error("the trace ends here: %s", reason)
        self.trace.full = self.trace.deliveries = False
        self.drops["trace_failed"] += 1
