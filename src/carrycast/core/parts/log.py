"""The retention log of one node: its events in the durable store, bounded in bytes, each with a retention level.

Events published here at level `stored` may take half of the log, and events in custody a quarter. Evictable events use
the rest, at least a quarter: of them, the oldest is evicted first. So neither local events nor those of other nodes can
fill the log alone.
"""

from collections.abc import Mapping
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.protocol import GUARANTEED, UNBOUNDED, DurableStore, RetentionLevel, RetentionLog, Usage
from carrycast.errors import UserError, WorkError

_RECORD = b"held/"
_SHARES = {RetentionLevel.STORED: 2, RetentionLevel.CUSTODY: 4}
"""The divisor of the log size that each guaranteed level may take: one half, one quarter."""
RECORD_BYTES = 64
"""The largest size of a record besides the event, with its key."""
LONGEST_BYTES = 1 << 17
"""More than the size of any event besides its payload."""
FULL_PART = 128
"""A log is full if less than this fraction of it is left for stored events."""

LogBytes = Annotated[
    int,
    Meta(
        ge=1 << 20,
        le=1 << 40,
        description=(
            "with durable = true, size of the retention log: half for events published here at level stored, a "
            "quarter for events in custody; the rest is for other copies, of which the oldest is evicted"
        ),
    ),
]
LOG_BYTES: int = 1 << 27
"""128 MiB: 200,000 events of 300 bytes published at `stored`, and in Python some 1.5 kB of memory for each."""


class LogRecord(NamedTuple):
    """A record of the log. All protocols use the same record, so that events survive a change of the protocol."""

    until: float
    event: Event
    hops: int
    sender: NodeId | None = None
    """The neighbor that sent the event, if the protocol uses it."""
    attempts: int | None = None
    """The attempts left, if the protocol counts them."""
    level: str | None = None
    """The retention level; missing in stores of older versions."""


_encode = msgspec.msgpack.Encoder().encode


