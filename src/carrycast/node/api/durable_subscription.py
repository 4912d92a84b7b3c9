"""A durable (named) subscription: its backlog, its present consumer, and what the consumer has acknowledged.

An event is written to the backlog before it is delivered. It stays there until the consumer acknowledges it, and is
delivered again, marked as redelivered, to the next consumer if the last one disconnected without acknowledging it. At
most PREFETCH unacknowledged events are with a consumer at a time, and no more bytes than its connection takes; the
others stay in the store, so that a slow consumer costs no memory.
"""

from collections.abc import Callable
from math import inf
from typing import NamedTuple, Protocol

from carrycast.core.model import Event, SubscriptionId
from carrycast.core.wire import LEASE_EXPIRED, Layer
from carrycast.errors import WorkError
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.storage import Backlog, GroupCommit, QueuedEvent, UnreadableEvent

PREFETCH = 512
"""Events that a consumer may have received and not acknowledged."""


class LocalDelivery(NamedTuple):
    """An event as a consumer receives it. Without a position there is nothing to acknowledge."""

    event: Event
    hops: int
    position: int | None = None
    redelivered: bool = False
    """Whether it may have been delivered before."""
    waited_s: float = 0.0
    """The time since its arrival at this node, by which its lease is shorter."""
    in_store: bool = False
    """Whether the protocol holds the event anyway, so that queueing it costs no memory."""


class FlowControl(Protocol):
    """How much a connection takes. All durable subscriptions of one connection share it."""

    @property
    def room_bytes(self) -> int:
        """How much may be delivered. While there is any room, one event of any size may be."""

    def reserve(self, length: int) -> None:
        """An event of this size will be delivered when it is committed."""

    def release(self, length: int) -> None:
        """It was delivered, or will never be."""

    def when_writable(self, then: Callable[[], None]) -> None:
        """Call this once, later, when there is room."""


class Consumer(NamedTuple):
    """The receiver of a subscription's events. If it does not acknowledge, an event is settled when it was
    delivered."""

    deliver: Callable[[SubscriptionId, LocalDelivery], None]
    acknowledges: bool = False
    prefetch: int | None = None
    """How many unacknowledged events it takes, if not PREFETCH."""
    flow: FlowControl | None = None
    """How many bytes it takes; None for any number."""
    on_ended: Callable[[SubscriptionId], None] | None = None
    """Called when the subscription ends by itself."""
    on_history: Callable[[SubscriptionId, bool], None] | None = None
    """Called after the last event of the history, with whether the history is complete."""
    on_gap: Callable[[SubscriptionId, str], None] | None = None
    """Called when results of a processor do not continue where they were, with the reason."""


