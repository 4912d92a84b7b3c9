"""Periodic retransmission: events are kept and forwarded again at intervals, until their lease or attempts end."""

import heapq
from math import floor, nan

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.parts.log import DurableLog, LogRecord
from carrycast.core.protocol import Fact, Port

UNLIMITED = 1 << 62
"""Attempts of a copy that is only limited by its lease."""

NEVER = nan
"""The due time of an evicted copy: NaN, which equals no time."""

_COMPACT_FROM = 64

CLOCK_STEP_S = 2e-6
"""The clock resolution: a timer may fire this much early."""


class RetryCopy:
    """A kept event: its hop count and sender, when its lease expires, and the attempts left.

    `holders`, if tracked, are the neighbors known to have the event.
    """

    __slots__ = ("attempts", "counted", "due", "event", "holders", "hops", "place", "sender", "until")

    def __init__(
        self,
        event: Event,
        hops: int,
        sender: NodeId | None,
        until: float,
        attempts: int,
        holders: set[NodeId] | None = None,
    ) -> None:
        self.event = event
        self.hops = hops
        self.sender = sender
        self.until = until
        self.attempts = attempts
        self.holders = holders
        self.counted = attempts < UNLIMITED
        self.due = 0.0
        self.place = 0
        """The arrival number in its buffer."""


class RetryBuffer:
    """At most `capacity` copies; when it is full, the oldest arrival is evicted [004 §5.2].

    Without a phase, each copy is due every `interval_s` after its own arrival. With a phase, all copies are due
    together, oldest arrival first, at the phase plus multiples of the interval.
    """

    __slots__ = ("_arrivals", "_capacity", "_copies", "_dues", "_interval_s", "_phase_s")

    def __init__(self, capacity: int, interval_s: float, phase_s: float | None = None) -> None:
        self._capacity = capacity
        self._interval_s = interval_s
        self._phase_s = phase_s
        self._arrivals = 0
        self._copies: dict[EventId, RetryCopy] = {}
        self._dues: list[tuple[float, int, RetryCopy]] = []

    def __len__(self) -> int:
        return len(self._copies)

    def __contains__(self, event: EventId) -> bool:
        return event in self._copies

    @property
    def free(self) -> float:
        """The unused share of the capacity."""
        return 1 - len(self._copies) / self._capacity

    def get(self, event: EventId) -> RetryCopy | None:
        """A copy, or None."""
        return self._copies.get(event)

    def add(self, now: float, copy: RetryCopy) -> EventId | None:
        """Add a copy of a new event; returns the id of the evicted one, or None."""
        copies = self._copies
        evicted = None
        if len(copies) >= self._capacity:
            evicted = next(iter(copies))
            self.discard(evicted)
        self.keep(now, copy)
        return evicted

    def discard(self, event: EventId) -> None:
        """Remove a copy."""
        self._copies.pop(event).due = NEVER

    def keep(self, now: float, copy: RetryCopy) -> None:
        """Add a copy of a new event, regardless of the capacity."""
        copies = self._copies
        copies[copy.event.id] = copy
        self._arrivals += 1
        copy.place = self._arrivals
        self._schedule(now, copy)
        if len(self._dues) > 2 * len(copies) + _COMPACT_FROM:
            # Most entries are of evicted copies, which would stay here until they are due.
            self._dues = [(kept.due, kept.place, kept) for kept in copies.values()]
            heapq.heapify(self._dues)

    def take_due(self, now: float) -> tuple[list[RetryCopy], list[tuple[EventId, str]]]:
        """The copies to forward now, each scheduled for its next attempt, and the removed ones with the reason.

        A copy is removed with its last attempt, and is then in both lists.
        """
        trying: list[RetryCopy] = []
        gone: list[tuple[EventId, str]] = []
        dues = self._dues
        reached = now + CLOCK_STEP_S
        while dues and dues[0][0] <= reached:
            due, _, copy = heapq.heappop(dues)
            if copy.due != due:
                continue
            if copy.until <= reached:
                del self._copies[copy.event.id]
                gone.append((copy.event.id, "lease_over"))
                continue
            trying.append(copy)
        # After all are taken, because an interval may be shorter than a clock step.
        for copy in trying:
            copy.attempts -= 1
            if copy.attempts > 0:
                self._schedule(now, copy)
            else:
                del self._copies[copy.event.id]
                gone.append((copy.event.id, "attempts_over"))
        return trying, gone

    def next_due(self) -> float | None:
        """The next due time, or None. Entries of removed copies are skipped."""
        dues = self._dues
        while dues:
            due, _, copy = dues[0]
            if copy.due == due:
                return due
            heapq.heappop(dues)
        return None

    def _schedule(self, now: float, copy: RetryCopy) -> None:
        copy.due = min(self._next_attempt(now), copy.until)
        heapq.heappush(self._dues, (copy.due, copy.place, copy))

    def _next_attempt(self, now: float) -> float:
        interval_s, phase_s = self._interval_s, self._phase_s
        if phase_s is None:
            return now + interval_s
        # If the timer fired up to a clock step early, this attempt is not the next one.
        passed = floor((now + CLOCK_STEP_S - phase_s) / interval_s)
        return phase_s + (passed + 1) * interval_s


