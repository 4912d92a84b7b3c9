"""How many copies of each event are this node's to hand on, over crashes if it has a durable store.

A copy that is on its way to a neighbor is neither here nor there. What is written changes only when it has arrived: a
node that is killed meanwhile has one copy too many when it is back, which is better than none.
"""

import struct
from abc import ABC, abstractmethod
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.protocol import DurableStore

_COPIES = b"copies/"
_ID = struct.Struct(">QQ")
MAX_COPIES = 1_000_000


class CopyCounts:
    """Of each event that is carried: how many are here, and how many are on their way."""

    __slots__ = ("_here", "_store", "_under_way")

    def __init__(self, store: DurableStore | None) -> None:
        self._store = store
        self._here: dict[EventId, int] = {}
        self._under_way: dict[EventId, int] = {}

    def __contains__(self, id: EventId) -> bool:
        return id in self._here

    def __getitem__(self, id: EventId) -> int:
        """How many are here."""
        return self._here[id]

    def load(self, id: EventId) -> None:
        """An event that the node carried when it last ran, with the copies that it had then."""
        written = None if self._store is None else self._store.get(_key(id))
        # One whose copies were not counted came to this node by another protocol.
        self._here[id] = 1 if written is None else int.from_bytes(written)

    def begin(self, id: EventId, copies: int) -> None:
        """An event is carried from now on."""
        self._here[id] = copies
        self._write(id)

    def give(self, id: EventId, copies: int) -> None:
        """So many leave for a neighbor."""
        self._here[id] -= copies
        self._under_way[id] = self._under_way.get(id, 0) + copies

    def arrived(self, id: EventId, copies: int) -> bool:
        """So many are the neighbor's; True if none are left, here or on their way."""
        self._land(id, copies)
        if copies:
            self._write(id)
        return not self._here[id] and id not in self._under_way

    def came_back(self, id: EventId, copies: int) -> None:
        """So many did not arrive, as far as can be told."""
        self._land(id, copies)
        self._here[id] = min(MAX_COPIES, self._here[id] + copies)

    def forget(self, id: EventId) -> None:
        """An event is carried no longer; one that never was is no mistake."""
        if self._here.pop(id, None) is not None:
            self._under_way.pop(id, None)
            if self._store is not None:
                self._store.delete(_key(id))

    def _land(self, id: EventId, copies: int) -> None:
        left = self._under_way.pop(id, 0) - copies
        if left > 0:
            self._under_way[id] = left

    def _write(self, id: EventId) -> None:
        if self._store is not None:
            self._store.put(_key(id), (self._here[id] + self._under_way.get(id, 0)).to_bytes(4))


def _key(id: EventId) -> bytes:
    return _COPIES + _ID.pack(id.source, id.sequence)


class CopyShare(NamedTuple):
    """How many copies a neighbor gets, and how many stay; with none left the event is no longer carried here."""

    given: int
    kept: int


class CopyRule(ABC):
    """What a protocol decides: how many copies of an event a neighbor is to carry."""

    __slots__ = ()

    @abstractmethod
    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """What a neighbor would get to carry. One that wants the event itself gets it, whatever is said here."""
