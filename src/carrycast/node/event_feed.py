"""The event feed of a live node: the steps of events at the node, in order, for clients that watch it.

Without a watcher, only the state that a new watcher needs is kept: the stored events and the active subscriptions.
"""

from collections import deque

import msgspec

from carrycast.core.model import Event, EventId, NodeId, ProcessorId, Scalar, Subscription, SubscriptionId
from carrycast.core.wire import EventMessage, Message, classify
from carrycast.trace import Kind

MAX_BUFFERED = 10_000
"""The most feed events that are buffered for watchers. Watchers miss older ones, which are counted."""
MAX_READ = 500
"""The most feed events of one response: with long attributes they still fit in a line."""
MAX_SUBSCRIPTIONS = 1000
"""The most subscriptions of one response."""
MAX_STORED = 10_000
"""The most stored events that are remembered, for protocols that note stored events but no evictions."""


class FeedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step of an event. `kind` is a kind of trace rows: publish, receive, deliver, store, evict or drop."""

    time_s: float
    kind: str
    event: str | None = None
    peer: int | None = None
    reason: str | None = None
    attributes: dict[str, Scalar] | None = None
    """The attributes of an event that is new at this node."""
    access: str | None = None
    processor: str | None = None
    """The processor that made the event."""


class ActiveSubscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription of a local application."""

    subscription: str
    filter: str
    attributes: dict[str, Scalar] = {}
    processor: str | None = None


class EventFeed:
    """The feed of one node. Each watcher remembers the number up to which it has read."""

    def __init__(self) -> None:
        self.frames = 0
        """Frames sent since the start, without beacons."""
        self.version = 0
        """Incremented with each change of the subscriptions."""
        self.is_watched = False
        """Whether there is a watcher."""
        self._watchers = 0
        self._buffer: deque[FeedEvent] = deque(maxlen=MAX_BUFFERED)
        self._count = 0
        self._described_ids: dict[EventId, None] = {}
        self._stored: dict[EventId, None] = {}
        self._subscriptions: dict[SubscriptionId, ActiveSubscription] = {}

    # For watchers.

    def add_watcher(self) -> None:
        """A client begins to watch."""
        self._watchers += 1
        self.is_watched = True

    def remove_watcher(self) -> None:
        """A client no longer watches; after the last one the buffer is cleared."""
        self._watchers -= 1
        if not self._watchers:
            self.is_watched = False
            self._buffer.clear()
            self._described_ids.clear()

    @property
    def next(self) -> int:
        """The number of the next feed event."""
        return self._count

    def read_after(self, number: int) -> tuple[int, list[FeedEvent], int]:
        """Return how many feed events from a number on were missed, some of those that follow, and the next number to
        read."""
        first = self._count - len(self._buffer)
        start = min(max(number, first), self._count)
        found = [self._buffer[i - first] for i in range(start, min(start + MAX_READ, self._count))]
        return max(first - number, 0), found, start + len(found)

    def list_stored_events(self) -> list[str]:
        """Return the ids of the events that the protocol stores."""
        return [str(event) for event in self._stored]

    def list_subscriptions(self) -> list[ActiveSubscription]:
        """Return the active subscriptions, at most the newest MAX_SUBSCRIPTIONS."""
        return list(self._subscriptions.values())[-MAX_SUBSCRIPTIONS:]

    # For the recorder.

    def publish(self, time_s: float, event: Event, processor: ProcessorId | None) -> None:
        """An event was published."""
        if self._watchers:
            self._add(self._describe(time_s, Kind.PUBLISH, event, None, processor))

    def receive(self, time_s: float, message: Message, peer: NodeId) -> None:
        """A frame with an event arrived; it may be a duplicate."""
        if not self._watchers:
            return
        id = classify(message)[1]
        if id is None:
            return
        if isinstance(message, EventMessage) and id not in self._described_ids:
            self._add(self._describe(time_s, Kind.RECEIVE, message.event, peer, None))
        else:
            self._add(FeedEvent(time_s, Kind.RECEIVE, str(id), peer))

    def note(self, time_s: float, kind: str, event: EventId | None, reason: str | None = None) -> None:
        """An event was stored, evicted, delivered or dropped."""
        if event is not None and kind == Kind.STORE:
            self._stored[event] = None
            if len(self._stored) > MAX_STORED:
                del self._stored[next(iter(self._stored))]
        elif event is not None and kind == Kind.EVICT:
            self._stored.pop(event, None)
        if self._watchers and (kind == Kind.DROP or event is not None):
            self._add(FeedEvent(time_s, str(kind), None if event is None else str(event), reason=reason))

    def drop(self, time_s: float, reason: str, message: Message | None = None) -> None:
        """The host has dropped a message."""
        if self._watchers:
            self.note(time_s, Kind.DROP, None if message is None else classify(message)[1], reason)

    def subscribe(self, one: Subscription) -> None:
        """A subscription has begun."""
        self.version += 1
        self._subscriptions[one.id] = ActiveSubscription(str(one.id), one.filter, dict(one.attributes), one.processor)

    def unsubscribe(self, id: SubscriptionId) -> None:
        """A subscription has ended."""
        self.version += 1
        self._subscriptions.pop(id, None)

    def _describe(
        self, time_s: float, kind: Kind, event: Event, peer: NodeId | None, processor: ProcessorId | None
    ) -> FeedEvent:
        if len(self._described_ids) >= MAX_BUFFERED:
            self._described_ids.clear()
        self._described_ids[event.id] = None
        access = None if event.access is None else event.access.condition
        return FeedEvent(time_s, kind, str(event.id), peer, None, dict(event.attributes), access, processor)

    def _add(self, feed_event: FeedEvent) -> None:
        self._buffer.append(feed_event)
        self._count += 1
