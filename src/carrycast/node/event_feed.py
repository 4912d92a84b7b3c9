"""What a live node tells whoever watches it: what happens to events here, in order, as far as it is remembered.

Nothing is remembered while nobody watches, but what would be needed to begin: which events the node holds, and which
subscriptions stand.
"""

from collections import deque

import msgspec

from carrycast.core.model import Event, EventId, NodeId, ProcessorId, Scalar, Subscription, SubscriptionId
from carrycast.core.wire import EventMessage, Message, carried
from carrycast.trace import Kind

REMEMBERED = 10_000
"""Sightings that wait for a watcher; older ones are missed, and counted."""
AT_ONCE = 500
"""In one answer: with the longest attributes that events usually have it fits a line easily."""
MAX_WISHES = 1000
MAX_HELD = 10_000
"""A protocol that says what it stores and never what it gives up must not fill the memory."""


class FeedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something happened. `kind` is a word of the trace: publish, receive, deliver, store, evict or drop."""

    time_s: float
    kind: str
    event: str | None = None
    peer: int | None = None
    reason: str | None = None
    attributes: dict[str, Scalar] | None = None
    """Of an event that is new here."""
    access: str | None = None
    processor: str | None = None
    """What has made the event."""


class ActiveSubscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """A subscription that stands."""

    subscription: str
    filter: str
    attributes: dict[str, Scalar] = {}
    processor: str | None = None


class EventFeed:
    """The memory of one node. Whoever watches asks for what came after what it has."""

    def __init__(self) -> None:
        self.frames = 0
        """Sent since the start, without beacons."""
        self.version = 0
        """Another one after each change of the subscriptions."""
        self.watched = False
        """Whether anybody watches."""
        self._watchers = 0
        self._seen: deque[FeedEvent] = deque(maxlen=REMEMBERED)
        self._count = 0
        self._told: dict[EventId, None] = {}
        self._held: dict[EventId, None] = {}
        self._wishes: dict[SubscriptionId, ActiveSubscription] = {}

    # For watchers.

    def watch(self) -> None:
        """One more watches."""
        self._watchers += 1
        self.watched = True

    def leave(self) -> None:
        """One less does; the last one takes the memory along."""
        self._watchers -= 1
        if not self._watchers:
            self.watched = False
            self._seen.clear()
            self._told.clear()

    @property
    def next(self) -> int:
        """The number of the sighting that comes next."""
        return self._count

    def after(self, place: int) -> tuple[int, list[FeedEvent], int]:
        """The sightings from a number on, not all at once; how many before them are missed; where to go on."""
        first = self._count - len(self._seen)
        start = min(max(place, first), self._count)
        found = [self._seen[i - first] for i in range(start, min(start + AT_ONCE, self._count))]
        return max(first - place, 0), found, start + len(found)

    def held(self) -> list[str]:
        """The events that are stored here."""
        return [str(event) for event in self._held]

    def wishes(self) -> list[ActiveSubscription]:
        """The subscriptions that stand, the newest of very many."""
        return list(self._wishes.values())[-MAX_WISHES:]

    # From the record.

    def publish(self, time_s: float, event: Event, processor: ProcessorId | None) -> None:
        """An event is new in the world."""
        if self._watchers:
            self._add(self._described(time_s, Kind.PUBLISH, event, None, processor))

    def receive(self, time_s: float, message: Message, peer: NodeId) -> None:
        """An event arrives, perhaps again."""
        if not self._watchers:
            return
        id = carried(message)[1]
        if id is None:
            return
        if isinstance(message, EventMessage) and id not in self._told:
            self._add(self._described(time_s, Kind.RECEIVE, message.event, peer, None))
        else:
            self._add(FeedEvent(time_s, Kind.RECEIVE, str(id), peer))

    def note(self, time_s: float, kind: str, event: EventId | None, reason: str | None = None) -> None:
        """It is stored, evicted, delivered or dropped."""
        if event is not None and kind == Kind.STORE:
            self._held[event] = None
            if len(self._held) > MAX_HELD:
                del self._held[next(iter(self._held))]
        elif event is not None and kind == Kind.EVICT:
            self._held.pop(event, None)
        if self._watchers and (kind == Kind.DROP or event is not None):
            self._add(FeedEvent(time_s, str(kind), None if event is None else str(event), reason=reason))

    def drop(self, time_s: float, reason: str, message: Message | None = None) -> None:
        """The host drops something."""
        if self._watchers:
            self.note(time_s, Kind.DROP, None if message is None else carried(message)[1], reason)

    def subscribe(self, one: Subscription) -> None:
        """A subscription stands."""
        self.version += 1
        self._wishes[one.id] = ActiveSubscription(str(one.id), one.filter, dict(one.attributes), one.processor)

    def unsubscribe(self, id: SubscriptionId) -> None:
        """It has ended."""
        self.version += 1
        self._wishes.pop(id, None)

    def _described(
        self, time_s: float, kind: Kind, event: Event, peer: NodeId | None, processor: ProcessorId | None
    ) -> FeedEvent:
        if len(self._told) >= REMEMBERED:
            self._told.clear()
        self._told[event.id] = None
        access = None if event.access is None else event.access.condition
        return FeedEvent(time_s, kind, str(event.id), peer, None, dict(event.attributes), access, processor)

    def _add(self, sighting: FeedEvent) -> None:
        self._seen.append(sighting)
        self._count += 1
