"""Caches of matching results that all nodes of a process share.

In a simulation hundreds of nodes know the same filters and receive the same events. Matching them at each node would
cost more than selecting links. The caches are bounded, and no result depends on their content. They are the only
process-wide state of the pure layers.
"""

from functools import lru_cache

from carrycast.core.matching.filter import Filter
from carrycast.core.matching.index import FilterIndex
from carrycast.core.model import Event

KEPT_FILTERS = 50_000
"""More than all nodes of a simulation know together. Beyond it nodes register their filters again, which is slow."""
KEPT_EVENTS = 4096


@lru_cache(maxsize=1 << 16)
def relation(text: str, other: str) -> int:
    """Return the covering relation of two filters: 1 if the first covers the second, 2 if the second covers the first,
    3 if both, 0 if neither."""
    one, two = Filter(text), Filter(other)
    return one.covers(two) + 2 * two.covers(one)


class SharedMatcher:
    """Matches an event once for all nodes of a process; each node then selects its own filters."""

    def __init__(self) -> None:
        self._index: FilterIndex[str] = FilterIndex()
        self._matched: dict[int, tuple[Event, list[str]]] = {}
        self.generation = 0
        """Increases when the filters are cleared. Each node then registers its own again."""

    def add(self, text: str, filter: Filter) -> None:
        """Add a filter, which invalidates the cached results."""
        if text not in self._index:
            self._matched.clear()
            if len(self._index) >= KEPT_FILTERS:
                self._index = FilterIndex()
                self.generation += 1
            self._index.add(text, filter)

    def match(self, event: Event) -> list[str]:
        """Return the filters of all nodes that an event matches, in the order of their texts."""
        # The key is the identity of the event. The event is kept with its result, so its id is not reused.
        found = self._matched.get(id(event))
        if found is None:
            if len(self._matched) >= KEPT_EVENTS:
                self._matched.clear()
            found = self._matched[id(event)] = (event, sorted(self._index.match(event.attributes)))
        return found[1]


MATCHER = SharedMatcher()
"""The matcher of this process."""
