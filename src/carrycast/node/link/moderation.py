"""When something comes so often that to be woken for each costs more than the work, it is looked at now and then.

As network cards do with interrupts: what comes within a pause is taken together, and the pause is as long as it takes
to gather some, within bounds. It costs some milliseconds where hundreds of things come a second, fewer where thousands
do, and nothing where few come. Who waits for an answer before it says more would only be slowed down; that a pause has
gathered but one thing shows it, and then there is none for a while: for a moment, since a busy source may falter once,
and for twice as long each time that it was in vain again.
"""

WAKE_UPS_PER_S = 200.0
"""More than that, for longer than a moment, are too many."""
AT_ONCE = 8.0
"""So many above that, and a pause is tried."""
AIM = 32
"""So much a pause should gather: with more of it, an event costs hardly less."""
LEAST_S, MOST_S = 0.002, 0.02
"""The shortest and the longest pause. The longest is a fiftieth of a second, as people see no film stutter."""
FIRST_SHY_S, SHY_S = 0.05, 1.0
"""After a pause that gathered too little; after many of them in a row."""


class Moderation:
    """Of one source."""

    __slots__ = ("_excess", "_last_s", "_pause_s", "_shy_s", "_shy_until_s")

    def __init__(self) -> None:
        self._last_s = 0.0
        self._excess = 0.0
        """Wake-ups above what is few, as water in a bucket with a hole."""
        self._pause_s = 0.0
        """The pause that has just been; 0 if there was none."""
        self._shy_s = FIRST_SHY_S
        self._shy_until_s = 0.0

    def pause_s(self, now_s: float, found: int) -> float:
        """How long not to look, after so much was found; 0: until the system tells of something."""
        if self._pause_s > 0.0:
            if found > 1:
                self._shy_s = FIRST_SHY_S
                self._pause_s = min(max(self._pause_s * AIM / found, LEAST_S), MOST_S)
                return self._pause_s
            self._pause_s = self._excess = 0.0
            self._shy_until_s = now_s + self._shy_s
            self._shy_s = min(2 * self._shy_s, SHY_S)
        self._excess = max(self._excess - (now_s - self._last_s) * WAKE_UPS_PER_S, 0.0) + 1.0
        self._last_s = now_s
        if self._excess <= AT_ONCE or now_s < self._shy_until_s:
            return 0.0
        self._pause_s = MOST_S
        return self._pause_s
