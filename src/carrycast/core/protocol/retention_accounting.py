"""Retention accounting of one node: for each level, events accepted = events kept + events removed, by reason.

Computed from the facts that a protocol records (`store`, `evict`, and `drop` during its start) and compared with its
retention log. An environment that stores the counters with the log keeps them over restarts.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol.retention import GUARANTEED, MAY_END, RetentionLevel, RetentionLog

CUSTODY = "custody"
"""The kind of fact that records a custody transfer to this node."""
NOT_KEPT = "not_kept"
"""The protocol sent the event and does not keep it."""
INTO_CUSTODY = "into_custody"
"""Custody of a copy was transferred to this node, which changes its level."""
STORE_FAILED = "store_failed"
"""The event was in memory only, because a write failed, and was lost in a restart. No guarantee applied."""


class LevelAccount(NamedTuple):
    """The counters of one level: events accepted, kept, and removed by reason."""

    accepted: int
    kept: int
    removed: Mapping[str, int]


class RetentionAccounts:
    """The retention accounts of one node."""

    def __init__(self, node: NodeId) -> None:
        self._node = node
        self.log: RetentionLog | None = None
        self._accepted: Counter[RetentionLevel] = Counter()
        self._removed: dict[RetentionLevel, Counter[str]] = {level: Counter() for level in RetentionLevel}
        self._levels: dict[EventId, RetentionLevel] = {}
        self._kept: Counter[RetentionLevel] = Counter()
        self._found: Counter[RetentionLevel] | None = None
        """The events found in the log during a start; None after the start."""

    # Inputs.

    def start(self, log: RetentionLog | None) -> None:
        """The node starts: its protocol holds the events of the log."""
        self.log = log
        self._levels.clear()
        self._kept.clear()
        self._found = Counter()

    def finish_start(self) -> str | None:
        """The start is finished. Returns an error if guaranteed events are missing; their loss is accounted for."""
        assert self._found is not None
        missing = {
            level: self._accepted[level] - self._removed[level].total() - self._kept[level] for level in RetentionLevel
        }
        self._found = None
        if self.log is not None:
            self.log.finish_start()
        for level, number in missing.items():
            if number > 0:
                self._removed[level][STORE_FAILED] += number
            else:
                # The events had been removed, but the removal was not written.
                self._accepted[level] -= number
        lost = {level: number for level, number in missing.items() if number > 0 and level in GUARANTEED}
        return ", ".join(f"{number} {level} events are missing" for level, number in lost.items()) or None

    def on_store(self, id: EventId) -> None:
        """The protocol stored an event."""
        before, logged = self._levels.get(id), None if self.log is None else self.log.level(id)
        if before is not None:
            if logged is None or logged is before:
                return
            # Another copy was recorded first, as by repositories of the tree protocol: the log has the level.
            self._count(before, -1)
        self._levels[id] = level = logged or self._other(id)
        self._count(level, 1)

    def on_custody(self, id: EventId) -> None:
        """Custody of an event was transferred to this node, which may have had a copy before."""
        before, now = self._levels.get(id), None if self.log is None else self.log.level(id)
        if before is not None and now is not None and before is not now:
            self._levels[id] = now
            self._kept[before] -= 1
            self._removed[before][INTO_CUSTODY] += 1
            self._kept[now] += 1
            self._accepted[now] += 1

    def on_evict(self, id: EventId, reason: str) -> str | None:
        """The protocol removed an event; returns an error if a guarantee is violated."""
        level = self._levels.get(id)
        if level is None or (self.log is not None and self.log.level(id) is not None):
            # The protocol may keep another copy, as repositories of the tree protocol do.
            return None
        del self._levels[id]
        self._kept[level] -= 1
        self._removed[level][reason] += 1
        if level in GUARANTEED and reason not in MAY_END:
            return f"event {id} has a retention guarantee ({level}), and was removed as {reason}"
        return None

    def on_drop(self, id: EventId, reason: str) -> str | None:
        """During a start: the protocol dropped an event of the log; returns an error if a guarantee is violated."""
        level = None if self._found is None or self.log is None else self.log.loaded_level(id)
        if level is None:
            return None
        self._removed[level][reason] += 1
        if level in GUARANTEED and reason not in MAY_END:
            return f"event {id} has a retention guarantee ({level}), and was dropped at a start as {reason}"
        return None

    def on_published(self, id: EventId) -> None:
        """The protocol handled an event published here, and may not have stored it."""
        if id not in self._levels:
            self._accepted[RetentionLevel.ACCEPTED] += 1
            self._removed[RetentionLevel.ACCEPTED][NOT_KEPT] += 1

    # Results.

    def accounts(self) -> dict[RetentionLevel, LevelAccount]:
        """The accounts of all levels that ever had an event."""
        return {
            level: LevelAccount(self._accepted[level], self._kept[level], dict(self._removed[level]))
            for level in RetentionLevel
            if self._accepted[level]
        }

    def imbalance(self) -> str | None:
        """The first inconsistency within the accounts, or between them and the log; None if there is none."""
        usage = {} if self.log is None else self.log.usage
        for level in RetentionLevel:
            accepted, removed, kept = self._accepted[level], self._removed[level].total(), self._kept[level]
            if accepted != kept + removed:
                return f"{level}: {accepted} events accepted, {kept} kept and {removed} removed"
            if level in GUARANTEED and level in usage and usage[level].events != kept:
                return f"{level}: {kept} events should be kept, and {usage[level].events} are in the log"
        return None

    def counters(self) -> dict[str, int]:
        """The counters to store with the log, by name."""
        found = {f"{level}/accepted": number for level, number in self._accepted.items()}
        for level, removed in self._removed.items():
            found |= {f"{level}/removed/{reason}": number for reason, number in removed.items()}
        return found

    def restore(self, counters: Mapping[str, int]) -> None:
        """Restore the counters of the previous run."""
        for name, number in counters.items():
            level, _, what = name.partition("/")
            if what == "accepted":
                self._accepted[RetentionLevel(level)] = number
            else:
                self._removed[RetentionLevel(level)][what.partition("/")[2]] = number

    def _count(self, level: RetentionLevel, events: int) -> None:
        self._kept[level] += events
        if self._found is None:
            self._accepted[level] += events

    def _other(self, id: EventId) -> RetentionLevel:
        return RetentionLevel.ACCEPTED if id.source == self._node else RetentionLevel.CARRIED
