"""Duplicate detection: the ids of received events, kept for as long as a duplicate may still arrive.

An event whose id is in the cache is a duplicate. Each id expires when no copy of its event can be on its way any more.
"""

import heapq
import struct

from carrycast.core.model import EventId
from carrycast.core.protocol import DurableStore

_MET = b"met/"
_END = struct.Struct(">d")
_ID = struct.Struct(">QQ")


class SeenCache:
    """A set of event ids with expiry times, to recognize duplicates. Expired ids are removed at the next `add`."""

    __slots__ = ("_ends", "ids")

    def __init__(self) -> None:
        self.ids: set[EventId] = set()
        self._ends: list[tuple[float, EventId]] = []

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, event: EventId) -> bool:
        return event in self.ids

    def load(self, latest: float) -> None:
        """Restore the ids of the previous run: none, in memory. See `DurableSeenCache`."""

    def add(self, now: float, event: EventId, until: float) -> bool:
        """Remember an event until a time; False if it is a duplicate, whose expiry time then stays the same."""
        ends = self._ends
        ids = self.ids
        while ends and ends[0][0] <= now:
            ids.discard(heapq.heappop(ends)[1])
        if event in ids:
            return False
        ids.add(event)
        heapq.heappush(ends, (until, event))
        return True


class BoundedSeenCache(SeenCache):
    """A cache of bounded size, against floods of forged ids: when it is full, the id that expires first is evicted."""

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def add(self, now: float, event: EventId, until: float) -> bool:
        """Remember an event until a time; a duplicate of an evicted id is taken for new."""
        if not super().add(now, event, until):
            return False
        if len(self.ids) > self._most:
            self.ids.discard(heapq.heappop(self._ends)[1])
        return True


class DurableSeenCache(SeenCache):
    """A cache in the durable store, which recognizes duplicates over crashes too.

    Times are of the node's own clock, which continues over restarts.
    """

    __slots__ = ("_store",)

    def __init__(self, store: DurableStore) -> None:
        super().__init__()
        self._store = store

    def load(self, latest: float) -> None:
        """Restore the ids of the previous run, none with an expiry time after `latest`; expired ids are removed at the
        next `add`."""
        for key, value in self._store.items(_MET):
            id = EventId(*_ID.unpack(key[len(_MET) :]))
            self.ids.add(id)
            heapq.heappush(self._ends, (min(_END.unpack(value)[0], latest), id))

    def add(self, now: float, event: EventId, until: float) -> bool:
        while self._ends and self._ends[0][0] <= now:
            ended = heapq.heappop(self._ends)[1]
            self.ids.discard(ended)
            self._store.delete(_make_key(ended))
        if not super().add(now, event, until):
            return False
        self._store.put(_make_key(event), _END.pack(until))
        return True


def _make_key(event: EventId) -> bytes:
    return _MET + _ID.pack(event.source, event.sequence)
