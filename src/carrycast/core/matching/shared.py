"""Answers that many nodes of one process ask for again and again, kept for all of them.

In a simulation hundreds of nodes know the same filters and meet the same events, and matching them anew at each costs
more than choosing links. These are caches and nothing else: bounded, and no answer depends on what is in them. They are
the only state of a process that pure layers share, so it stands here, where an answer follows from its arguments alone.
"""

from functools import lru_cache

from carrycast.core.matching.filter import Filter
from carrycast.core.matching.index import FilterIndex
from carrycast.core.model import Event

KEPT_FILTERS = 50_000
"""More than all nodes of a simulation know together; beyond it they tell theirs again in turn, which is slow."""
KEPT_EVENTS = 4096


@lru_cache(maxsize=1 << 16)
def relation(text: str, other: str) -> int:
    """How two filters cover each other: 1 if the first covers the second, 2 if the second covers the first, 3 if both,
    0 if neither."""
    one, two = Filter(text), Filter(other)
    return one.covers(two) + 2 * two.covers(one)


class SharedMatcher:
    """Matches an event once for all nodes of a process. What a node makes of it depends on its own filters alone."""

    def __init__(self) -> None:
        self._index: FilterIndex[str] = FilterIndex()
        self._matched: dict[int, tuple[Event, list[str]]] = {}
        self.generation = 0
        """Grows when the filters were forgotten to make room; then each node tells its own again."""

    def add(self, text: str, filter: Filter) -> None:
        """Know a filter; the results so far are void then."""
        if text not in self._index:
            self._matched.clear()
            if len(self._index) >= KEPT_FILTERS:
                self._index = FilterIndex()
                self.generation += 1
            self._index.add(text, filter)

    def match(self, event: Event) -> list[str]:
        """The filters of all nodes that an event matches, in the order of their texts."""
        # Keyed by the object: it is kept with its result, so no other can have its identity.
        found = self._matched.get(id(event))
        if found is None:
            if len(self._matched) >= KEPT_EVENTS:
                self._matched.clear()
            found = self._matched[id(event)] = (event, sorted(self._index.match(event.attributes)))
        return found[1]


MATCHER = SharedMatcher()
"""The one of this process."""
