"""A leased buffer and a memory of events met that outlive a crash: the same parts, written to the durable store too.

Ends are points of the node's own clock, which runs on over its starts.
"""

import heapq
import struct
from typing import NamedTuple

import msgspec

from driftcast.model import Event, EventId
from driftcast.parts.buffer import LeasedBuffer, Stored
from driftcast.parts.seen import SeenCache
from driftcast.protocol import DurableStore

_HELD, _MET = b"held/", b"met/"
_END = struct.Struct(">d")
_ID = struct.Struct(">QQ")


class _Written(NamedTuple):
    until: float
    event: Event
    hops: int


class DurableBuffer(LeasedBuffer):
    """Keys count arrivals, so that what is read back makes room in the order in which it came."""

    __slots__ = ("_arrivals", "_keys", "_store")

    def __init__(self, capacity: int, store: DurableStore) -> None:
        super().__init__(capacity)
        self._store = store
        self._arrivals = 0
        self._keys: dict[EventId, bytes] = {}

    def load(self) -> list[Stored]:
        """What was held when the node last ran, oldest arrival first. What ended since is for `expire`; what no longer
        fits because the capacity is less now had to go, and is returned."""
        decode = msgspec.msgpack.Decoder(_Written).decode
        gone = []
        for key, value in list(self._store.items(_HELD)):
            written = decode(value)
            self._arrivals = int.from_bytes(key[len(_HELD) :]) + 1
            self._keys[written.event.id] = key
            evicted = super().add(Stored(written.until, written.event.id, written.event, written.hops))
            if evicted is not None:
                self._erase(evicted)
                gone.append(evicted)
        return gone

    def add(self, stored: Stored) -> Stored | None:
        evicted = super().add(stored)
        if evicted is not None:
            self._erase(evicted)
        key = self._keys[stored.id] = _HELD + self._arrivals.to_bytes(8)
        self._arrivals += 1
        self._store.put(key, msgspec.msgpack.encode(_Written(stored.until, stored.event, stored.hops)))
        return evicted

    def resize(self, capacity: int) -> list[Stored]:
        gone = super().resize(capacity)
        for stored in gone:
            self._erase(stored)
        return gone

    def discard(self, event: EventId) -> bool:
        stored = self.get(event)
        if stored is not None:
            self._erase(stored)
        return super().discard(event)

    def expire(self, now: float) -> list[Stored]:
        gone = super().expire(now)
        for stored in gone:
            self._erase(stored)
        return gone

    def _erase(self, stored: Stored) -> None:
        self._store.delete(self._keys.pop(stored.id))


class DurableSeenCache(SeenCache):
    """Which events were met, over crashes."""

    __slots__ = ("_store",)

    def __init__(self, store: DurableStore) -> None:
        super().__init__()
        self._store = store

    def load(self) -> None:
        """What was met before the node started anew; what ended since goes with the next `add`."""
        for key, value in self._store.items(_MET):
            id = EventId(*_ID.unpack(key[len(_MET) :]))
            self.ids.add(id)
            heapq.heappush(self._ends, (_END.unpack(value)[0], id))

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
