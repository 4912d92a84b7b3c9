"""Events kept for later: bounded in number, each with a lease."""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, Scalar, Subscription, SubscriptionId

_COMPACT_FROM = 64


class Stored(NamedTuple):
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
        self.events: dict[EventId, Stored] = {}
        """What is kept, oldest arrival first; to be read only."""
        self._ends: list[Stored] | None = None
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

    def get(self, event: EventId) -> Stored | None:
        """What is kept under an id, or None."""
        return self.events.get(event)

    def serving(self, now: float, filter: str, attributes: dict[str, Scalar]) -> list[Stored]:
        """What matches a filter and somebody with these attributes may see, oldest arrival first."""
        # Eligibility is spoken of in subscriptions; to ask is to subscribe to what is already here.
        asker = Subscription(SubscriptionId(0, 0), filter, attributes=attributes)
        return [kept for kept in self.events.values() if kept.until > now and serves(kept.event, asker)]

    def load(self, latest: float) -> list[Stored]:
        """What was held when the node last ran: nothing, in memory. See `parts/durable.py`."""
        return []

    def add(self, stored: Stored, custody: bool = False) -> Sequence[Stored]:
        """Keep an event that is not kept yet; what had to go for it. What is in custody is kept in a log only."""
        events = self.events
        evicted: Sequence[Stored] = ()
        if len(events) >= self._capacity:
            evicted = (events.pop(next(iter(events))),)
        self._hold(stored)
        return evicted

    def replace(self, stored: Stored) -> None:
        """An event that is kept has another end."""
        del self.events[stored.id]
        self._hold(stored)

    def _hold(self, stored: Stored) -> None:
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

    def resize(self, capacity: int) -> list[Stored]:
        """Hold more or fewer from now on; what had to go for it, oldest arrival first."""
        self._capacity = capacity
        over = max(0, len(self.events) - capacity)
        return [self.events.pop(id) for id in list(self.events)[:over]]

    def discard(self, event: EventId) -> bool:
        """Let an event go before its time; False if it is not there."""
        return self.events.pop(event, None) is not None

    def expire(self, now: float) -> list[Stored]:
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

    def first(self) -> Stored:
        """What is kept and ends first, of one that is not empty. Ends of events that left early are passed over."""
        ends = self._by_end()
        while self.events.get(ends[0].id) is not ends[0]:
            heapq.heappop(ends)
        return ends[0]

    def _by_end(self) -> list[Stored]:
        if self._ends is None:
            self._ends = list(self.events.values())
            heapq.heapify(self._ends)
        return self._ends
