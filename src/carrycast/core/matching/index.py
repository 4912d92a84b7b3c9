"""One event against very many filters, without looking at each.

A filter is a union of boxes (see `relations`). If each has a single value or an interval of numbers by which it can be
reached, as nearly all filters of applications do, they go into a tree of conjunctions, and nothing else is kept of the
filter. Of any other filter each box is entered under one of its attributes, the one through which an event seems to
reach the fewest filters, and only filters that are reached are then tested in full. Filters without such an attribute
(`x is null`, `true`, too many alternatives) stand on a list that is tested for every event.
"""

from collections.abc import Hashable
from operator import attrgetter
from typing import Any, Generic, TypeVar

from carrycast.core.matching.attribute_index import AccessPath, AttributeAccess, route_to
from carrycast.core.matching.conditions import Conditions, conditions_of, is_selective
from carrycast.core.matching.conjunctions import ConjunctionTree, IndexedConjunction, placements
from carrycast.core.matching.evaluate import Predicate
from carrycast.core.matching.filter import Filter
from carrycast.core.matching.relations import Box
from carrycast.core.model import Attributes

Key = TypeVar("Key", bound=Hashable)


class _Compact(Generic[Key]):
    """A filter whose conjunctions stand in the tree."""

    __slots__ = ("key", "number", "placed")

    def __init__(self, key: Key, number: int, conjunctions: list[Conditions]) -> None:
        self.key = key
        self.number = number
        self.placed = tuple([IndexedConjunction(self, conjunction) for conjunction in conjunctions])


class _Entry(Generic[Key]):
    """Another filter in the index, and the numbers under which its boxes are entered."""

    __slots__ = ("key", "number", "predicate", "routes", "unrouted")

    def __init__(self, key: Key, number: int, predicate: Predicate) -> None:
        self.key = key
        self.number = number
        self.predicate = predicate
        self.routes: list[tuple[int, str, AccessPath]] = []
        self.unrouted: int | None = None


class FilterIndex(Generic[Key]):
    """Filters under keys; `match` gives the keys of those that match an event, in the order of their adding."""

    __slots__ = ("_accesses", "_entries", "_next", "_reached", "_tree", "_unrouted")

    def __init__(self) -> None:
        self._entries: dict[Key, _Compact[Key] | _Entry[Key]] = {}
        self._tree = ConjunctionTree()
        self._reached: dict[int, _Entry[Key]] = {}
        self._unrouted: dict[int, None] = {}
        self._accesses: dict[str, AttributeAccess] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def add(self, key: Key, filter: Filter) -> None:
        """Enter a filter. A key that is present gets the new filter, and its place at the end."""
        if key in self._entries:
            self.remove(key)
        conjunctions = conjunctions_of(filter.boxes)
        self._next += 1
        if conjunctions is not None:
            compact = self._entries[key] = _Compact(key, self._next, conjunctions)
            for placed in compact.placed:
                self._tree.add(placed)
            return
        entry = _Entry(key, self._next, filter.matches)
        self._entries[key] = entry
        routes = self._routes(filter.boxes)
        if routes is None:
            entry.unrouted = self._number(entry)
            self._unrouted[entry.unrouted] = None
            return
        for name, route in routes:
            number = self._number(entry)
            entry.routes.append((number, name, route))
            self._accesses.setdefault(name, AttributeAccess()).add(number, route)

    def remove(self, key: Key) -> None:
        """Take a filter out; raises KeyError if the key is not present."""
        entry = self._entries.pop(key)
        if isinstance(entry, _Compact):
            for placed in entry.placed:
                self._tree.remove(placed)
            return
        if entry.unrouted is not None:
            del self._unrouted[entry.unrouted]
            del self._reached[entry.unrouted]
        for number, name, route in entry.routes:
            access = self._accesses[name]
            access.remove(number, route)
            del self._reached[number]
            if not len(access):
                del self._accesses[name]

    def match(self, attributes: Attributes) -> list[Key]:
        """The keys of the filters that match an event with these attributes, in the order of their adding."""
        reached: list[IndexedConjunction] = []
        self._tree.match(attributes, reached)
        entries: list[Any] = [placed.owner for placed in reached]
        if self._reached:
            entries += self._match_others(attributes)
        if len(entries) > 1:
            entries.sort(key=_BY_NUMBER)
            # A filter with several boxes may be reached by more than one of them.
            last = None
            return [entry.key for entry in entries if entry is not last and (last := entry) is entry]
        return [entry.key for entry in entries]

    def _match_others(self, attributes: Attributes) -> list[_Entry[Key]]:
        found = list(self._unrouted)
        accesses = self._accesses
        for name, value in attributes.items():
            access = accesses.get(name)
            if access is not None:
                access.reach(value, found)
        reached = self._reached
        entries = dict.fromkeys([reached[number] for number in found])
        return [entry for entry in entries if entry.predicate(attributes)]

    def _number(self, entry: _Entry[Key]) -> int:
        number = self._next
        self._next += 1
        self._reached[number] = entry
        return number

    def _routes(self, boxes: tuple[Box, ...] | None) -> list[tuple[str, AccessPath]] | None:
        """For each box the attribute and route to enter it by; None if the filter must be tested for every event."""
        if boxes is None:
            return None
        routes: list[tuple[str, AccessPath]] = []
        for box in boxes:
            best = self._best(box)
            if best is None:
                return None
            routes.append(best)
        return routes

    def _best(self, box: Box) -> tuple[str, AccessPath] | None:
        best: tuple[str, AccessPath] | None = None
        least = 0
        for name, values in box.items():
            if values.absent:
                # An event need not have the attribute, so it cannot be reached by it.
                continue
            route = route_to(values)
            access = self._accesses.get(name)
            cost = (access if access is not None else _UNUSED).cost(route)
            if best is None or cost < least:
                best, least = (name, route), cost
        return best


def conjunctions_of(boxes: tuple[Box, ...] | None) -> list[Conditions] | None:
    """The conjunctions as which boxes can stand in a tree; None if one of them cannot."""
    if boxes is None:
        return None
    found: list[Conditions] = []
    for box in boxes:
        conditions = conditions_of(box)
        if conditions is None:
            continue
        placed = placements(conditions)
        # A pattern, a range of strings or a long list may lead to fewer filters than a value that many share: where one
        # is left beside what the tree enters by, the other way of entering weighs them against each other.
        if placed is None or any(map(is_selective, placed[0])):
            return None
        found += placed
    return found


_BY_NUMBER = attrgetter("number")

# What an attribute that no filter uses yet would cost.
_UNUSED = AttributeAccess()
