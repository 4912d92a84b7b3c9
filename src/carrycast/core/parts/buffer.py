"""The event buffer of a node: bounded, each event until its lease expires; in memory or in a retention log.

Times are of the node's own clock, which continues over restarts.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, Scalar, Subscription, SubscriptionId
from carrycast.core.parts.log import DurableLog, LogRecord
from carrycast.core.parts.seen import DurableSeenCache, SeenCache
from carrycast.core.protocol import DurableStore, Fact, Port, TimerKey

_COMPACT_FROM = 64

EvictionChoice: TypeAlias = Callable[[Iterable[EventId]], EventId]
"""Chooses the event to evict, of those that may be, in order of arrival."""


class BufferedEvent(NamedTuple):
    """An event in a buffer: when its lease expires by this node's clock, its id, and its hop count.

    The fields are in this order so that buffered events sort by their expiry time.
    """

    until: float
    id: EventId
    event: Event
    hops: int


class LeasedBuffer:
    """At most `capacity` events; when it is full, the oldest arrival is evicted, or the one that is chosen."""

    __slots__ = ("_capacity", "_ends", "events")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.events: dict[EventId, BufferedEvent] = {}
        """The buffered events, oldest arrival first; read-only."""
        self._ends: list[BufferedEvent] | None = None
        """A heap of the events by expiry time, with some that were removed early; built on first use."""

    def __len__(self) -> int:
        return len(self.events)

    def __contains__(self, event: EventId) -> bool:
        return event in self.events

    def __iter__(self) -> Iterator[EventId]:
        """The ids, oldest arrival first."""
        return iter(self.events)

    def find_others(self, ids: Iterable[EventId]) -> set[EventId]:
        """The buffered ids that are not among the given ones."""
        return set(self.events).difference(ids)

    def get(self, event: EventId) -> BufferedEvent | None:
        """A buffered event, or None."""
        return self.events.get(event)

    def find_matching(self, now: float, filter: str, attributes: dict[str, Scalar]) -> list[BufferedEvent]:
        """The events that match a filter and admit a subscriber with these attributes, oldest arrival first."""
        # Eligibility is defined for subscriptions: a request is a subscription to stored events.
        asker = Subscription(SubscriptionId(0, 0), filter, attributes=attributes)
        return [kept for kept in self.events.values() if kept.until > now and serves(kept.event, asker)]

    def load(self, latest: float) -> list[BufferedEvent]:
        """Restore the events of the previous run: none, in memory. See `DurableBuffer`."""
        return []

    def add(
        self, stored: BufferedEvent, custody: bool = False, choose: EvictionChoice | None = None
    ) -> Sequence[BufferedEvent]:
        """Add an event; returns the evicted events. `custody` only matters for a log."""
        events = self.events
        evicted: Sequence[BufferedEvent] = ()
        if len(events) >= self._capacity:
            evicted = (events.pop(next(iter(events)) if choose is None else choose(events)),)
        self._hold(stored)
        return evicted

    def replace(self, stored: BufferedEvent) -> None:
        """Change the expiry time of a buffered event."""
        del self.events[stored.id]
        self._hold(stored)

    def _hold(self, stored: BufferedEvent) -> None:
        self.events[stored.id] = stored
        if self._ends is not None:
            heapq.heappush(self._ends, stored)
            if len(self._ends) > 2 * len(self.events) + _COMPACT_FROM:
                # Most entries are of removed events, which would stay here until their leases expire.
                self._ends = None

    def exceeds(self, capacity: int) -> bool:
        """Whether there are more than so many events that may be evicted."""
        return len(self.events) > capacity

    def is_guaranteed(self, event: EventId) -> bool:
        """Whether an event must not be evicted: none, in memory."""
        return False

    def next_eviction(self) -> EventId:
        """The default event to evict, from a nonempty buffer: the one that expires first."""
        return self.first().id

    def resize(self, capacity: int) -> list[BufferedEvent]:
        """Change the capacity; returns the evicted events, oldest arrival first."""
        self._capacity = capacity
        over = max(0, len(self.events) - capacity)
        return [self.events.pop(id) for id in list(self.events)[:over]]

    def discard(self, event: EventId) -> bool:
        """Remove an event before it expires; False if it is not there."""
        return self.events.pop(event, None) is not None

    def expire(self, now: float) -> list[BufferedEvent]:
        """Remove the expired events; returns them in order of expiry."""
        gone = []
        ends = self._by_end()
        while ends and ends[0].until <= now:
            ended = heapq.heappop(ends)
            if self.events.get(ended.id) is ended:
                del self.events[ended.id]
                gone.append(ended)
        return gone

    def next_end(self) -> float | None:
        """When the next lease expires, or None."""
        return self.first().until if self.events else None

    def first(self) -> BufferedEvent:
        """The event that expires first, of a nonempty buffer. Entries of removed events are skipped."""
        ends = self._by_end()
        while self.events.get(ends[0].id) is not ends[0]:
            heapq.heappop(ends)
        return ends[0]

    def _by_end(self) -> list[BufferedEvent]:
        if self._ends is None:
            self._ends = list(self.events.values())
            heapq.heapify(self._ends)
        return self._ends


class LeaseTimer:
    """The timer for the next expiry of a lease in a buffer."""

    __slots__ = ("_buffer", "_key", "_port", "_until")

    def __init__(self, port: Port, buffer: LeasedBuffer, key: TimerKey) -> None:
        self._port = port
        self._buffer = buffer
        self._key = key
        self._until: float | None = None

    def watch(self, now: float, again: bool = False) -> None:
        """Arm the timer after an event was added or, with `again`, after the timer fired."""
        if again:
            self._until = None
        end = self._buffer.next_end()
        if end is not None and (self._until is None or end < self._until):
            self._until = end
            self._port.set_timer(self._key, max(0.0, end - now))

    def stop(self) -> None:
        """Disarm the timer."""
        self._port.cancel_timer(self._key)


class DurableBuffer(LeasedBuffer):
    """A buffer in a retention log. Guaranteed events do not count towards `capacity` and are not evicted. Of the
    others, the oldest arrival is evicted when there are too many events, or the log has too many bytes."""

    __slots__ = ("log",)

    def __init__(self, capacity: int, log: DurableLog) -> None:
        super().__init__(capacity)
        self.log = log

    def exceeds(self, capacity: int) -> bool:
        return len(self.log.loose) > capacity

    def is_guaranteed(self, event: EventId) -> bool:
        return self.log.is_guaranteed(event)

    def next_eviction(self) -> EventId:
        """The oldest arrival that is not guaranteed."""
        return next(iter(self.log.loose))

    def load(self, latest: float) -> list[BufferedEvent]:
        """Restore the events of the previous run, oldest arrival first; no lease expires later than `latest`. Returns
        the events that no longer fit into the capacity. Expired ones stay until `expire`."""
        for kept in self.log.load():
            self._hold(BufferedEvent(min(kept.until, latest), kept.event.id, kept.event, kept.hops))
        return self._make_room()

    def add(
        self, stored: BufferedEvent, custody: bool = False, choose: EvictionChoice | None = None
    ) -> Sequence[BufferedEvent]:
        self.log.put(LogRecord(stored.until, stored.event, stored.hops), custody)
        self._hold(stored)
        return self._make_room(choose)

    def replace(self, stored: BufferedEvent) -> None:
        self.log.put(LogRecord(stored.until, stored.event, stored.hops))
        super().replace(stored)

    def resize(self, capacity: int) -> list[BufferedEvent]:
        self._capacity = capacity
        return self._make_room()

    def discard(self, event: EventId) -> bool:
        if event in self.events:
            self.log.delete(event)
        return super().discard(event)

    def expire(self, now: float) -> list[BufferedEvent]:
        gone = super().expire(now)
        for stored in gone:
            self.log.delete(stored.id)
        return gone

    def _make_room(self, choose: EvictionChoice | None = None) -> list[BufferedEvent]:
        gone: list[BufferedEvent] = []
        while (id := self.log.next_eviction(self._capacity)) is not None:
            id = id if choose is None else choose(self.log.loose)
            self.log.delete(id)
            gone.append(self.events.pop(id))
        return gone


class EventMemory(NamedTuple):
    """A node's buffered events, and the ids of others that it received."""

    buffer: LeasedBuffer
    met: SeenCache


def make_memory(capacity: int, log: DurableLog | None, store: DurableStore | None) -> EventMemory:
    """Create the buffer and the duplicate cache: in a retention log and its store, or in memory."""
    if log is None or store is None:
        return EventMemory(LeasedBuffer(capacity), SeenCache())
    return EventMemory(DurableBuffer(capacity, log), DurableSeenCache(store))


def restore_buffer(port: Port, now: float, buffer: LeasedBuffer, longest_s: float) -> list[BufferedEvent]:
    """Restore a buffer from the previous run, with leases of at most `longest_s`. Returns the events that have expired
    or no longer fit."""
    over = [(stored, "buffer_full") for stored in buffer.load(now + longest_s)]
    over += [(stored, "lease_over") for stored in buffer.expire(now)]
    for stored, reason in over:
        port.note(Fact("drop", stored.id, reason=reason))
    for id in buffer:
        port.note(Fact("store", id))
    return [stored for stored, _ in over]
