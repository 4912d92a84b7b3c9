"""When a source bets on paths, and how long it waits after a bet that was lost."""

from collections import deque

from carrycast.protocols.drift.settings import DriftSettings

EVENTS = 3
"""So many events within the time that links have been quiet make a stream: fewer are not worth the question."""


class Betting:
    """The own bets of a node. Lost ones make it wait twice as long; one that lasted makes it forget that."""

    def __init__(self, settings: DriftSettings, incarnation: int) -> None:
        self.settings = settings
        self.number = incarnation << 20
        self.quiet_s = settings.path_after_s
        """How long links must have been quiet before the next bet."""
        self.open_since: float | None = None
        """Since when events go by paths."""
        self._published: deque[float] = deque(maxlen=EVENTS)

    def worth(self, now: float, quiet_s: float) -> bool:
        """An event is being published, and no link has changed for so long: whether to ask who wants the next ones."""
        self._published.append(now)
        quiet = quiet_s >= self.quiet_s
        often = len(self._published) == EVENTS and now - self._published[0] <= self.quiet_s
        return quiet and often and self.settings.path_share > 0

    def begin(self) -> int:
        """The number of a new bet."""
        self.number += 1
        return self.number

    def opens(self, now: float, steps: int, nodes: int) -> bool:
        """All have answered: whether paths with so many links cost less than to tell so many nodes."""
        worth = steps <= self.settings.path_share * nodes
        if worth and self.open_since is None:
            self.open_since = now
        return worth

    def over(self, now: float) -> None:
        """The bet is over, whether it was open or not."""
        lasted_s = 0.0 if self.open_since is None else now - self.open_since
        self.open_since = None
        if lasted_s >= 2 * self.quiet_s:
            self.quiet_s = self.settings.path_after_s
        else:
            self.quiet_s = min(2 * self.quiet_s, self.settings.path_max_s)
