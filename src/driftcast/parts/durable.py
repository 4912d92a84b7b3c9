"""What outlives a crash: a shelf of events on the durable store, a leased buffer and a memory of events met upon it.

Ends are points of the node's own clock, which runs on over its starts.
"""

import heapq
import struct
from typing import NamedTuple

import msgspec

from driftcast.model import Event, EventId, NodeId
from driftcast.parts.buffer import LeasedBuffer, Stored
from driftcast.parts.seen import SeenCache
from driftcast.protocol import DurableStore, Fact, Port

_HELD, _MET = b"held/", b"met/"
_END = struct.Struct(">d")
_ID = struct.Struct(">QQ")


class Kept(NamedTuple):
    """What is written of an event that a node holds, the same by every protocol: so one takes over from another what
    the node held before its configuration was changed."""

    until: float
    event: Event
    hops: int
    sender: NodeId | None = None
    """From whom it came, where that matters."""
    attempts: int | None = None
    """How many are left, where they are counted."""


class Shelf:
    """What is held, in the order in which it came, over crashes."""

    __slots__ = ("_arrivals", "_keys", "_store")

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self._arrivals = 0
        self._keys: dict[EventId, bytes] = {}

    def load(self) -> list[Kept]:
        """What was there when the node last ran."""
        decode = msgspec.msgpack.Decoder(Kept).decode
        found = []
        for key, value in list(self._store.items(_HELD)):
            kept = decode(value)
            # Keys count arrivals.
            self._arrivals = int.from_bytes(key[len(_HELD) :]) + 1
            self._keys[kept.event.id] = key
            found.append(kept)
        return found

    def put(self, kept: Kept) -> None:
        """Write an event, or anew what is to be known of it."""
        key = self._keys.get(kept.event.id)
        if key is None:
            key = self._keys[kept.event.id] = _HELD + self._arrivals.to_bytes(8)
            self._arrivals += 1
        self._store.put(key, msgspec.msgpack.encode(kept))

    def erase(self, id: EventId) -> None:
        """An event that is there goes."""
        self._store.delete(self._keys.pop(id))


class DurableBuffer(LeasedBuffer):
    """One whose events are on a shelf, so that what is read back makes room in the order in which it came."""

    __slots__ = ("_shelf",)

    def __init__(self, capacity: int, store: DurableStore) -> None:
        super().__init__(capacity)
        self._shelf = Shelf(store)

    def load(self, latest: float) -> list[Stored]:
        """What was held when the node last ran, oldest arrival first; no lease ends later than `latest`, whatever the
        clock was then. What ended since is for `expire`; what no longer fits because the capacity is less now had to
        go, and is returned."""
        gone = []
        for until, event, hops, *_ in self._shelf.load():
            evicted = super().add(Stored(min(until, latest), event.id, event, hops))
            if evicted is not None:
                self._shelf.erase(evicted.id)
                gone.append(evicted)
        return gone

    def add(self, stored: Stored) -> Stored | None:
        evicted = super().add(stored)
        if evicted is not None:
            self._shelf.erase(evicted.id)
        self._shelf.put(Kept(stored.until, stored.event, stored.hops))
        return evicted

    def resize(self, capacity: int) -> list[Stored]:
        gone = super().resize(capacity)
        for stored in gone:
            self._shelf.erase(stored.id)
        return gone

    def discard(self, event: EventId) -> bool:
        if event in self.events:
            self._shelf.erase(event)
        return super().discard(event)

    def expire(self, now: float) -> list[Stored]:
        gone = super().expire(now)
        for stored in gone:
            self._shelf.erase(stored.id)
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


def memory(capacity: int, store: DurableStore | None) -> Memory:
    """On a durable store, or without one for as long as the node runs."""
    if store is None:
        return Memory(LeasedBuffer(capacity), SeenCache())
    return Memory(DurableBuffer(capacity, store), DurableSeenCache(store))


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