class DurableSubscription:
    """The backlog of one named subscription and its present consumer, if there is one."""

    def __init__(self, id: SubscriptionId, backlog: Backlog, group_commit: GroupCommit, recorder: NodeRecorder) -> None:
        self._id = id
        self._backlog = backlog
        self._group_commit = group_commit
        self._recorder = recorder
        self.consumer: Consumer | None = None
        self._delivered = 0
        """The position up to which everything was delivered to the present consumer."""
        self._unacknowledged: dict[int, None] = {}
        self._unreadable_logged = False
        self._history: tuple[int, bool] | None = None
        """The position of the last event of the history, and whether the history is complete."""
        self._history_reported = False

    def attach(self, consumer: Consumer | None) -> None:
        """Deliver to this consumer from now on, or to none."""
        self.consumer = consumer
        self._delivered = 0
        self._unacknowledged.clear()
        self._history_reported = False

    def close_history(self, complete: bool) -> None:
        """All events so far are the history, or a part of it. This is reported after the consumer has received them."""
        self._history, self._history_reported = (self._backlog.newest, complete), False
        self._report_history()

    def _report_history(self) -> None:
        consumer, history = self.consumer, self._history
        if self._history_reported or history is None or consumer is None or consumer.on_history is None:
            return
        position, complete = history
        if self._delivered >= position:
            self._history_reported, report = True, consumer.on_history
            self._group_commit.when_committed(
                lambda error: report(self._id, complete) if consumer is self.consumer else None
            )

    def on_event(self, event: Event, hops: int) -> bool:
        """An event has arrived; False if it is a duplicate. A WorkError if it could not be written."""
        caught_up = self.consumer is not None and self._delivered == self._backlog.newest and self._credit > 0
        at_once = caught_up and self._room_bytes > 0
        queued = self._backlog.add(event, hops, self._recorder.time_s(), delivered=at_once)
        if queued is None:
            return False
        if self._backlog.is_full:
            self.remove_excess()
        self._group_commit.when_committed(self._on_committed)
        if at_once:
            self._deliver(queued)
        elif caught_up:
            self.deliver_backlog()  # As soon as the connection is writable.
        return True

    def deliver_backlog(self) -> None:
        """Deliver queued events, as many as the consumer takes."""
        while self.consumer is not None and self._credit > 0 and self._delivered < self._backlog.newest:
            room_bytes = self._room_bytes
            if room_bytes <= 0:
                assert self.consumer.flow is not None
                self.consumer.flow.when_writable(self.deliver_backlog)
                return
            try:
                found = self._backlog.take_after(self._delivered, self._credit, room_bytes)
                if not found:
                    self._delivered = self._backlog.newest
                for queued in found:
                    if isinstance(queued, UnreadableEvent):
                        self._skip(queued)
                    else:
                        self._deliver(queued)
            except WorkError:
                return  # `ClientSubscriptions` retries after a failed commit.
        self._report_history()

    def acknowledge(self, positions: list[int]) -> None:
        """The consumer has these; they are not delivered again once this is committed. Unknown positions are
        ignored."""
        for position in positions:
            self._unacknowledged.pop(position, None)
            # Also if it was acknowledged before: that commit may have failed.
            if position <= self._delivered:
                self._backlog.remove(position)
        self.deliver_backlog()

    def remove_excess(self) -> None:
        """Drop the events that are too old or too many."""
        for position, reason in self._backlog.remove_excess(self._recorder.time_s()):
            self._unacknowledged.pop(position, None)
            self._recorder.drop(Layer.DISSEMINATION, reason)

    def rollback(self) -> None:
        """The last transaction was rolled back."""
        self._backlog.rollback()

    @property
    def backlog_count(self) -> int:
        """How many events are not acknowledged."""
        return self._backlog.count

    @property
    def _credit(self) -> int:
        """How many more events the consumer takes."""
        prefetch = None if self.consumer is None else self.consumer.prefetch
        return (PREFETCH if prefetch is None else prefetch) - len(self._unacknowledged)

    @property
    def _room_bytes(self) -> float:
        flow = None if self.consumer is None else self.consumer.flow
        return inf if flow is None else flow.room_bytes

    def _deliver(self, queued: QueuedEvent) -> None:
        self._delivered = queued.position
        if queued.arrived_s + queued.event.lease_s <= self._recorder.time_s():
            self._backlog.remove(queued.position)
            self._recorder.drop(Layer.DISSEMINATION, LEASE_EXPIRED)
            return
        self._unacknowledged[queued.position] = None
        consumer = self.consumer
        assert consumer is not None
        if consumer.flow is not None:
            consumer.flow.reserve(queued.length)
        self._group_commit.when_committed(lambda error: self._call(consumer, queued, error))

    def _skip(self, unreadable: UnreadableEvent) -> None:
        """Remove an unreadable row, so that the events after it are delivered."""
        self._delivered = unreadable.position
        self._backlog.remove(unreadable.position)
        self._recorder.drop(Layer.DISSEMINATION, "backlog_unreadable")
        if not self._unreadable_logged:
            self._unreadable_logged = True
            LOG.error("queued events of the subscription %s cannot be read: %s", self._id, unreadable.why)

    def _call(self, consumer: Consumer, queued: QueuedEvent, error: WorkError | None) -> None:
        if consumer.flow is not None:
            consumer.flow.release(queued.length)
        if consumer is not self.consumer or queued.position not in self._unacknowledged:
            return
        if error is not None:
            # The event may still be in the backlog, if only its mark as delivered could not be written.
            del self._unacknowledged[queued.position]
            self._delivered = min(self._delivered, queued.position - 1)
            return
        try:
            waited_s = max(0.0, self._recorder.time_s() - queued.arrived_s)
            consumer.deliver(
                self._id, LocalDelivery(queued.event, queued.hops, queued.position, queued.delivered, waited_s)
            )
        except Exception as raised:
            LOG.error("an application raised on a delivery", exc_info=raised)
            self._recorder.drop(Layer.DISSEMINATION, "application_raised")
        if not consumer.acknowledges:
            self.acknowledge([queued.position])

    def _on_committed(self, error: WorkError | None) -> None:
        if error is not None:
            self._recorder.drop(Layer.DISSEMINATION, "store_failed")
