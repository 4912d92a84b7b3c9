"""Which events a node has met, for as long as a copy of them may still come by."""

import heapq
import struct

from carrycast.core.model import EventId
from carrycast.core.protocol import DurableStore

_MET = b"met/"
_END = struct.Struct(">d")
_ID = struct.Struct(">QQ")


class SeenCache:
    """A set of event ids in which each has an end. What has ended is forgotten at the next `add`."""

    __slots__ = ("_ends", "ids")

    def __init__(self) -> None:
        self.ids: set[EventId] = set()
        self._ends: list[tuple[float, EventId]] = []

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, event: EventId) -> bool:
        return event in self.ids

    def load(self, latest: float) -> None:
        """What was met before the node started: nothing, in memory. See `parts/durable.py`."""

    def add(self, now: float, event: EventId, until: float) -> bool:
        """Remember an event until a time; False if it is known already, and then its end stays as it was."""
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
    """One that a flood of invented events cannot fill: without room, what would end first is forgotten."""

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def add(self, now: float, event: EventId, until: float) -> bool:
        """As of any; a copy of an event that had to make room is taken for new."""
        if not super().add(now, event, until):
            return False
        if len(self.ids) > self._most:
            self.ids.discard(heapq.heappop(self._ends)[1])
        return True


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
