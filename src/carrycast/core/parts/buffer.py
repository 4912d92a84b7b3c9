"""Events kept for later: bounded in number, each with a lease."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, Scalar, Subscription, SubscriptionId
from carrycast.core.parts.log import DurableLog, LogRecord
from carrycast.core.parts.seen import DurableSeenCache, SeenCache
from carrycast.core.protocol import DurableStore, Fact, Port, TimerKey

_COMPACT_FROM = 64


class BufferedEvent(NamedTuple):
    """A kept event: when its lease ends by this node's clock, its id, and how many hops it had behind it.

    In this order, so that what is stored sorts by the end of its lease.
    """

    until: float
    id: EventId
    event: Event
    hops: int


class LeasedBuffer:
    """At most `capacity` events; the oldest arrival makes room."""

    __slots__ = ("_capacity", "_ends", "events")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.events: dict[EventId, BufferedEvent] = {}
        """What is kept, oldest arrival first; to be read only."""
        self._ends: list[BufferedEvent] | None = None
        """What is kept by the ends of leases, and some that left early; made for whoever first asks for an end."""

    def __len__(self) -> int:
        return len(self.events)

    def __contains__(self, event: EventId) -> bool:
        return event in self.events

    def __iter__(self) -> Iterator[EventId]:
        """The ids, oldest arrival first."""
        return iter(self.events)

    def other_than(self, ids: Iterable[EventId]) -> set[EventId]:
        """What is kept and not among the given ids."""
        return set(self.events).difference(ids)

    def get(self, event: EventId) -> BufferedEvent | None:
        """What is kept under an id, or None."""
        return self.events.get(event)

    def serving(self, now: float, filter: str, attributes: dict[str, Scalar]) -> list[BufferedEvent]:
        """What matches a filter and somebody with these attributes may see, oldest arrival first."""
        # Eligibility is spoken of in subscriptions; to ask is to subscribe to what is already here.
        asker = Subscription(SubscriptionId(0, 0), filter, attributes=attributes)
        return [kept for kept in self.events.values() if kept.until > now and serves(kept.event, asker)]

    def load(self, latest: float) -> list[BufferedEvent]:
        """What was held when the node last ran: nothing, in memory. See `parts/durable.py`."""
        return []

    def add(self, stored: BufferedEvent, custody: bool = False) -> Sequence[BufferedEvent]:
        """Keep an event that is not kept yet; what had to go for it. What is in custody is kept in a log only."""
        events = self.events
        evicted: Sequence[BufferedEvent] = ()
        if len(events) >= self._capacity:
            evicted = (events.pop(next(iter(events))),)
        self._hold(stored)
        return evicted

    def replace(self, stored: BufferedEvent) -> None:
        """An event that is kept has another end."""
        del self.events[stored.id]
        self._hold(stored)

    def _hold(self, stored: BufferedEvent) -> None:
        self.events[stored.id] = stored
        if self._ends is not None:
            heapq.heappush(self._ends, stored)
            if len(self._ends) > 2 * len(self.events) + _COMPACT_FROM:
                # Most ends are of events that left early; those with a long lease would stay here for all of it.
                self._ends = None

    def exceeds(self, capacity: int) -> bool:
        """Whether more than so many events are kept that may make room for others."""
        return len(self.events) > capacity

    def is_guaranteed(self, event: EventId) -> bool:
        """Whether an event may not make room for others: none, in memory."""
        return False

    def next_to_go(self) -> EventId:
        """What makes room if nothing else is chosen, of one that holds such: what ends first."""
        return self.first().id

    def resize(self, capacity: int) -> list[BufferedEvent]:
        """Hold more or fewer from now on; what had to go for it, oldest arrival first."""
        self._capacity = capacity
        over = max(0, len(self.events) - capacity)
        return [self.events.pop(id) for id in list(self.events)[:over]]

    def discard(self, event: EventId) -> bool:
        """Let an event go before its time; False if it is not there."""
        return self.events.pop(event, None) is not None

    def expire(self, now: float) -> list[BufferedEvent]:
        """Drop what has reached the end of its lease; what went, by end of lease."""
        gone = []
        ends = self._by_end()
        while ends and ends[0].until <= now:
            ended = heapq.heappop(ends)
            if self.events.get(ended.id) is ended:
                del self.events[ended.id]
                gone.append(ended)
        return gone

    def next_end(self) -> float | None:
        """When the next lease ends, or None."""
        return self.first().until if self.events else None

    def first(self) -> BufferedEvent:
        """What is kept and ends first, of one that is not empty. Ends of events that left early are passed over."""
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
    """Armed while the buffer holds anything."""

    __slots__ = ("_buffer", "_key", "_port", "_until")

    def __init__(self, port: Port, buffer: LeasedBuffer, key: TimerKey) -> None:
        self._port = port
        self._buffer = buffer
        self._key = key
        self._until: float | None = None

    def watch(self, now: float, again: bool = False) -> None:
        """Something came into the buffer; or, `again`, the timer has run out and what was over has gone."""
        if again:
            self._until = None
        end = self._buffer.next_end()
        if end is not None and (self._until is None or end < self._until):
            self._until = end
            self._port.set_timer(self._key, max(0.0, end - now))

    def stop(self) -> None:
        """Disarm it."""
        self._port.cancel_timer(self._key)


class DurableBuffer(LeasedBuffer):
    """One whose events are in a retention log. Promised events are not counted in `capacity` and make room for nobody;
    of the others, the oldest arrival goes when there are too many or the log has too many bytes."""

    __slots__ = ("log",)

    def __init__(self, capacity: int, log: DurableLog) -> None:
        super().__init__(capacity)
        self.log = log

    def exceeds(self, capacity: int) -> bool:
        return len(self.log.loose) > capacity

    def is_guaranteed(self, event: EventId) -> bool:
        return self.log.is_guaranteed(event)

    def next_to_go(self) -> EventId:
        """The oldest arrival of what is not promised."""
        return next(iter(self.log.loose))

    def load(self, latest: float) -> list[BufferedEvent]:
        """What was held when the node last ran, oldest arrival first; no lease ends later than `latest`, whatever the
        clock was then. What ended since is for `expire`; what no longer fits because the capacity is less now had to
        go, and is returned."""
        for kept in self.log.load():
            self._hold(BufferedEvent(min(kept.until, latest), kept.event.id, kept.event, kept.hops))
        return self._make_room()

    def add(self, stored: BufferedEvent, custody: bool = False) -> Sequence[BufferedEvent]:
        self.log.put(LogRecord(stored.until, stored.event, stored.hops), custody)
        self._hold(stored)
        return self._make_room()

    def replace(self, stored: BufferedEvent) -> None:
        self.log.put(LogRecord(stored.until, stored.event, stored.hops))
        super().replace(stored)

    def resize(self, capacity: int) -> list[BufferedEvent]:
        self._capacity = capacity
        return self._make_room()

    def discard(self, event: EventId) -> bool:
        if event in self.events:
            self.log.erase(event)
        return super().discard(event)

    def expire(self, now: float) -> list[BufferedEvent]:
        gone = super().expire(now)
        for stored in gone:
            self.log.erase(stored.id)
        return gone

    def _make_room(self) -> list[BufferedEvent]:
        gone: list[BufferedEvent] = []
        while (id := self.log.next_to_go(self._capacity)) is not None:
            self.log.erase(id)
            gone.append(self.events.pop(id))
        return gone


class EventMemory(NamedTuple):
    """What a node holds, and what it has met besides."""

    buffer: LeasedBuffer
    met: SeenCache


def make_memory(capacity: int, log: DurableLog | None, store: DurableStore | None) -> EventMemory:
    """In a retention log and its store, or without them for as long as the node runs."""
    if log is None or store is None:
        return EventMemory(LeasedBuffer(capacity), SeenCache())
    return EventMemory(DurableBuffer(capacity, log), DurableSeenCache(store))


def restore_buffer(port: Port, now: float, buffer: LeasedBuffer, longest_s: float) -> list[BufferedEvent]:
    """Hold again what a buffer held when the node last ran, by a lease of at most so long; what is over since, or no
    longer fits, and so is not held any more."""
    over = [(stored, "buffer_full") for stored in buffer.load(now + longest_s)]
    over += [(stored, "lease_over") for stored in buffer.expire(now)]
    for stored, reason in over:
        port.note(Fact("drop", stored.id, reason=reason))
    for id in buffer:
        port.note(Fact("store", id))
    return [stored for stored, _ in over]
