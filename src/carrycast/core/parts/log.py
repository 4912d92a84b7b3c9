"""The retention log of one node: its events on the durable store, bounded in bytes, each kept on the terms of a level.

Events published here at level `stored` may take half of the log, and events in custody of this node a quarter. What is
neither (`loose`) uses what those leave, at least a quarter: the oldest of it makes room. So neither the node's own
publications nor those of others crowd out the other.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import DurableStore
from carrycast.core.protocol.retention import GUARANTEED, UNBOUNDED, RetentionLevel, RetentionLog, Usage
from carrycast.errors import UserError, WorkError

_RECORD = b"held/"
_SHARES = {RetentionLevel.STORED: 2, RetentionLevel.CUSTODY: 4}
"""Which part of the log each promised level may take: one half, one quarter."""
RECORD_BYTES = 64
"""The key of a record and what is in it besides the event, at the most."""
LONGEST_BYTES = 1 << 17
"""More than any event takes besides its payload."""
FULL_PART = 128
"""A log in which less than that part of it is left for stored events is called full."""

LogBytes = Annotated[
    int,
    Meta(
        ge=1 << 20,
        le=1 << 40,
        description=(
            "with durable = true, bytes of events in the store: half for events published here at level stored, a "
            "quarter for events taken over from others; the rest is copies, of which the oldest makes room"
        ),
    ),
]
LOG_BYTES: int = 1 << 27
"""128 MiB: 200,000 events of 300 bytes published at `stored`, and in Python some 1.5 kB of memory for each."""


class LogRecord(NamedTuple):
    """What is written of an event that a node holds, the same by every protocol: so one takes over from another what
    the node held before its configuration was changed."""

    until: float
    event: Event
    hops: int
    sender: NodeId | None = None
    """From whom it came, where that matters."""
    attempts: int | None = None
    """How many are left, where they are counted."""
    level: str | None = None
    """On which terms; a store of an older version does not say."""


_encode = msgspec.msgpack.Encoder().encode


class DurableLog(RetentionLog):
    """Records in the order of arrival, over crashes."""

    def __init__(
        self, store: DurableStore, most_bytes: int, longest_s: float, lease_setting: str, most_events: int | None = None
    ) -> None:
        """`lease_setting` names the protocol's setting of the longest lease, and `most_events` says how many promised
        events it can deal with, if that is bounded."""
        self._store = store
        self.most_bytes = most_bytes
        self.longest_s = longest_s
        self._lease_setting = lease_setting
        self._most_events = most_events
        self._arrivals = 0
        self._keys: dict[EventId, tuple[bytes, int]] = {}
        """The key and the length of each record."""
        self._promised: dict[EventId, RetentionLevel] = {}
        self.loose: dict[EventId, RetentionLevel] = {}
        """What is not promised to anybody, the oldest arrival first; to be read only."""
        self._events = dict.fromkeys(RetentionLevel, 0)
        self._lengths = dict.fromkeys(RetentionLevel, 0)
        self._bytes = 0
        self._pledged: EventId | None = None
        self._loaded: dict[EventId, RetentionLevel] = {}

    # What the host asks.

    def rejection(self, event: Event) -> UserError | WorkError | None:
        if event.lease_s > self.longest_s:
            return UserError(
                f"its lease of {event.lease_s:g} s is longer than any event is kept here ({self.longest_s:g} s); "
                f"give a shorter lease_s, or raise {self._lease_setting} in [protocol] of every node"
            )
        used, most = self._lengths[RetentionLevel.STORED], self.most_bytes // _SHARES[RetentionLevel.STORED]
        if used + len(event.payload) + LONGEST_BYTES <= most and self._most_events is None:
            return None  # As nearly always, so that it is not measured twice.
        return self._no_room(RetentionLevel.STORED, len(_encode(event)) + RECORD_BYTES)

    def _no_room(self, level: RetentionLevel, length: int) -> WorkError | None:
        used, most = self._lengths[level], self.most_bytes // _SHARES[level]
        if used + length > most:
            return WorkError(
                f"the retention log is full: {self._events[level]} events at level {level} take {used} of {most} "
                "bytes; publish again when leases have ended, give shorter leases, or raise log_bytes in [protocol]"
            )
        if self._most_events is not None and len(self._promised) >= self._most_events:
            return WorkError(
                f"the retention log is full: the protocol keeps at most {self._most_events} promised events; "
                "again when leases have ended, give shorter leases, or raise max_met in [protocol]"
            )
        return None

    def guarantee(self, id: EventId | None) -> None:
        self._pledged = id

    def level(self, id: EventId) -> RetentionLevel | None:
        return self._promised.get(id) or self.loose.get(id)

    def loaded_level(self, id: EventId) -> RetentionLevel | None:
        return self._loaded.get(id)

    def finish_start(self) -> None:
        self._loaded.clear()

    @property
    def usage(self) -> Mapping[RetentionLevel, Usage]:
        return {level: Usage(self._events[level], self._lengths[level]) for level in RetentionLevel}

    @property
    def full(self) -> str | None:
        refused = self._no_room(RetentionLevel.STORED, self.most_bytes // FULL_PART)
        return None if refused is None else str(refused)

    # What the protocol writes.

    def resize(self, most_bytes: int, longest_s: float) -> None:
        """Other bounds from now on; what is promised already stays."""
        self.most_bytes, self.longest_s = most_bytes, longest_s

    def load(self) -> list[LogRecord]:
        """What was there when the node last ran."""
        decode = msgspec.msgpack.Decoder(LogRecord).decode
        found = []
        for key, value in list(self._store.items(_RECORD)):
            kept = decode(value)
            # Keys count arrivals.
            self._arrivals = int.from_bytes(key[len(_RECORD) :]) + 1
            level = self._loaded[kept.event.id] = _level_of(kept)
            self._file(kept.event.id, key, len(value), level)
            found.append(kept)
        return found

    @property
    def least_loose_bytes(self) -> int:
        """What is left for events that are not promised, however many are."""
        return self.most_bytes - sum(self.most_bytes // part for part in _SHARES.values())

    def is_guaranteed(self, id: EventId) -> bool:
        """Whether an event may leave for no other reason than `MAY_END` has."""
        return id in self._promised

    def can_take(self, event: Event, remaining_s: float) -> bool:
        """Whether this node can take an event into custody."""
        length = len(_encode(event)) + RECORD_BYTES
        return remaining_s <= self.longest_s and self._no_room(RetentionLevel.CUSTODY, length) is None

    def put(self, kept: LogRecord, custody: bool = False) -> None:
        """Write an event, or again what is to be known of it; its level stays, except that it may come into custody."""
        id = kept.event.id
        level = self._level_for(kept, custody)
        value = _encode((*kept[:-1], level))
        if id not in self._keys:
            key = _RECORD + self._arrivals.to_bytes(8)
            self._arrivals += 1
            self._file(id, key, len(value), level)
        else:
            key = self._keys[id][0]
            if level is not self.level(id) or len(value) != self._keys[id][1]:
                self._unfile(id)
                self._file(id, key, len(value), level)
        self._store.put(key, value)

    def erase(self, id: EventId) -> None:
        """An event that is there goes."""
        self._store.delete(self._keys[id][0])
        self._unfile(id)

    def next_to_go(self, most_loose: int) -> EventId | None:
        """What makes room next, if there is too much: of what nobody was promised, the oldest arrival."""
        loose = self.loose
        if len(loose) > most_loose or (self._bytes > self.most_bytes and len(loose) > 1):
            return next(iter(loose))
        return None

    def _level_for(self, kept: LogRecord, custody: bool) -> RetentionLevel:
        before = self.level(kept.event.id)
        if kept.event.id == self._pledged:
            return RetentionLevel.STORED
        if before in GUARANTEED:
            return RetentionLevel(before)
        if custody:
            return RetentionLevel.CUSTODY
        return before or (RetentionLevel.CARRIED if kept.hops else RetentionLevel.ACCEPTED)

    def _file(self, id: EventId, key: bytes, length: int, level: RetentionLevel) -> None:
        self._keys[id] = key, length
        (self._promised if level in GUARANTEED else self.loose)[id] = level
        self._events[level] += 1
        self._lengths[level] += length
        self._bytes += length

    def _unfile(self, id: EventId) -> None:
        _, length = self._keys.pop(id)
        level = self._promised.pop(id, None) or self.loose.pop(id)
        self._events[level] -= 1
        self._lengths[level] -= length
        self._bytes -= length


def _level_of(kept: LogRecord) -> RetentionLevel:
    """On which terms a record is kept. Of an older version's nobody knows, so an own event is kept as if promised."""
    if kept.level is not None:
        return RetentionLevel(kept.level)
    return RetentionLevel.CARRIED if kept.hops else RetentionLevel.STORED


def capacity_of(events: int, log: DurableLog | None) -> Usage:
    """How much a buffer of so many events holds of what makes room for others."""
    return Usage(events, UNBOUNDED if log is None else log.least_loose_bytes)
