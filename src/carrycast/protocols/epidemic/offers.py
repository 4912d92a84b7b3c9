"""What neighbors hold and this node lacks: who has told of it, what was asked of whom, and what is asked for later.

Ids cost nothing to those who tell of them, so what is remembered of them is bounded. If it is too much, whoever has
told of the most has to do with less: a neighbor that tells of a million events makes nobody else's forgotten.
"""

from collections.abc import Iterable
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.protocols.epidemic.messages import MAX_IDS

STRANGERS: NodeId = -1
"""All who tell without having a link, and share one window."""
FEWEST = 4 * MAX_IDS
TRIES = 16
"""How many ids of another neighbor are given up at most to find room for one."""


class Asked(NamedTuple):
    """Of whom an event was asked, when to ask again, how often it was asked for, and in whose window it still is."""

    neighbor: NodeId
    due: float
    times: int
    window: NodeId | None


class Offers:
    """Bounded in ids altogether, and in those asked of one neighbor that have not come yet."""

    def __init__(self, most: int, window: int) -> None:
        """`most` is how many events can be held: of more there is no use to know, but of a few summaries there is."""
        self.retune(most, window)
        self._holders: dict[EventId, dict[NodeId, None]] = {}
        """Of what is not held here, which neighbors have told that they hold it."""
        self._later: dict[NodeId, dict[EventId, None]] = {}
        """What each has told of and was not asked for yet, because enough is asked of it already."""
        self._strange: dict[NodeId, None] = {}
        """Of those, who had no link when it told."""
        self._loose = 0
        """How much they have told of."""
        self._overflowed: dict[NodeId, None] = {}
        """Neighbors that told of more than could be remembered: they are asked to tell again."""
        self._asked: dict[EventId, Asked] = {}
        self._open: dict[NodeId, int] = {}
        """How many events were asked of each and are neither here nor overdue."""

    def retune(self, most: int, window: int) -> None:
        """Other bounds, for what comes from now on."""
        self._most, self._window = max(most, FEWEST), window

    @property
    def asking(self) -> bool:
        """Whether anything was asked for that has not come."""
        return bool(self._asked)

    def told(self, neighbor: NodeId, ids: Iterable[EventId], linked: bool) -> tuple[list[EventId], int]:
        """A neighbor holds these, which this node lacks: what to ask of it at once, and how many were too many."""
        room = self._room(neighbor if linked else STRANGERS)
        wanted: list[EventId] = []
        refused = 0
        for id in ids:
            if linked and not self.remember(neighbor, id):
                refused += 1
            elif id in self._asked:
                continue
            elif len(wanted) < room:
                wanted.append(id)
            elif linked or self._has_room(neighbor):
                self._wait(neighbor, id, linked)
            else:
                refused += 1
        if refused and linked:
            self._overflowed[neighbor] = None
        return wanted, refused

    def know(self, neighbor: NodeId) -> None:
        """One that may have told before it had a link has one now."""
        if neighbor in self._strange:
            del self._strange[neighbor]
            later = self._later[neighbor]
            self._loose -= len(later)
            for id in later:
                self._holders.setdefault(id, {})[neighbor] = None

    def remember(self, neighbor: NodeId, id: EventId) -> bool:
        """A neighbor holds this; False if that is too much to remember."""
        holders = self._holders.get(id)
        if holders is None:
            if not self._has_room(neighbor):
                return False
            holders = self._holders[id] = {}
        holders[neighbor] = None
        return True

    def more(self, neighbor: NodeId) -> list[EventId]:
        """What to ask of a neighbor now that much of what it was asked for has come, if it is still lacking."""
        later = self._later.get(neighbor)
        strange = neighbor in self._strange
        room = self._room(STRANGERS if strange else neighbor)
        if later is None or room < self._window // 2:
            return []
        wanted: list[EventId] = []
        while later and len(wanted) < room:
            id = next(iter(later))
            del later[id]
            self._loose -= strange
            if id not in self._asked and (strange or neighbor in self._holders.get(id, ())):
                wanted.append(id)
        if not later:
            self._forget_later(neighbor)
        return wanted

    def missed_some(self, neighbor: NodeId) -> bool:
        """Whether a neighbor should tell again of what it holds: once, when all that was remembered is asked for."""
        if neighbor not in self._overflowed or neighbor in self._later:
            return False
        del self._overflowed[neighbor]
        return True

    @property
    def waiting(self) -> list[NodeId]:
        """Of whom more is to be asked."""
        return list(self._later)

    def ask(self, neighbor: NodeId, ids: Iterable[EventId], due: float, linked: bool, times: int = 1) -> None:
        """These are asked for. What is asked for again is in nobody's window any more."""
        window = None if times > 1 else neighbor if linked else STRANGERS
        for id in ids:
            self._asked[id] = Asked(neighbor, due, times, window)
            if window is not None:
                self._open[window] = self._open.get(window, 0) + 1

    def arrived(self, id: EventId) -> None:
        """It need not be asked for any more."""
        asked = self._asked.pop(id, None)
        if asked is not None:
            self._close(asked)

    def holders(self, id: EventId) -> Iterable[NodeId]:
        """Who has told of an event that is held here from now on."""
        return self._holders.pop(id, ())

    def leave(self, neighbor: NodeId) -> list[EventId]:
        """A neighbor has gone, and nothing can be asked of it; what was is to be asked of another."""
        for id in [id for id, holders in self._holders.items() if neighbor in holders]:
            self._let_go(neighbor, id)
        self._forget_later(neighbor)
        self._overflowed.pop(neighbor, None)
        return [id for id, asked in self._asked.items() if asked.neighbor == neighbor]

    def overdue(self, now: float) -> list[EventId]:
        """What should have come by now."""
        return [id for id, asked in self._asked.items() if asked.due <= now]

    def again(self, ids: Iterable[EventId], asks: int) -> dict[tuple[NodeId, int], list[EventId]]:
        """Of whom to ask again, for which time: another neighbor that holds the event, or the same; nobody if nobody
        does, or if it was asked for too often."""
        groups: dict[tuple[NodeId, int], list[EventId]] = {}
        for id in ids:
            before = self._asked.pop(id)
            self._close(before)
            holders = list(self._holders.get(id, ()))
            others = [neighbor for neighbor in holders if neighbor != before.neighbor]
            if holders and before.times < asks:
                groups.setdefault(((others or holders)[0], before.times + 1), []).append(id)
            else:
                self._holders.pop(id, None)
        return groups

    def _room(self, window: NodeId) -> int:
        return self._window - self._open.get(window, 0)

    def _close(self, asked: Asked) -> None:
        if asked.window is not None:
            self._open[asked.window] -= 1
            if not self._open[asked.window]:
                del self._open[asked.window]

    def _has_room(self, neighbor: NodeId) -> bool:
        return len(self._holders) + self._loose < self._most or self._make_room(neighbor)

    def _make_room(self, neighbor: NodeId) -> bool:
        """Whoever has told of the most that is not asked for yet gives some up; False if it is the neighbor itself."""
        for _ in range(TRIES):
            most = max(self._later, key=lambda one: len(self._later[one]), default=neighbor)
            if most == neighbor or len(self._later[most]) <= len(self._later.get(neighbor, ())):
                return False
            id, _ = self._later[most].popitem()
            self._overflowed[most] = None
            if most in self._strange:
                self._loose -= 1
            else:
                self._let_go(most, id)
            if len(self._holders) + self._loose < self._most:
                return True
        return False

    def _wait(self, neighbor: NodeId, id: EventId, linked: bool) -> None:
        later = self._later.setdefault(neighbor, {})
        if not linked:
            self._strange[neighbor] = None
            self._loose += id not in later
        later[id] = None

    def _forget_later(self, neighbor: NodeId) -> None:
        later = self._later.pop(neighbor, {})
        if neighbor in self._strange:
            del self._strange[neighbor]
            self._loose -= len(later)

    def _let_go(self, neighbor: NodeId, id: EventId) -> None:
        holders = self._holders.get(id, {})
        holders.pop(neighbor, None)
        if not holders:
            self._holders.pop(id, None)
