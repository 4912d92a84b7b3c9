"""Limited replication: how many copies of each event a node may still distribute [Spyropoulos et al. 2005].

A copy in transit to a neighbor counts neither here nor there. The number in the durable store changes only when the
copy has arrived: a node that crashes in between has one copy too many after its restart, which is better than none.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts.buffer import BufferedEvent
from carrycast.core.protocol import DurableStore

_COPIES = b"copies/"
_ID = struct.Struct(">QQ")
MAX_COPIES = 1_000_000


class CopyCounts:
    """The number of copies here and in transit, for each carried event."""

    __slots__ = ("_here", "_in_transit", "_store")

    def __init__(self, store: DurableStore | None) -> None:
        self._store = store
        self._here: dict[EventId, int] = {}
        self._in_transit: dict[EventId, int] = {}

    def __contains__(self, id: EventId) -> bool:
        return id in self._here

    def __getitem__(self, id: EventId) -> int:
        """The number of copies at this node."""
        return self._here[id]

    def load(self, id: EventId) -> None:
        """Restore the number of copies of an event from the previous run."""
        written = None if self._store is None else self._store.get(_key(id))
        # Without a number, the event was stored by another protocol.
        self._here[id] = 1 if written is None else int.from_bytes(written)

    def begin(self, id: EventId, copies: int) -> None:
        """Start to count the copies of an event."""
        self._here[id] = copies
        self._write(id)

    def send(self, id: EventId, copies: int) -> None:
        """Copies are sent to a neighbor."""
        self._here[id] -= copies
        self._in_transit[id] = self._in_transit.get(id, 0) + copies

    def confirm(self, id: EventId, copies: int) -> bool:
        """Copies have arrived at a neighbor; True if none is left here or in transit."""
        self._end_transit(id, copies)
        if copies:
            self._write(id)
        return not self._here[id] and id not in self._in_transit

    def take_back(self, id: EventId, copies: int) -> None:
        """Copies did not arrive, as far as is known, and are this node's again."""
        self._end_transit(id, copies)
        self._here[id] = min(MAX_COPIES, self._here[id] + copies)

    def forget(self, id: EventId) -> None:
        """An event is no longer carried; an unknown event is ignored."""
        if self._here.pop(id, None) is not None:
            self._in_transit.pop(id, None)
            if self._store is not None:
                self._store.delete(_key(id))

    def _end_transit(self, id: EventId, copies: int) -> None:
        left = self._in_transit.pop(id, 0) - copies
        if left > 0:
            self._in_transit[id] = left

    def _write(self, id: EventId) -> None:
        if self._store is not None:
            self._store.put(_key(id), (self._here[id] + self._in_transit.get(id, 0)).to_bytes(4))


def _key(id: EventId) -> bytes:
    return _COPIES + _ID.pack(id.source, id.sequence)


class CopyShare(NamedTuple):
    """The number of copies for a neighbor and for this node; with none left, this node no longer carries the event."""

    given: int
    kept: int


class CopyRule(ABC):
    """The replication rule of a protocol: how many copies of an event a neighbor gets."""

    __slots__ = ()

    @abstractmethod
    def share(self, now: float, stored: BufferedEvent, copies: int, neighbor: NodeId, wanted: bool) -> CopyShare:
        """The copies for a neighbor to carry. A subscriber gets the event in any case."""

    def order(self, now: float, events: list[BufferedEvent], neighbor: NodeId) -> list[BufferedEvent]:
        """The order in which events are offered to a neighbor: by default that of their arrival."""
        return events

    def choose_eviction(self, now: float, events: Iterable[EventId]) -> EventId:
        """The event to evict from a full buffer: by default the oldest arrival. `events` is in order of arrival."""
        return next(iter(events))

    def on_transferred(self, now: float, id: EventId, neighbor: NodeId) -> None:  # noqa: B027 (most rules count none)
        """A neighbor has acknowledged a copy to carry."""

    def on_forgotten(self, id: EventId) -> None:  # noqa: B027 (most rules have no state)
        """An event is no longer carried."""
