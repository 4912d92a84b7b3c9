"""What outlives a crash: a leased buffer whose events are in a retention log, and a memory of events met.

Ends are points of the node's own clock, which runs on over its starts.
"""

import heapq
import struct
from collections.abc import Sequence
from typing import NamedTuple

from carrycast.core.model import EventId
from carrycast.core.parts.buffer import LeasedBuffer, Stored
from carrycast.core.parts.log import Kept, Log
from carrycast.core.parts.seen import SeenCache
from carrycast.core.protocol import DurableStore, Fact, Port

_MET = b"met/"
_END = struct.Struct(">d")
_ID = struct.Struct(">QQ")


class DurableBuffer(LeasedBuffer):
    """One whose events are in a retention log. Promised events are not counted in `capacity` and make room for nobody;
    of the others, the oldest arrival goes when there are too many or the log has too many bytes."""

    __slots__ = ("log",)

    def __init__(self, capacity: int, log: Log) -> None:
        super().__init__(capacity)
        self.log = log

    def exceeds(self, capacity: int) -> bool:
        return len(self.log.loose) > capacity

    def is_guaranteed(self, event: EventId) -> bool:
        return self.log.is_guaranteed(event)

    def next_to_go(self) -> EventId:
        """The oldest arrival of what is not promised."""
        return next(iter(self.log.loose))

    def load(self, latest: float) -> list[Stored]:
        """What was held when the node last ran, oldest arrival first; no lease ends later than `latest`, whatever the
        clock was then. What ended since is for `expire`; what no longer fits because the capacity is less now had to
        go, and is returned."""
        for kept in self.log.load():
            self._hold(Stored(min(kept.until, latest), kept.event.id, kept.event, kept.hops))
        return self._make_room()

    def add(self, stored: Stored, custody: bool = False) -> Sequence[Stored]:
        self.log.put(Kept(stored.until, stored.event, stored.hops), custody)
        self._hold(stored)
        return self._make_room()

    def replace(self, stored: Stored) -> None:
        self.log.put(Kept(stored.until, stored.event, stored.hops))
        super().replace(stored)

    def resize(self, capacity: int) -> list[Stored]:
        self._capacity = capacity
        return self._make_room()

    def discard(self, event: EventId) -> bool:
        if event in self.events:
            self.log.erase(event)
        return super().discard(event)

    def expire(self, now: float) -> list[Stored]:
        gone = super().expire(now)
        for stored in gone:
            self.log.erase(stored.id)
        return gone

    def _make_room(self) -> list[Stored]:
        gone: list[Stored] = []
        while (id := self.log.next_to_go(self._capacity)) is not None:
            self.log.erase(id)
            gone.append(self.events.pop(id))
        return gone


class DurableSeenCache(SeenCache):
    """Which events were met, over crashes."""

    __slots__ = ("_store",)

    def __init__(self, store: DurableStore) -> None:
        super().__init__()
        self._store = store

    def load(self, latest: float) -> None:
        """What was met before the node started anew, remembered no longer than to `latest`; what ended since goes with
        the next `add`."""
        for key, value in self._store.items(_MET):
            id = EventId(*_ID.unpack(key[len(_MET) :]))
            self.ids.add(id)
            heapq.heappush(self._ends, (min(_END.unpack(value)[0], latest), id))

    def add(self, now: float, event: EventId, until: float) -> bool:
        while self._ends and self._ends[0][0] <= now:
            ended = heapq.heappop(self._ends)[1]
            self.ids.discard(ended)
            self._store.delete(_met_key(ended))
        if not super().add(now, event, until):
            return False
        self._store.put(_met_key(event), _END.pack(until))
        return True


def _met_key(event: EventId) -> bytes:
    return _MET + _ID.pack(event.source, event.sequence)


class Memory(NamedTuple):
    """What a node holds, and what it has met besides."""

    buffer: LeasedBuffer
    met: SeenCache


def memory(capacity: int, log: Log | None, store: DurableStore | None) -> Memory:
    """In a retention log and its store, or without them for as long as the node runs."""
    if log is None or store is None:
        return Memory(LeasedBuffer(capacity), SeenCache())
    return Memory(DurableBuffer(capacity, log), DurableSeenCache(store))


def reload(port: Port, now: float, buffer: LeasedBuffer, longest_s: float) -> list[Stored]:
    """Hold again what a buffer held when the node last ran, by a lease of at most so long; what is over since, or no
    longer fits, and so is not held any more."""
    over = [(stored, "buffer_full") for stored in buffer.load(now + longest_s)]
    over += [(stored, "lease_over") for stored in buffer.expire(now)]
    for stored, reason in over:
        port.note(Fact("drop", stored.id, reason=reason))
    for id in buffer:
        port.note(Fact("store", id))
    return [stored for stored, _ in over]
