"""What a live node writes down: rows of the trace, as the simulator writes them, and counts."""

import asyncio
import logging
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator

from carrycast.core.model import Event, EventId, Failure, NodeId, ProcessorId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Gap, Link
from carrycast.core.protocol.retention_accounting import CUSTODY, RetentionAccounts
from carrycast.core.wire import Layer, Message
from carrycast.node.event_feed import EventFeed
from carrycast.trace import Kind, Row, Trace, rows

LOG = logging.getLogger("carrycast.node")

BAD_ROWS_PER_S = 100
"""Of dropped datagrams only so many a second become rows, so that garbage cannot fill the disk; all are counted."""
UNTRACED = frozenset({"link_own"})
"""A group brings back one's own datagrams all the time; that is worth a count, not a row."""


STRANGE = frozenset(
    {"link_truncated", "link_bad_magic", "link_version", "link_kind", "link_sender", "link_body", "link_unproven"}
    | {"frame_other_protocol", "frame_version"}
)
"""Drops that tell of somebody who does not belong here, or of another carrycast."""
COMPLAIN_S = 60.0

BOUNDS_S = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
"""From a hop on a fast link to an hour with a carrier."""

wall_s = time.time
"""The time of day, as a node reads it once, at its start."""


class DelayHistogram:
    """Of one start of a node."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.count = 0
        self.sum_s = 0.0

    def add(self, delay_s: float) -> None:
        """A delivery. Where clocks differ it may seem to be earlier than its publication, and counts as at once."""
        delay_s = max(0.0, delay_s)
        self._counts[bisect_left(BOUNDS_S, delay_s)] += 1
        self.count += 1
        self.sum_s += delay_s

    def cumulative(self) -> Iterator[tuple[float | None, int]]:
        """How many took at most so long; None is any time."""
        total = 0
        for bound, count in zip((*BOUNDS_S, None), self._counts, strict=True):
            total += count
            yield bound, total


class NodeRecorder:
    """The trace and the counts of one node.

    Rows carry the wall clock, read once and carried on by the loop's clock: it never jumps back within a trace, and the
    traces of nodes on one machine can be joined.
    """

    def __init__(self, node: NodeId, trace: Trace) -> None:
        self.trace = trace
        self.counts: Counter[str] = Counter()
        self.drops: Counter[str] = Counter()
        self.held = 0
        """Events that the protocol keeps for others, as far as it says so."""
        self.on_gap: Callable[[SubscriptionId, str], None] = lambda *_: None
        """Told that the results of a subscription do not go on where they were, and why."""
        self.retention_accounts = RetentionAccounts(node)
        """The books of what the protocol keeps."""
        self.feed = EventFeed()
        self.delays = DelayHistogram()
        self._node = node
        self._loop = asyncio.get_running_loop()
        # The clock of every loop of asyncio, without the call in between.
        self._wall_offset_s = wall_s() - time.monotonic()
        self._complaints: dict[str, float] = {}
        """Until when nothing more is said of a reason."""
        self._bad_second = 0
        self._bad_rows = 0

    def time_s(self) -> float:
        """Now, as rows have it."""
        return time.monotonic() + self._wall_offset_s

    def mark(self, kind: Kind) -> None:
        """The node starts or stops."""
        if self.trace.full:
            self._keep(rows.lived(self.time_s(), self._node, kind))

    def publish(self, event: Event, processor: ProcessorId | None = None) -> None:
        """A local application publishes, or a processor has made an event."""
        self.counts["published"] += 1
        if self.feed.watched:
            self.feed.publish(self.time_s(), event, processor)
        if self.trace.deliveries:
            now_s, size_bytes = self.time_s(), rows.event_bytes(event)
            self.trace.add_event(event, now_s, size_bytes, processor=processor)
            self._keep(rows.published(now_s, self._node, event.id, size_bytes))

    def subscribe(self, subscription: Subscription) -> None:
        """A local application subscribes, or a subscription stands again after a start."""
        self.feed.subscribe(subscription)
        if self.trace.deliveries:
            now_s = self.time_s()
            self.trace.add_subscription(subscription, now_s)
            self._keep(rows.subscribed(now_s, self._node, subscription.id))

    def unsubscribe(self, subscription: SubscriptionId) -> None:
        """A subscription has ended."""
        self.feed.unsubscribe(subscription)
        if self.trace.deliveries:
            now_s = self.time_s()
            self.trace.end_subscription(subscription, now_s)
            self._keep(rows.unsubscribed(now_s, self._node, subscription))

    def deliver(self, subscription: SubscriptionId, event: Event, hops: int) -> None:
        """An event reaches a local application."""
        self.counts["delivered"] += 1
        self.delays.add(time.time() - event.time_s)
        if self.feed.watched:
            self.feed.note(self.time_s(), Kind.DELIVER, event.id)
        if self.trace.deliveries:
            self._keep(rows.delivered(self.time_s(), self._node, subscription, event.id, hops))

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
        self.counts["sent" if attempt == 1 else "retried"] += 1
        # Beacons are no work, as in the player of a trace.
        self.feed.frames += layer is not Layer.DISCOVERY
        if self.trace.full:
            transfer = rows.Transfer(layer, message, interface, size_bytes)
            self._keep(transfer.sent(self.time_s(), self._node, peer, attempt))

    def receive(self, layer: Layer, message: Message, peer: NodeId, interface: str, size_bytes: int) -> None:
        """A reception, repetitions by retry excluded."""
        self.counts["received"] += 1
        if self.feed.watched:
            self.feed.receive(self.time_s(), message, peer)
        if self.trace.full:
            [row] = rows.Transfer(layer, message, interface, size_bytes).received(self.time_s(), [self._node], peer)
            self._keep(row)

    def link(self, link: Link, lost: Failure | None) -> None:
        """Discovery has found a link, or lost it and why."""
        told = {"neighbor": link.neighbor, "interface": link.interface} | ({"cause": str(lost)} if lost else {})
        LOG.info("link up" if lost is None else "link down", extra={"fields": told})
        if self.trace.full:
            self._keep(rows.linked(self.time_s(), self._node, link, lost))

    def link_changed(self, link: Link) -> None:
        """A link costs something else."""
        if self.trace.full:
            self._keep(rows.link_changed(self.time_s(), self._node, link))

    def note(self, layer: Layer, fact: Fact) -> None:
        """What a state machine notes, or the host about one."""
        if fact.kind in (Kind.DROP, Kind.PROCESSOR_ERROR):
            # What follows a colon is for people, and different every time.
            self.drops[fact.reason.partition(":")[0]] += 1
        if isinstance(fact, Gap):
            self.counts["gaps"] += 1
            told = {"subscription": str(fact.subscription), "reason": fact.reason}
            LOG.warning("the results of a subscription do not go on where they were", extra={"fields": told})
            self.on_gap(fact.subscription, fact.reason)
        if fact.event is not None:
            self._book(fact.kind, fact.event, fact.reason)
        if fact.kind in (Kind.STORE, Kind.EVICT, Kind.DROP):
            self.feed.note(self.time_s(), fact.kind, fact.event, fact.reason or None)
        if self.trace.full:
            self._keep(rows.noted(self.time_s(), self._node, layer, fact))

    def _book(self, kind: str, event: EventId, reason: str) -> None:
        flaw = None
        if kind == Kind.STORE:
            self.held += 1
            self.retention_accounts.on_store(event)
        elif kind == Kind.EVICT:
            self.held -= 1
            flaw = self.retention_accounts.on_evict(event, reason)
        elif kind == Kind.DROP:
            flaw = self.retention_accounts.on_drop(event, reason)
        elif kind == CUSTODY:
            self.retention_accounts.on_custody(event)
        if flaw is not None:
            LOG.error("a promise is broken: %s", flaw)
            self.drops["promise_broken"] += 1

    def drop(self, layer: Layer, reason: str, peer: NodeId | None = None, message: Message | None = None) -> None:
        """The host drops something of a layer."""
        self.drops[reason] += 1
        self.feed.drop(self.time_s(), reason, message)
        if self.trace.full:
            self._keep(rows.dropped(self.time_s(), self._node, layer, reason, peer, message))

    def bad_datagram(self, reason: str, peer: NodeId | None, times: int = 1) -> None:
        """A datagram is dropped, or several, of which one row tells."""
        self.drops[reason] += times
        if reason in STRANGE:
            self._complain(reason, peer)
        if reason not in UNTRACED:
            self.feed.drop(self.time_s(), reason)
        if not self.trace.full or reason in UNTRACED:
            return
        second = int(self._loop.time())
        if second != self._bad_second:
            self._bad_second, self._bad_rows = second, 0
        self._bad_rows += 1
        if self._bad_rows <= BAD_ROWS_PER_S:
            self._keep(rows.refused(self.time_s(), self._node, reason, peer))

    def _complain(self, reason: str, peer: NodeId | None) -> None:
        """Of strangers the log says so once a minute for each reason."""
        now_s = time.monotonic()
        if now_s >= self._complaints.get(reason, 0.0):
            self._complaints[reason] = now_s + COMPLAIN_S
            told = {"reason": reason, "peer": peer, "so_far": self.drops[reason]}
            LOG.warning("datagrams of a stranger are refused", extra={"fields": told})

    def flush(self) -> None:
        """Write the rows so far. A disk that fails ends the trace, not the node."""
        try:
            self.trace.flush()
        except OSError as error:
            self.give_up(error.strerror or error)

    def _keep(self, row: Row) -> None:
        try:
            self.trace.add(row)
        except OSError as error:
            self.give_up(error.strerror or error)

    def give_up(self, reason: object) -> None:
        """The trace cannot be written: it ends, so that it does not grow in memory instead."""
        LOG.error("the trace ends here: %s", reason)
        self.trace.full = self.trace.deliveries = False
        self.drops["trace_failed"] += 1
