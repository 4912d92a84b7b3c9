"""When something comes so often that to be woken for each costs more than the work, it is looked at now and then.

As network cards do with interrupts: what comes within a pause is taken together. It costs a few milliseconds where
hundreds of things come a second, and nothing where few do. Who waits for an answer before it says more would only be
slowed down; that a pause has gathered but one thing shows it, and then there is none for a while: for a moment, since
a busy source may falter once, and for twice as long each time that it was in vain again.
"""

GAP_S = 0.002
"""Wake-ups closer together than this are too many."""
STREAK = 8
"""So many of them in a row, and a pause is tried."""
PAUSE_S = 0.005
FIRST_SHY_S, SHY_S = 0.05, 1.0
"""After a pause that gathered too little; after many of them in a row."""


class Moderation:
    """Of one source."""

    __slots__ = ("_last_s", "_paused", "_shy_s", "_shy_until_s", "_streak")

    def __init__(self) -> None:
        self._last_s = 0.0
        self._streak = 0
        self._paused = False
        self._shy_s = FIRST_SHY_S
        self._shy_until_s = 0.0

    def pause_s(self, now_s: float, found: int) -> float:
        """How long not to look, after so much was found; 0: until the system tells of something."""
        if self._paused:
            if found > 1:
                self._shy_s = FIRST_SHY_S
                return PAUSE_S
            self._paused = False
            self._streak = 0
            self._shy_until_s = now_s + self._shy_s
            self._shy_s = min(2 * self._shy_s, SHY_S)
        self._streak = self._streak + 1 if now_s - self._last_s < GAP_S else 0
        self._last_s = now_s
        if self._streak < STREAK or now_s < self._shy_until_s:
            return 0.0
        self._paused = True
        return PAUSE_S
