"""How often: what keeps neighbors who ask without end from being served without end."""

from collections.abc import Hashable

from carrycast.core.model import NodeId

WINDOW_S = 60.0
MAX_KEYS = 1 << 14
"""More keys than that in one minute are refused: a flood of inventions cannot fill the memory."""

DIGESTS = 2
"""Digests that a neighbor may draw at once: one may be lost."""
MAX_DRAWING = 1024
"""Neighbors whose draws are remembered."""


class PerMinute:
    """Counts by key, which begin anew every minute."""

    __slots__ = ("_counts", "_since")

    def __init__(self) -> None:
        self._since = 0.0
        self._counts: dict[Hashable, int] = {}

    def allows(self, now: float, key: Hashable, most: int) -> bool:
        """Count once more; False if that is too often."""
        # A clock that steps back begins a new minute as well.
        if not 0.0 <= now - self._since < WINDOW_S:
            self._since = now
            self._counts.clear()
        count = self._counts.get(key, 0)
        if count >= most or (not count and len(self._counts) >= MAX_KEYS):
            return False
        self._counts[key] = count + 1
        return True


class _Bucket:
    """A token bucket of bytes."""

    __slots__ = ("earned", "level", "since")

    def __init__(self, now: float, earned: int, level: float) -> None:
        self.since = now
        self.earned = earned
        self.level = level

    def fill(self, now: float, earned: int, most: float, fill_s: float) -> float:
        """What is in it: it fills within `fill_s`, and by what was earned."""
        # By a clock that was set back no time has passed.
        passed_s = max(0.0, now - self.since)
        self.level = min(most, self.level + most * passed_s / fill_s + (earned - self.earned))
        self.since, self.earned = now, earned
        return self.level


class DigestBudget:
    """How many bytes of digests neighbors may draw by hashes that differ: each of them, and all together.

    A bucket holds two digests of what was met. It fills within the longest interval, after which a digest is due
    anyway, and by as many bytes as the events have that were met meanwhile: where much is new, more has to be compared.
    """

    def __init__(self) -> None:
        self.earned = 0
        """Bytes of the events met so far."""
        self._all: _Bucket | None = None
        self._of: dict[NodeId, _Bucket] = {}
        """Of neighbors, also past ones, so that a neighbor that comes again does not begin again; the last to draw is
        last."""

    def allows(self, now: float, node: NodeId, size: int, fill_s: float, first: bool) -> bool:
        """Whether a neighbor may draw a digest of so many bytes; if so, it is charged. The first after it came needs no
        room in the bucket of all: every newcomer needs that one, however many come."""
        most = DIGESTS * size
        own = self._of.pop(node, None) or _Bucket(now, self.earned, most)
        self._of[node] = own
        if len(self._of) > MAX_DRAWING:
            del self._of[next(iter(self._of))]
        together = self._all = self._all or _Bucket(now, self.earned, most)
        in_own = own.fill(now, self.earned, most, fill_s)
        in_all = together.fill(now, self.earned, most, fill_s)
        if in_own < size or (in_all < size and not first):
            return False
        own.level -= size
        together.level = max(0.0, in_all - size)
        return True
