"""Interrupt moderation: a source that is ready very often is polled, instead of being waited for each time.

Network cards do so with interrupts (as Linux's NAPI does): what comes within a pause is read together, and the pause is
as long as it takes to gather some, within bounds. It costs some milliseconds of delay where hundreds of things come a
second, fewer where thousands do, and none where few come. A peer that waits for an answer before it sends more would
only be slowed down. A pause that has gathered one thing only is the sign of it, and then there is no polling for a
while: for a moment at first, since a busy source may falter once, and for twice as long each time that polling was in
vain again.
"""

WAKE_UPS_PER_S = 200.0
"""More than that, for longer than a moment, are too many."""
BURST = 8.0
"""So many above that, and a pause is tried."""
TARGET = 32
"""So much a pause should gather: with more of it, an event costs hardly less."""
MIN_PAUSE_S, MAX_PAUSE_S = 0.002, 0.02
"""The longest is a fiftieth of a second, as people see no film stutter."""
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0
"""Without polling, after a pause that gathered too little; after many of them in a row."""


class InterruptModeration:
    """Decides for one source between waiting for readiness and polling. Time is an argument."""

    __slots__ = ("_backoff_s", "_backoff_until_s", "_excess", "_last_s", "_pause_s")

    def __init__(self) -> None:
        self._last_s = 0.0
        self._excess = 0.0
        """Wake-ups above the accepted rate, as a leaky bucket."""
        self._pause_s = 0.0
        """The pause that has just been; 0 if there was none."""
        self._backoff_s = MIN_BACKOFF_S
        self._backoff_until_s = 0.0

    def choose_pause_s(self, now_s: float, found: int) -> float:
        """How long to pause before the next read, after so much was found; 0: until the source is ready."""
        if self._pause_s > 0.0:
            if found > 1:
                self._backoff_s = MIN_BACKOFF_S
                self._pause_s = min(max(self._pause_s * TARGET / found, MIN_PAUSE_S), MAX_PAUSE_S)
                return self._pause_s
            self._pause_s = self._excess = 0.0
            self._backoff_until_s = now_s + self._backoff_s
            self._backoff_s = min(2 * self._backoff_s, MAX_BACKOFF_S)
        self._excess = max(self._excess - (now_s - self._last_s) * WAKE_UPS_PER_S, 0.0) + 1.0
        self._last_s = now_s
        if self._excess <= BURST or now_s < self._backoff_until_s:
            return 0.0
        self._pause_s = MAX_PAUSE_S
        return self._pause_s
