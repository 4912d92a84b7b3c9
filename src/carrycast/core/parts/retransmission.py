"""Store and forward: events kept to be tried again at intervals, until a lease or a number of attempts is over."""

import heapq
from math import floor, nan

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.parts.log import DurableLog, LogRecord
from carrycast.core.protocol import Fact, Port

UNLIMITED = 1 << 62
"""Attempts for a copy that only its lease ends."""

NEVER = nan
"""When a copy is due that had to make room: a time that equals none."""

_COMPACT_FROM = 64

CLOCK_STEP_S = 2e-6
"""Clocks count in steps: a timer may run out this much before the time that it was set for."""


class RetryCopy:
    """A kept event: over how many hops and from whom it came, when its lease ends, what attempts it has left.

    `holders`, if kept at all, are the neighbors known to have the event.
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
        """Where it stands among the arrivals of its buffer."""


class RetryBuffer:
    """At most `capacity` copies; the oldest arrival makes room [004 §5.2].

    Without a phase each copy is due every `interval_s` after its own arrival. With one, all copies are due together,
    oldest arrival first, when the clock shows the phase and a number of intervals.
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
        """The share of the capacity that is unused."""
        return 1 - len(self._copies) / self._capacity

    def get(self, event: EventId) -> RetryCopy | None:
        """What is kept under an id, or None."""
        return self._copies.get(event)

    def add(self, now: float, copy: RetryCopy) -> EventId | None:
        """Keep a copy of an event that is not kept yet; the id of the one that had to go for it, or None."""
        copies = self._copies
        evicted = None
        if len(copies) >= self._capacity:
            evicted = next(iter(copies))
            self.discard(evicted)
        self.keep(now, copy)
        return evicted

    def discard(self, event: EventId) -> None:
        """A copy that is kept goes."""
        self._copies.pop(event).due = NEVER

    def keep(self, now: float, copy: RetryCopy) -> None:
        """Keep a copy of an event that is not kept yet, however many there are."""
        copies = self._copies
        copies[copy.event.id] = copy
        self._arrivals += 1
        copy.place = self._arrivals
        self._schedule(now, copy)
        if len(self._dues) > 2 * len(copies) + _COMPACT_FROM:
            # Most are of copies that had to make room, which would be kept here until they are due.
            self._dues = [(kept.due, kept.place, kept) for kept in copies.values()]
            heapq.heapify(self._dues)

    def take_due(self, now: float) -> tuple[list[RetryCopy], list[tuple[EventId, str]]]:
        """The copies to try now, each scheduled for its next time; and those that went, with the reason.

        The last attempt is the end of a copy: it is among both.
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
        # Not before all are taken: an interval may be shorter than a clock step.
        for copy in trying:
            copy.attempts -= 1
            if copy.attempts > 0:
                self._schedule(now, copy)
            else:
                del self._copies[copy.event.id]
                gone.append((copy.event.id, "attempts_over"))
        return trying, gone

    def next_due(self) -> float | None:
        """When there will be something to do, or None. What left early is passed over."""
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
        # From a timer that is a clock step early on, the attempt that it was set for is not the next one.
        passed = floor((now + CLOCK_STEP_S - phase_s) / interval_s)
        return phase_s + (passed + 1) * interval_s


class RetryStore:
    """A retry buffer with its timer, which tells the trace what it keeps and what it lets go. With a retention log, its
    capacity is that of the events that are not promised."""

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
        """The share of the buffer that is unused."""
        return self._buffer.free if self.log is None else 1 - len(self.log.loose) / self._capacity

    def load(self) -> list[LogRecord]:
        """What was kept when the node last ran; it is for the caller to store again, or to drop."""
        return [] if self.log is None else self.log.load()

    def store(self, now: float, copy: RetryCopy) -> None:
        """Keep an event; its first attempt comes an interval later, or at the node's next."""
        if self.log is None:
            evicted = self._buffer.add(now, copy)
            if evicted is not None:
                self._let_go(evicted, "buffer_full")
        else:
            self._write(copy)
            self._buffer.keep(now, copy)
            while (id := self.log.next_to_go(self._capacity)) is not None:
                # While what was kept is loaded, it is in the log before it is in the buffer.
                if id in self._buffer:
                    self._buffer.discard(id)
                    self._let_go(id, "buffer_full")
                else:
                    self.drop(id, "buffer_full")
        self._port.note(Fact("store", copy.event.id))
        self._arm(now)

    def drop(self, event: EventId, reason: str) -> None:
        """Of what was kept when the node last ran something is not to be stored again."""
        assert self.log is not None
        self.log.erase(event)
        self._port.note(Fact("drop", event, reason=reason))

    def _let_go(self, event: EventId, reason: str) -> None:
        if self.log is not None:
            self.log.erase(event)
        self._port.note(Fact("evict", event, reason=reason))

    def held_by(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor has an event; noted if the event is stored here and its holders are kept."""
        copy = self._buffer.get(event)
        if copy is not None and copy.holders is not None:
            copy.holders.add(neighbor)

    def on_timer(self, now: float) -> list[RetryCopy]:
        """The timer "retry" has run out: the copies to forward now."""
        self._armed = None
        trying, gone = self._buffer.take_due(now)
        for event, reason in gone:
            self._let_go(event, reason)
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
        # A timer that is too early does no harm, so what leaves the buffer does not disarm it.
        due = self._buffer.next_due()
        if due is not None and (self._armed is None or due < self._armed):
            self._armed = due
            self._port.set_timer("retry", max(0.0, due - now))
