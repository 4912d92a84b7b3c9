"""How often in a minute: what keeps neighbors who ask without end from being served without end."""

from collections.abc import Hashable

WINDOW_S = 60.0
MAX_KEYS = 1 << 14
"""More keys than that in one minute are refused: a flood of inventions cannot fill the memory."""


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
