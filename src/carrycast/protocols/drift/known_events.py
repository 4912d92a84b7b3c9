"""The known events of a node: all events received whose lease has not expired. Some of them are buffered, the others
were evicted. Their set is what neighbors reconcile, by hash and by digests."""

import heapq
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import inf

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts import BoundedSeenCache, BufferedEvent, DurableLog, make_memory, restore_buffer
from carrycast.core.protocol import DurableStore, Fact, Port
from carrycast.core.wire import LEASE_EXPIRED
from carrycast.protocols.drift.eviction import RendezvousEviction
from carrycast.protocols.drift.messages import IDS_PER_MESSAGE, MAX_RUNS_BYTES, Digest
from carrycast.protocols.drift.runs import RunsOf, iterate_ids, make_runs, pack, pack_bits
from carrycast.protocols.drift.set_hash import SetHash
from carrycast.protocols.drift.settings import DriftSettings

LEASE = "lease"
CLOCK_STEP_S = 1.0
"""A smaller difference is a late or early timer; a larger one means that the clock was set."""
FORGOTTEN_SHARE = 64
"""The share of `max_met` (one in 64) that is forgotten at once where guaranteed events have the earliest ends."""


class KnownEvents:
    """Every event received whose lease runs, by id and by hash. The events themselves are in the buffer, or were."""

    def __init__(
        self, port: Port, settings: DriftSettings, eviction: RendezvousEviction, store: DurableStore | None = None
    ) -> None:
        self._port = port
        self.eviction = eviction
        self._settings = settings
        # A guaranteed event stays known for as long as it is kept, so there must be fewer of them than known ids.
        guaranteed = 3 * settings.max_met // 4
        self.log = (
            None
            if store is None
            else DurableLog(store, settings.log_bytes, settings.max_lease_s, "max_lease_s", guaranteed)
        )
        self._buffer = make_memory(settings.buffer, self.log, store).buffer
        self.buffered = self._buffer.events
        """The events in the buffer, by id; to be read only."""
        self.hash = SetHash()
        """The hash of all listed events."""
        self.ids = self.hash.sketches
        """Every listed event; to be read only."""
        self._unlisted: dict[NodeId, dict[EventId, None]] = {}
        """Events received by multicast trees, by source: buffered, but left out of hash and digests while the tree
        stands."""
        self._expired = BoundedSeenCache(settings.max_met)
        self._ends: list[tuple[float, EventId]] = []
        self._timer_s = inf
        """When the lease timer fires."""
        self._seen_s = -inf
        """The last time that was read from the clock."""
        self._runs: RunsOf | None = None
        self.nearly_full = False
        """Whether the buffer is at least half full: then the holders of events are recorded for the eviction."""

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, id: EventId) -> bool:
        return id in self.ids

    def load(self, now: float) -> None:
        """Read the buffered events of the last run from the store. Other events that were known then are received
        again."""
        restore_buffer(self._port, now, self._buffer, self._settings.max_lease_s)
        for id, stored in self.buffered.items():
            heapq.heappush(self._ends, (stored.until, id))
            self._list(id)
            self.eviction.add(id, b"")
        self._update_nearly_full()

    def is_duplicate(self, id: EventId) -> bool:
        """Whether the event was received before, even if its lease has expired."""
        return id in self.ids or id in self._expired.ids or (bool(self._unlisted) and self.is_unlisted(id))

    def on_mention(self, id: EventId) -> bool:
        """A neighbor mentions an event: if it is unlisted here, it becomes listed. Returns whether it was received
        before."""
        return id in self.ids or self.list_event(id) or self.is_duplicate(id)

    def is_unlisted(self, id: EventId) -> bool:
        """Whether the event was received by a tree that stands."""
        return id in self._unlisted.get(id.source, ())

    def get(self, id: EventId) -> BufferedEvent | None:
        """The event, if it is buffered."""
        return self._buffer.get(id)

    def find_matching(
        self, now: float, filter: str, attributes: dict[str, str | int | float | bool]
    ) -> list[BufferedEvent]:
        """The buffered events that match and that a subscriber with these attributes may see."""
        return self._buffer.find_matching(now, filter, attributes)

    def add(self, now: float, stored: BufferedEvent, holders: bytes = b"", unlisted: bool = False) -> None:
        """Add a new event; the frame that brought it lists holders. `unlisted` if it was received by a tree."""
        self._check_clock(now, self._seen_s)
        if len(self._ends) >= self._settings.max_met:
            self._forget_earliest(now)
        id = stored.id
        heapq.heappush(self._ends, (stored.until, id))
        if unlisted:
            self._unlisted.setdefault(id.source, {})[id] = None
        else:
            self._list(id)
        self._store(stored, holders)

    def restore(self, stored: BufferedEvent) -> None:
        """Buffer an evicted event again, because a neighbor is missing it."""
        if stored.id in self.ids and stored.id not in self.buffered:
            self._store(stored, b"")

    def _store(self, stored: BufferedEvent, holders: bytes) -> None:
        if self._buffer.exceeds(self._settings.buffer - 1):
            self._evict(self.eviction.choose(self._buffer), "buffer_full")
        for evicted in self._buffer.add(stored):
            self._note_evicted(evicted.id, "buffer_full")
        self._update_nearly_full()
        self.eviction.add(stored.id, holders)
        self._port.note(Fact("store", stored.id))

    def _list(self, id: EventId) -> None:
        self.hash.add(id)
        self._runs = None

    def list_all(self, source: NodeId) -> bool:
        """The tree of a source is torn down: its events are reconciled like all others. Returns whether there were
        any."""
        unlisted = self._unlisted.pop(source, {})
        for id in unlisted:
            self._list(id)
        return bool(unlisted)

    def list_event(self, id: EventId) -> bool:
        """List an event that a neighbor mentions. Returns False if it was not received by a tree here."""
        unlisted = self._unlisted.get(id.source) if self._unlisted else None
        if unlisted is None or id not in unlisted:
            return False
        del unlisted[id]
        self._list(id)
        return True

    def resize(self, settings: DriftSettings) -> None:
        """Use other settings from now on."""
        self._settings = settings
        if self.log is not None:
            self.log.resize(settings.log_bytes, settings.max_lease_s)
        while self._buffer.exceeds(settings.buffer):
            self._evict(self.eviction.choose(self._buffer), "buffer_full")
        for evicted in self._buffer.resize(settings.buffer):
            self._note_evicted(evicted.id, "buffer_full")
        self._update_nearly_full()

    def on_lease_timer(self, now: float) -> None:
        """Remove the events whose lease has expired."""
        self._check_clock(now, self._timer_s)
        self._timer_s = inf
        while self._ends and self._ends[0][0] <= now:
            self._remove_earliest(now, LEASE_EXPIRED)

    def arm_lease_timer(self, now: float) -> None:
        """Set the timer to the first end of a lease, if that is sooner than the timer, or the clock was set past it."""
        if self._ends:
            first = self._ends[0][0]
            if first < self._timer_s or now - first > CLOCK_STEP_S:
                self._timer_s = first
                self._port.set_timer(LEASE, max(0.0, first - now))

    def stop(self) -> None:
        """Cancel the timer."""
        self._port.cancel_timer(LEASE)

    # Digests.

    def runs(self) -> RunsOf:
        """The ids of all listed events as runs."""
        if self._runs is None:
            self._runs = make_runs(self.ids)
        return self._runs

    def digests(self) -> Iterator[Digest]:
        """The whole set as messages: mostly one."""
        known = pack(self.runs())
        if len(known) <= MAX_RUNS_BYTES and len(self.ids) <= MAX_RUNS_BYTES:
            yield Digest(known, self._pack_evicted(iterate_ids(self.runs())))
            return
        ids = sorted(self.ids)
        low: EventId | None = None
        while True:
            part = self._digest_part(ids, low)
            yield part
            if part.high is None:
                return
            low = _next_id(part.high)

    def digest_after(self, last: EventId | None) -> Digest:
        """One message: the whole set or, if that is too long, the part that follows this id."""
        if last is None:
            return next(self.digests())
        return self._digest_part(sorted(self.ids), _next_id(last))

    def _digest_part(self, ids: list[EventId], low: EventId | None) -> Digest:
        """As many ids from `low` on as fit one message; the fewer runs they make, the more fit."""
        first = 0 if low is None else bisect_left(ids, low)
        size = MAX_RUNS_BYTES
        while True:
            part = ids[first : first + size]
            runs = pack(make_runs(part))
            if len(runs) <= MAX_RUNS_BYTES:
                high = None if first + size >= len(ids) else part[-1]
                return Digest(runs, self._pack_evicted(part), low, high)
            size = max(IDS_PER_MESSAGE, size // 2)

    def _pack_evicted(self, ids: Iterable[EventId]) -> bytes:
        """A bitmap of the ids that are no longer buffered."""
        return b"" if len(self.buffered) == len(self._ends) else pack_bits(id not in self.buffered for id in ids)

    # Removal.

    def _evict(self, id: EventId, reason: str) -> None:
        if self._buffer.discard(id):
            self._update_nearly_full()
            self._note_evicted(id, reason)

    def _note_evicted(self, id: EventId, reason: str) -> None:
        self.eviction.remove(id)
        self._port.note(Fact("evict", id, reason=reason))

    def _update_nearly_full(self) -> None:
        self.nearly_full = 2 * len(self.buffered) >= self._settings.buffer

    def _forget_earliest(self, now: float) -> None:
        """Forget the known event whose lease ends first, except guaranteed ones. Where guaranteed events end first,
        forget many others at once, so that the guaranteed ones are passed over seldom."""
        guaranteed: list[tuple[float, EventId]] = []
        most = 1
        while most and self._ends:
            if self._buffer.is_guaranteed(self._ends[0][1]):
                guaranteed.append(heapq.heappop(self._ends))
                most = max(most, self._settings.max_met // FORGOTTEN_SHARE)
            else:
                self._remove_earliest(now, "too_many")
                most -= 1
        for end in guaranteed:
            heapq.heappush(self._ends, end)

    def _remove_earliest(self, now: float, reason: str) -> None:
        """Remove the known event whose lease ends first; copies on other nodes may live a little longer."""
        until, id = heapq.heappop(self._ends)
        if self.hash.remove(id):
            self._runs = None
        else:
            del self._unlisted[id.source][id]
        self._evict(id, reason)
        # If the clock was set past the end of the lease, it is unknown how long other copies live.
        longest_s = self._settings.max_lease_s if now - until > CLOCK_STEP_S else 0.0
        self._expired.add(now, id, max(until, now) + longest_s + self._settings.seen_grace_s)

    def _check_clock(self, now: float, earliest: float) -> None:
        """If the clock shows less than it must, it was set back: shorten all leases by as much."""
        self._seen_s, step_s = now, earliest - now
        if not CLOCK_STEP_S < step_s < inf:
            return
        self._ends = [(until - step_s, id) for until, id in self._ends]
        self._timer_s -= step_s
        for stored in list(self.buffered.values()):
            self._buffer.replace(stored._replace(until=stored.until - step_s))


def _next_id(id: EventId) -> EventId:
    return EventId(id.source, id.sequence + 1)
