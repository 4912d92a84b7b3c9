"""The books of one node: of each level, events accepted = events kept + events removed, by the name of the reason.

Kept from the outside, by what a protocol notes (`store`, `evict`, and `drop` while it starts), and held against its
retention log. A world that writes them down with the log has them over restarts.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol.retention import MAY_END, PROMISED, Level, RetentionLog

CUSTODY = "custody"
"""The kind of fact by which a protocol notes that it keeps an event from now on that another node lets go of."""
NOT_KEPT = "not_kept"
"""The protocol has sent the event on and does not keep it."""
INTO_CUSTODY = "into_custody"
"""A copy that this node keeps on the terms of its sender from now on: it goes on as another level."""
STORE_FAILED = "store_failed"
"""It was kept in memory, could not be written, and went with a restart; nobody was promised anything."""


class Account(NamedTuple):
    """Of one level: how many events came, how many are kept, and why the others are not."""

    accepted: int
    kept: int
    removed: Mapping[str, int]


class Ledger:
    """What came to one node and what became of it."""

    def __init__(self, node: NodeId) -> None:
        self._node = node
        self.log: RetentionLog | None = None
        self._accepted: Counter[Level] = Counter()
        self._removed: dict[Level, Counter[str]] = {level: Counter() for level in Level}
        self._levels: dict[EventId, Level] = {}
        self._kept: Counter[Level] = Counter()
        self._found: Counter[Level] | None = None
        """What a start has found in the log or dropped from it; None when the start is over."""

    # What happens.

    def start(self, log: RetentionLog | None) -> None:
        """The node starts: what its protocol holds is what the log brings back."""
        self.log = log
        self._levels.clear()
        self._kept.clear()
        self._found = Counter()

    def started(self) -> str | None:
        """The start is over; what is wrong with what it found, if anything is. The books are closed over it by name."""
        assert self._found is not None
        missing = {level: self._accepted[level] - self._removed[level].total() - self._kept[level] for level in Level}
        self._found = None
        if self.log is not None:
            self.log.started()
        for level, number in missing.items():
            if number > 0:
                self._removed[level][STORE_FAILED] += number
            else:
                # They had been removed, and that could not be written.
                self._accepted[level] -= number
        lost = {level: number for level, number in missing.items() if number > 0 and level in PROMISED}
        return ", ".join(f"{number} {level} events are missing" for level, number in lost.items()) or None

    def on_store(self, id: EventId) -> None:
        """The protocol keeps an event."""
        before, logged = self._levels.get(id), None if self.log is None else self.log.level(id)
        if before is not None:
            if logged is None or logged is before:
                return
            # Another copy was noted first, as repositories of the tree do: the level is that of the log.
            self._count(before, -1)
        self._levels[id] = level = logged or self._other(id)
        self._count(level, 1)

    def on_custody(self, id: EventId) -> None:
        """The protocol keeps an event from now on that another node lets go of; it may have kept a copy before."""
        before, now = self._levels.get(id), None if self.log is None else self.log.level(id)
        if before is not None and now is not None and before is not now:
            self._levels[id] = now
            self._kept[before] -= 1
            self._removed[before][INTO_CUSTODY] += 1
            self._kept[now] += 1
            self._accepted[now] += 1

    def on_evict(self, id: EventId, reason: str) -> str | None:
        """The protocol lets an event go; what is wrong with that, if anything is."""
        level = self._levels.get(id)
        if level is None or (self.log is not None and self.log.level(id) is not None):
            # A protocol may keep another copy elsewhere, as repositories of the tree do.
            return None
        del self._levels[id]
        self._kept[level] -= 1
        self._removed[level][reason] += 1
        if level in PROMISED and reason not in MAY_END:
            return f"event {id} was promised to be kept ({level}), and has gone as {reason}"
        return None

    def on_drop(self, id: EventId, reason: str) -> str | None:
        """While the node starts: an event that was kept is kept no longer; what is wrong with that."""
        level = None if self._found is None or self.log is None else self.log.loaded(id)
        if level is None:
            return None
        self._removed[level][reason] += 1
        if level in PROMISED and reason not in MAY_END:
            return f"event {id} was promised to be kept ({level}), and a start has dropped it as {reason}"
        return None

    def on_published(self, id: EventId) -> None:
        """The protocol has dealt with an event of this node; it may not have kept it."""
        if id not in self._levels:
            self._accepted[Level.ACCEPTED] += 1
            self._removed[Level.ACCEPTED][NOT_KEPT] += 1

    # What there is.

    def accounts(self) -> dict[Level, Account]:
        """All levels at which there ever was an event."""
        return {
            level: Account(self._accepted[level], self._kept[level], dict(self._removed[level]))
            for level in Level
            if self._accepted[level]
        }

    def imbalance(self) -> str | None:
        """What does not add up, if anything: the books themselves, or they and the log."""
        usage = {} if self.log is None else self.log.usage
        for level in Level:
            accepted, removed, kept = self._accepted[level], self._removed[level].total(), self._kept[level]
            if accepted != kept + removed:
                return f"{level}: {accepted} events accepted, {kept} kept and {removed} removed"
            if level in PROMISED and level in usage and usage[level].events != kept:
                return f"{level}: {kept} events should be kept, and {usage[level].events} are in the log"
        return None

    def counters(self) -> dict[str, int]:
        """What has to be written with the log: names and numbers."""
        found = {f"{level}/accepted": number for level, number in self._accepted.items()}
        for level, removed in self._removed.items():
            found |= {f"{level}/removed/{reason}": number for reason, number in removed.items()}
        return found

    def restore(self, counters: Mapping[str, int]) -> None:
        """What was written when the node last ran."""
        for name, number in counters.items():
            level, _, what = name.partition("/")
            if what == "accepted":
                self._accepted[Level(level)] = number
            else:
                self._removed[Level(level)][what.partition("/")[2]] = number

    def _count(self, level: Level, events: int) -> None:
        self._kept[level] += events
        if self._found is None:
            self._accepted[level] += events

    def _other(self, id: EventId) -> Level:
        return Level.ACCEPTED if id.source == self._node else Level.CARRIED
