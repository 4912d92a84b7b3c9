"""The filter index: matches an event against many filters without testing each.

A filter is a union of boxes (see `relations`). If every box has a single value or an interval of numbers by which it
can be indexed, as nearly all filters of applications have, the boxes are stored in a tree of conjunctions. Otherwise
each box is indexed by its most selective attribute, and the filters that an event reaches are tested in full. Filters
without such an attribute (`x is null`, `true`, too many alternatives) are tested for every event.
"""

from collections.abc import Hashable
from operator import attrgetter
from typing import Any, Generic, TypeVar

from carrycast.core.matching.attribute_index import AccessPath, AttributeIndex, choose_access_path
from carrycast.core.matching.conjunctions import (
    Conditions,
    ConjunctionTree,
    IndexedConjunction,
    conditions_of,
    indexable_conjunctions,
    is_selective,
)
from carrycast.core.matching.evaluate import Predicate
from carrycast.core.matching.filter import Filter
from carrycast.core.matching.relations import Box
from carrycast.core.model import Attributes

Key = TypeVar("Key", bound=Hashable)


class _TreeEntry(Generic[Key]):
    """A filter that is stored in the tree of conjunctions."""

    __slots__ = ("key", "number", "placed")

    def __init__(self, key: Key, number: int, conjunctions: list[Conditions]) -> None:
        self.key = key
        self.number = number
        self.placed = tuple([IndexedConjunction(self, conjunction) for conjunction in conjunctions])


class _Entry(Generic[Key]):
    """A filter outside of the tree, and the numbers under which its boxes are indexed."""

    __slots__ = ("key", "number", "paths", "predicate", "unindexed")

    def __init__(self, key: Key, number: int, predicate: Predicate) -> None:
        self.key = key
        self.number = number
        self.predicate = predicate
        self.paths: list[tuple[int, str, AccessPath]] = []
        self.unindexed: int | None = None


class FilterIndex(Generic[Key]):
    """Filters by keys. `match` returns the keys of the filters that an event matches, in order of insertion."""

    __slots__ = ("_entries", "_indexes", "_next", "_reached", "_tree", "_unindexed")

    def __init__(self) -> None:
        self._entries: dict[Key, _TreeEntry[Key] | _Entry[Key]] = {}
        self._tree = ConjunctionTree()
        self._reached: dict[int, _Entry[Key]] = {}
        self._unindexed: dict[int, None] = {}
        self._indexes: dict[str, AttributeIndex] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def add(self, key: Key, filter: Filter) -> None:
        """Add a filter. A filter under the same key is replaced, and moves to the end."""
        if key in self._entries:
            self.remove(key)
        conjunctions = conjunctions_of(filter.boxes)
        self._next += 1
        if conjunctions is not None:
            compact = self._entries[key] = _TreeEntry(key, self._next, conjunctions)
            for placed in compact.placed:
                self._tree.add(placed)
            return
        entry = _Entry(key, self._next, filter.matches)
        self._entries[key] = entry
        paths = self._choose_paths(filter.boxes)
        if paths is None:
            entry.unindexed = self._assign_number(entry)
            self._unindexed[entry.unindexed] = None
            return
        for name, path in paths:
            number = self._assign_number(entry)
            entry.paths.append((number, name, path))
            self._indexes.setdefault(name, AttributeIndex()).add(number, path)

    def remove(self, key: Key) -> None:
        """Remove a filter; raises KeyError if the key is unknown."""
        entry = self._entries.pop(key)
        if isinstance(entry, _TreeEntry):
            for placed in entry.placed:
                self._tree.remove(placed)
            return
        if entry.unindexed is not None:
            del self._unindexed[entry.unindexed]
            del self._reached[entry.unindexed]
        for number, name, path in entry.paths:
            index = self._indexes[name]
            index.remove(number, path)
            del self._reached[number]
            if not len(index):
                del self._indexes[name]

    def match(self, attributes: Attributes) -> list[Key]:
        """Return the keys of the filters that match an event with these attributes, in order of insertion."""
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
        found = list(self._unindexed)
        indexes = self._indexes
        for name, value in attributes.items():
            index = indexes.get(name)
            if index is not None:
                index.append_candidates(value, found)
        reached = self._reached
        entries = dict.fromkeys([reached[number] for number in found])
        return [entry for entry in entries if entry.predicate(attributes)]

    def _assign_number(self, entry: _Entry[Key]) -> int:
        number = self._next
        self._next += 1
        self._reached[number] = entry
        return number

    def _choose_paths(self, boxes: tuple[Box, ...] | None) -> list[tuple[str, AccessPath]] | None:
        """Return the attribute and access path of each box; None if the filter is tested for every event."""
        if boxes is None:
            return None
        paths: list[tuple[str, AccessPath]] = []
        for box in boxes:
            best = self._choose_path(box)
            if best is None:
                return None
            paths.append(best)
        return paths

    def _choose_path(self, box: Box) -> tuple[str, AccessPath] | None:
        best: tuple[str, AccessPath] | None = None
        least = 0
        for name, values in box.items():
            if values.absent:
                # An event may lack the attribute, so the box cannot be indexed by it.
                continue
            path = choose_access_path(values)
            index = self._indexes.get(name)
            cost = (index if index is not None else _EMPTY_INDEX).estimate_cost(path)
            if best is None or cost < least:
                best, least = (name, path), cost
        return best


def conjunctions_of(boxes: tuple[Box, ...] | None) -> list[Conditions] | None:
    """Return the conjunctions of boxes for the tree; None if one of them cannot be indexed there."""
    if boxes is None:
        return None
    found: list[Conditions] = []
    for box in boxes:
        conditions = conditions_of(box)
        if conditions is None:
            continue
        placed = indexable_conjunctions(conditions)
        # A pattern, a range of strings or a long list may be more selective than a value that many filters share: the
        # attribute indexes compare their costs, the tree does not.
        if placed is None or any(map(is_selective, placed[0])):
            return None
        found += placed
    return found


_BY_NUMBER = attrgetter("number")

# The index of an attribute that no filter uses yet, for cost estimates.
_EMPTY_INDEX = AttributeIndex()