class DurableLog(RetentionLog):
    """A retention log in the durable store, in order of arrival."""

    def __init__(
        self, store: DurableStore, most_bytes: int, longest_s: float, lease_setting: str, most_events: int | None = None
    ) -> None:
        """`lease_setting` names the protocol's setting of the longest lease; `most_events` limits the number of
        guaranteed events."""
        self._store = store
        self.most_bytes = most_bytes
        self.longest_s = longest_s
        self._lease_setting = lease_setting
        self._most_events = most_events
        self._arrivals = 0
        self._keys: dict[EventId, tuple[bytes, int]] = {}
        """The key and the size of each record."""
        self._guaranteed: dict[EventId, RetentionLevel] = {}
        self.loose: dict[EventId, RetentionLevel] = {}
        """The events without a guarantee, oldest arrival first; read-only."""
        self._events = dict.fromkeys(RetentionLevel, 0)
        self._lengths = dict.fromkeys(RetentionLevel, 0)
        self._bytes = 0
        self._pledged: EventId | None = None
        self._loaded: dict[EventId, RetentionLevel] = {}

    # Used by the host.

    def rejection(self, event: Event) -> UserError | WorkError | None:
        if event.lease_s > self.longest_s:
            return UserError(
                f"its lease of {event.lease_s:g} s is longer than any event is kept here ({self.longest_s:g} s); "
                f"give a shorter lease_s, or raise {self._lease_setting} in [protocol] of every node"
            )
        used, most = self._lengths[RetentionLevel.STORED], self.most_bytes // _SHARES[RetentionLevel.STORED]
        if used + len(event.payload) + LONGEST_BYTES <= most and self._most_events is None:
            return None  # The usual case, without encoding the event.
        return self._full_error(RetentionLevel.STORED, len(_encode(event)) + RECORD_BYTES)

    def _full_error(self, level: RetentionLevel, length: int) -> WorkError | None:
        used, most = self._lengths[level], self.most_bytes // _SHARES[level]
        if used + length > most:
            return WorkError(
                f"the retention log is full: {self._events[level]} events at level {level} take {used} of {most} "
                "bytes; publish again when leases have ended, give shorter leases, or raise log_bytes in [protocol]"
            )
        if self._most_events is not None and len(self._guaranteed) >= self._most_events:
            return WorkError(
                f"the retention log is full: the protocol keeps at most {self._most_events} guaranteed events; "
                "again when leases have ended, give shorter leases, or raise max_met in [protocol]"
            )
        return None

    def guarantee(self, id: EventId | None) -> None:
        self._pledged = id

    def level(self, id: EventId) -> RetentionLevel | None:
        return self._guaranteed.get(id) or self.loose.get(id)

    def loaded_level(self, id: EventId) -> RetentionLevel | None:
        return self._loaded.get(id)

    def finish_start(self) -> None:
        self._loaded.clear()

    @property
    def usage(self) -> Mapping[RetentionLevel, Usage]:
        return {level: Usage(self._events[level], self._lengths[level]) for level in RetentionLevel}

    @property
    def full(self) -> str | None:
        refused = self._full_error(RetentionLevel.STORED, self.most_bytes // FULL_PART)
        return None if refused is None else str(refused)

    # Used by the protocol.

    def resize(self, most_bytes: int, longest_s: float) -> None:
        """Change the limits; guaranteed events stay."""
        self.most_bytes, self.longest_s = most_bytes, longest_s

    def load(self) -> list[LogRecord]:
        """Read the records of the previous run."""
        decode = msgspec.msgpack.Decoder(LogRecord).decode
        found = []
        for key, value in list(self._store.items(_RECORD)):
            kept = decode(value)
            # Keys are arrival numbers.
            self._arrivals = int.from_bytes(key[len(_RECORD) :]) + 1
            level = self._loaded[kept.event.id] = _level_of(kept)
            self._add_record(kept.event.id, key, len(value), level)
            found.append(kept)
        return found

    @property
    def least_loose_bytes(self) -> int:
        """The bytes that are always left for evictable events."""
        return self.most_bytes - sum(self.most_bytes // part for part in _SHARES.values())

    def is_guaranteed(self, id: EventId) -> bool:
        """Whether an event may be removed only for a reason in `MAY_END`."""
        return id in self._guaranteed

    def can_take(self, event: Event, remaining_s: float) -> bool:
        """Whether this node can accept custody of an event."""
        length = len(_encode(event)) + RECORD_BYTES
        return remaining_s <= self.longest_s and self._full_error(RetentionLevel.CUSTODY, length) is None

    def put(self, kept: LogRecord, custody: bool = False) -> None:
        """Write or update the record of an event. Its level stays, except that custody may be added."""
        id = kept.event.id
        level = self._level_for(kept, custody)
        value = _encode((*kept[:-1], level))
        if id not in self._keys:
            key = _RECORD + self._arrivals.to_bytes(8)
            self._arrivals += 1
            self._add_record(id, key, len(value), level)
        else:
            key = self._keys[id][0]
            if level is not self.level(id) or len(value) != self._keys[id][1]:
                self._remove_record(id)
                self._add_record(id, key, len(value), level)
        self._store.put(key, value)

    def delete(self, id: EventId) -> None:
        """Delete the record of an event."""
        self._store.delete(self._keys[id][0])
        self._remove_record(id)

    def next_eviction(self, most_loose: int) -> EventId | None:
        """The next event to evict if the log is too large: the oldest without a guarantee. None if it is not."""
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

    def _add_record(self, id: EventId, key: bytes, length: int, level: RetentionLevel) -> None:
        self._keys[id] = key, length
        (self._guaranteed if level in GUARANTEED else self.loose)[id] = level
        self._events[level] += 1
        self._lengths[level] += length
        self._bytes += length

    def _remove_record(self, id: EventId) -> None:
        _, length = self._keys.pop(id)
        level = self._guaranteed.pop(id, None) or self.loose.pop(id)
        self._events[level] -= 1
        self._lengths[level] -= length
        self._bytes -= length


def _level_of(kept: LogRecord) -> RetentionLevel:
    """The level of a record. A local event of an older version, without a level, is treated as guaranteed."""
    if kept.level is not None:
        return RetentionLevel(kept.level)
    return RetentionLevel.CARRIED if kept.hops else RetentionLevel.STORED


def capacity_of(events: int, log: DurableLog | None) -> Usage:
    """The capacity of a buffer of so many evictable events."""
    return Usage(events, UNBOUNDED if log is None else log.least_loose_bytes)
