"""Events kept for later: bounded in number, each with a lease."""

import heapq
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from driftcast.model import Event, EventId

_COMPACT_FROM = 64


class Stored(NamedTuple):
    """A kept event, when its lease ends by this node's clock, and how many hops it had behind it."""

    event: Event
    until: float
    hops: int


class LeasedBuffer:
    """At most `capacity` events; the oldest arrival makes room."""

    __slots__ = ("_capacity", "_ends", "_events")

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._events: dict[EventId, Stored] = {}
        self._ends: list[tuple[float, EventId]] = []

    def __len__(self) -> int:
        return len(self._events)

    def __contains__(self, event: EventId) -> bool:
        return event in self._events

    def __iter__(self) -> Iterator[EventId]:
        """The ids, oldest arrival first."""
        return iter(self._events)

    def other_than(self, ids: Iterable[EventId]) -> set[EventId]:
        """What is kept and not among the given ids."""
        return set(self._events).difference(ids)

    def get(self, event: EventId) -> Stored | None:
        """What is kept under an id, or None."""
        return self._events.get(event)

    def add(self, stored: Stored) -> EventId | None:
        """Keep an event that is not kept yet; the id of the one that had to go for it, or None."""
        events = self._events
        evicted = None
        if len(events) >= self._capacity:
            evicted = next(iter(events))
            del events[evicted]
        event = stored.event.id
        events[event] = stored
        heapq.heappush(self._ends, (stored.until, event))
        if len(self._ends) > 2 * len(events) + _COMPACT_FROM:
            # Most ends are of events that left early; those with a long lease would stay here for all of it.
            self._ends = [(kept.until, id) for id, kept in events.items()]
            heapq.heapify(self._ends)
        return evicted

    def discard(self, event: EventId) -> bool:
        """Let an event go before its time; False if it is not there."""
        return self._events.pop(event, None) is not None

    def expire(self, now: float) -> list[EventId]:
        """Drop what has reached the end of its lease; the ids that went, by end of lease."""
        gone = []
        while self._ends and self._ends[0][0] <= now:
            end, event = heapq.heappop(self._ends)
            stored = self._events.get(event)
            if stored is not None and stored.until == end:
                del self._events[event]
                gone.append(event)
        return gone

    def next_end(self) -> float | None:
        """When the next lease ends, or None. Ends of events that left early are passed over."""
        while self._ends:
            end, event = self._ends[0]
            stored = self._events.get(event)
            if stored is not None and stored.until == end:
                return end
            heapq.heappop(self._ends)
        return None