class RetryStore:
    """A retry buffer with its timer, its retention log and its trace records. With a log, the capacity is that of the
    events that are not guaranteed."""

    __slots__ = ("_armed", "_buffer", "_capacity", "_port", "log")

    def __init__(
        self,
        port: Port,
        capacity: int,
        interval_s: float,
        phase_s: float | None = None,
        log: DurableLog | None = None,
    ) -> None:
        self._port = port
        self._capacity = capacity
        self._buffer = RetryBuffer(capacity, interval_s, phase_s)
        self.log = log
        self._armed: float | None = None

    @property
    def free(self) -> float:
        """The unused share of the buffer."""
        return self._buffer.free if self.log is None else 1 - len(self.log.loose) / self._capacity

    def load(self) -> list[LogRecord]:
        """The records of the previous run, for the caller to store again or to drop."""
        return [] if self.log is None else self.log.load()

    def store(self, now: float, copy: RetryCopy) -> None:
        """Store an event; its first attempt is an interval later, or at the node's next phase."""
        if self.log is None:
            evicted = self._buffer.add(now, copy)
            if evicted is not None:
                self._evict(evicted, "buffer_full")
        else:
            self._write(copy)
            self._buffer.keep(now, copy)
            while (id := self.log.next_eviction(self._capacity)) is not None:
                # During a start, events are in the log before they are in the buffer.
                if id in self._buffer:
                    self._buffer.discard(id)
                    self._evict(id, "buffer_full")
                else:
                    self.drop(id, "buffer_full")
        self._port.note(Fact("store", copy.event.id))
        self._arm(now)

    def drop(self, event: EventId, reason: str) -> None:
        """Drop a record of the previous run."""
        assert self.log is not None
        self.log.delete(event)
        self._port.note(Fact("drop", event, reason=reason))

    def _evict(self, event: EventId, reason: str) -> None:
        if self.log is not None:
            self.log.delete(event)
        self._port.note(Fact("evict", event, reason=reason))

    def add_holder(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor has an event; recorded if the event is stored here and its holders are tracked."""
        copy = self._buffer.get(event)
        if copy is not None and copy.holders is not None:
            copy.holders.add(neighbor)

    def on_timer(self, now: float) -> list[RetryCopy]:
        """The timer "retry" has fired; returns the copies to forward now."""
        self._armed = None
        trying, gone = self._buffer.take_due(now)
        for event, reason in gone:
            self._evict(event, reason)
        for copy in trying:
            if copy.counted and copy.event.id in self._buffer:
                self._write(copy)
        self._arm(now)
        return trying

    def stop(self) -> None:
        """Disarm the timer."""
        self._port.cancel_timer("retry")

    def _write(self, copy: RetryCopy) -> None:
        if self.log is not None:
            attempts = copy.attempts if copy.counted else None
            self.log.put(LogRecord(copy.until, copy.event, copy.hops, copy.sender, attempts))

    def _arm(self, now: float) -> None:
        # A timer that fires too early does no harm, so removing a copy does not disarm it.
        due = self._buffer.next_due()
        if due is not None and (self._armed is None or due < self._armed):
            self._armed = due
            self._port.set_timer("retry", max(0.0, due - now))
