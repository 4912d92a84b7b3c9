"""What a node has met and what of it it still holds: the hash, the digests and the places of its buffer."""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import inf

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts.buffer import Stored
from carrycast.core.parts.durable import memory, reload
from carrycast.core.parts.log import Log
from carrycast.core.parts.seen import BoundedSeenCache
from carrycast.core.protocol import DurableStore, Fact, Port
from carrycast.protocols.drift.keeping import Keeping
from carrycast.protocols.drift.messages import MAX_RUNS_BYTES, PART, Digest
from carrycast.protocols.drift.runs import RunsOf, ids_in, pack, pack_bits, runs_of
from carrycast.protocols.drift.sethash import SetHash
from carrycast.protocols.drift.settings import DriftSettings

LEASE = "lease"
STEP_S = 1.0
"""By less than that a clock is late or early; by more it was set."""
FORGOTTEN_PART = 64
"""Of `max_met`, the part that is forgotten at once where promised events end first."""


class Holdings:
    """Every event met whose lease runs, by id and by hash. The events themselves are in the buffer, or were."""

    def __init__(
        self, port: Port, settings: DriftSettings, keeping: Keeping, store: DurableStore | None = None
    ) -> None:
        self._port = port
        self.keeping = keeping
        self._settings = settings
        # Each promised event is met for as long as it is kept, so there have to be fewer of them than can be met.
        promised = 3 * settings.max_met // 4
        self.log = (
            None if store is None else Log(store, settings.log_bytes, settings.max_lease_s, "max_lease_s", promised)
        )
        self._buffer = memory(settings.buffer, self.log, store).buffer
        self.held = self._buffer.events
        """What the buffer holds, by id; to be read only."""
        self.hash = SetHash()
        """Of all that was met and lives."""
        self.met = self.hash.traces
        """Every event that was met and lives; to be read only."""
        self._quiet: dict[NodeId, dict[EventId, None]] = {}
        """What came by paths, by source: held, and not compared with anybody while the paths stand."""
        self._past = BoundedSeenCache(settings.max_met)
        self._ends: list[tuple[float, EventId]] = []
        self._watching_until = inf
        self._seen_s = -inf
        """The last time that was seen on the clock."""
        self._runs: RunsOf | None = None
        self.crowded = False
        """Whether it may soon matter what others hold."""

    def __len__(self) -> int:
        return len(self.met)

    def __contains__(self, id: EventId) -> bool:
        return id in self.met

    def load(self, now: float) -> None:
        """What was held when the node last ran is met and held again; what else it had met comes anew."""
        reload(self._port, now, self._buffer, self._settings.max_lease_s)
        for id, stored in self.held.items():
            heapq.heappush(self._ends, (stored.until, id))
            self._meet(id)
            self.keeping.add(id, b"")
        self._look_for_room()

    def knows(self, id: EventId) -> bool:
        """Whether it was met, even if its lease is over."""
        return id in self.met or id in self._past.ids or (bool(self._quiet) and self.is_quiet(id))

    def has_heard_of(self, id: EventId) -> bool:
        """Whether it was met; if it came by a path, it is everybody's now that others speak of it."""
        return id in self.met or self.release_one(id) or self.knows(id)

    def is_quiet(self, id: EventId) -> bool:
        """Whether it came by a path that stands."""
        return id in self._quiet.get(id.source, ())

    def get(self, id: EventId) -> Stored | None:
        """The event, if it is held."""
        return self._buffer.get(id)

    def serving(self, now: float, filter: str, attributes: dict[str, str | int | float | bool]) -> list[Stored]:
        """What is held, matches, and somebody with these attributes may see."""
        return self._buffer.serving(now, filter, attributes)

    def add(self, now: float, stored: Stored, names: bytes = b"", quiet: bool = False) -> None:
        """An event that was not met before; the frame that brought it names others. `quiet` if it came by a path."""
        self._look_at_clock(now, self._seen_s)
        if len(self._ends) >= self._settings.max_met:
            self._forget_one(now)
        id = stored.id
        heapq.heappush(self._ends, (stored.until, id))
        if quiet:
            self._quiet.setdefault(id.source, {})[id] = None
        else:
            self._meet(id)
        self._hold(stored, names)

    def hold_again(self, stored: Stored) -> None:
        """An event that was met and let go of: somebody needs it."""
        if stored.id in self.met and stored.id not in self.held:
            self._hold(stored, b"")

    def _hold(self, stored: Stored, names: bytes) -> None:
        if self._buffer.exceeds(self._settings.buffer - 1):
            self._let_go(self.keeping.choose(self._buffer), "buffer_full")
        for evicted in self._buffer.add(stored):
            self._note_gone(evicted.id, "buffer_full")
        self._look_for_room()
        self.keeping.add(stored.id, names)
        self._port.note(Fact("store", stored.id))

    def _meet(self, id: EventId) -> None:
        self.hash.add(id)
        self._runs = None

    def release(self, source: NodeId) -> bool:
        """The paths of a source are over: what came by them is compared like everything; whether there was any."""
        quiet = self._quiet.pop(source, {})
        for id in quiet:
            self._meet(id)
        return bool(quiet)

    def release_one(self, id: EventId) -> bool:
        """Somebody speaks of an event that came by a path here; False if it did not."""
        quiet = self._quiet.get(id.source) if self._quiet else None
        if quiet is None or id not in quiet:
            return False
        del quiet[id]
        self._meet(id)
        return True

    def resize(self, settings: DriftSettings) -> None:
        """Other settings from now on."""
        self._settings = settings
        if self.log is not None:
            self.log.resize(settings.log_bytes, settings.max_lease_s)
        while self._buffer.exceeds(settings.buffer):
            self._let_go(self.keeping.choose(self._buffer), "buffer_full")
        for evicted in self._buffer.resize(settings.buffer):
            self._note_gone(evicted.id, "buffer_full")
        self._look_for_room()

    def on_lease_timer(self, now: float) -> None:
        """What has reached the end of its lease goes."""
        self._look_at_clock(now, self._watching_until)
        self._watching_until = inf
        while self._ends and self._ends[0][0] <= now:
            self._end(now, "lease_over")

    def watch_leases(self, now: float) -> None:
        """Wait for the first lease to end, if that is sooner than what is waited for, or the clock leapt over it."""
        if self._ends:
            first = self._ends[0][0]
            if first < self._watching_until or now - first > STEP_S:
                self._watching_until = first
                self._port.set_timer(LEASE, max(0.0, first - now))

    def stop(self) -> None:
        """Wait for no lease."""
        self._port.cancel_timer(LEASE)

    # What is said of it.

    def runs(self) -> RunsOf:
        """All that was met."""
        if self._runs is None:
            self._runs = runs_of(self.met)
        return self._runs

    def digests(self) -> Iterator[Digest]:
        """Everything as messages: mostly one."""
        met = pack(self.runs())
        if len(met) <= MAX_RUNS_BYTES and len(self.met) <= MAX_RUNS_BYTES:
            yield Digest(met, self._gone(ids_in(self.runs())))
            return
        ids = sorted(self.met)
        low: EventId | None = None
        while True:
            part = self._part(ids, low)
            yield part
            if part.high is None:
                return
            low = _next_id(part.high)

    def digest_after(self, last: EventId | None) -> Digest:
        """One message: everything, or, if that is too long, the part that follows this id."""
        if last is None:
            return next(self.digests())
        return self._part(sorted(self.met), _next_id(last))

    def _part(self, ids: list[EventId], low: EventId | None) -> Digest:
        """What fits one message, from an id on; of ids that make few runs that is more."""
        first = 0 if low is None else bisect_left(ids, low)
        size = MAX_RUNS_BYTES
        while True:
            part = ids[first : first + size]
            runs = pack(runs_of(part))
            if len(runs) <= MAX_RUNS_BYTES:
                high = None if first + size >= len(ids) else part[-1]
                return Digest(runs, self._gone(part), low, high)
            size = max(PART, size // 2)

    def _gone(self, ids: Iterable[EventId]) -> bytes:
        """Which of them are held no longer."""
        return b"" if len(self.held) == len(self._ends) else pack_bits(id not in self.held for id in ids)

    # Leaving.

    def _let_go(self, id: EventId, reason: str) -> None:
        if self._buffer.discard(id):
            self._look_for_room()
            self._note_gone(id, reason)

    def _note_gone(self, id: EventId, reason: str) -> None:
        self.keeping.remove(id)
        self._port.note(Fact("evict", id, reason=reason))

    def _look_for_room(self) -> None:
        self.crowded = 2 * len(self.held) >= self._settings.buffer

    def _forget_one(self, now: float) -> None:
        """Of what was met, something has to be met no more: what ends first, promised events aside. Where those are in
        the way, many others are forgotten at once, so that they are passed over seldom."""
        promised: list[tuple[float, EventId]] = []
        most = 1
        while most and self._ends:
            if self._buffer.is_guaranteed(self._ends[0][1]):
                promised.append(heapq.heappop(self._ends))
                most = max(most, self._settings.max_met // FORGOTTEN_PART)
            else:
                self._end(now, "too_many")
                most -= 1
        for end in promised:
            heapq.heappush(self._ends, end)

    def _end(self, now: float, reason: str) -> None:
        """Of all that was met, what ends first is met no more; copies elsewhere may live a little longer."""
        until, id = heapq.heappop(self._ends)
        if self.hash.remove(id):
            self._runs = None
        else:
            del self._quiet[id.source][id]
        self._let_go(id, reason)
        # Of a lease that the clock leapt over nobody knows how long it goes on elsewhere.
        longest_s = self._settings.max_lease_s if now - until > STEP_S else 0.0
        self._past.add(now, id, max(until, now) + longest_s + self._settings.seen_grace_s)

    def _look_at_clock(self, now: float, earliest: float) -> None:
        """If it shows less than it must, it was set back, and all leases end as much sooner by it."""
        self._seen_s, step_s = now, earliest - now
        if not STEP_S < step_s < inf:
            return
        self._ends = [(until - step_s, id) for until, id in self._ends]
        self._watching_until -= step_s
        for stored in list(self.held.values()):
            self._buffer.replace(stored._replace(until=stored.until - step_s))


def _next_id(id: EventId) -> EventId:
    return EventId(id.source, id.sequence + 1)
