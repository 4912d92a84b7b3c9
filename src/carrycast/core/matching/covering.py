"""An index of filters that finds those that cover a filter, or that it covers, without comparing all pairs.

Filter F covers filter G if every event that matches G matches F [Carzaniga et al., SIENA, 2001].

`CoverForest` maintains the smallest subset of many filters that covers all of them, as filters are added and removed.
It is a forest, as SIENA's filter poset: the parent of a filter covers it, and a root is covered by no other. Of
equivalent filters the one with the smallest text is the parent, so the roots do not depend on the order of insertion.
Only the roots are indexed. When a root is removed, only its children can become roots.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from carrycast.core.matching.conjunctions import (
    Conditions,
    ConjunctionTree,
    IndexedConjunction,
    conditions_cover,
    conditions_of,
    index_by_name,
    indexable_conjunctions,
    take_samples,
)
from carrycast.core.matching.filter import Filter


class _Known:
    """A filter in the index: its boxes, and their entries in the tree if all can be indexed."""

    __slots__ = ("boxes", "number", "placed", "text")

    def __init__(self, text: str, number: int, boxes: tuple[Conditions, ...] | None) -> None:
        self.text = text
        self.number = number
        self.boxes = boxes
        self.placed: tuple[IndexedConjunction, ...] | None = None


class CoverIndex:
    """Filters by their canonical texts. Results agree with `Filter.covers`, in order of insertion."""

    __slots__ = ("_known", "_next", "_others", "_tree")

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}
        self._tree = ConjunctionTree()
        self._others: dict[str, _Known] = {}
        """Filters that cannot be indexed by a value or an interval; they are tested one by one."""
        self._next = 0

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, text: str) -> bool:
        return text in self._known

    def add(self, filter: Filter) -> None:
        """Add a filter unless it is already known."""
        if filter.text not in self._known:
            self._place(filter.text, _boxes_of(filter))

    def copy(self) -> "CoverIndex":
        """Return a copy, which is cheaper than adding each filter again."""
        other = CoverIndex()
        for known in self._known.values():
            other._place(known.text, known.boxes)
        return other

    def _place(self, text: str, boxes: tuple[Conditions, ...] | None) -> None:
        self._next += 1
        known = self._known[text] = _Known(text, self._next, boxes)
        spread = None if known.boxes is None else [indexable_conjunctions(box) for box in known.boxes]
        if not spread or any(conjunctions is None for conjunctions in spread):
            # Filters that no event matches are here too: every filter covers them.
            self._others[text] = known
            return
        known.placed = tuple([IndexedConjunction(known, one) for conjunctions in spread for one in conjunctions or ()])
        for placed in known.placed:
            self._tree.add(placed)

    def remove(self, text: str) -> None:
        """Remove a filter; raises KeyError if it is not known."""
        known = self._known.pop(text)
        if known.placed is None:
            del self._others[text]
            return
        for placed in known.placed:
            self._tree.remove(placed)

    def find_covering(self, filter: Filter) -> list[str]:
        """Return the known filters that cover a filter, including itself if it is known."""
        boxes = _boxes_of(filter)
        found: list[IndexedConjunction] = []
        if boxes:
            # A filter that covers all boxes covers the first one, and any part of it.
            self._tree.find_covering(index_by_name(tuple(take_samples(boxes[0]))), found)
        elif boxes == ():
            return list(self._known)
        return self._texts(found, lambda known: _covers(known, known.text, boxes, filter.text))

    def find_covered(self, filter: Filter) -> list[str]:
        """Return the known filters that a filter covers, including itself if it is known."""
        boxes = _boxes_of(filter)
        if boxes is not None and () in boxes:
            return list(self._known)
        found: list[IndexedConjunction] = []
        for box in boxes or ():
            self._tree.find_covered(index_by_name(box), found)
        if boxes is None and filter.text in self._known:
            return self._texts(found, lambda known: known.text == filter.text or known.boxes == ())
        wide = _Known(filter.text, 0, boxes)
        return self._texts(found, lambda known: _covers(wide, filter.text, known.boxes, known.text))

    def _texts(self, found: list[IndexedConjunction], holds: Callable[[_Known], bool]) -> list[str]:
        candidates: dict[_Known, None] = dict.fromkeys(self._others.values())
        for placed in found:
            owner = placed.owner
            assert isinstance(owner, _Known)
            candidates[owner] = None
        kept = [known for known in candidates if holds(known)]
        kept.sort(key=lambda known: known.number)
        return [known.text for known in kept]


@lru_cache(maxsize=1024)
def _boxes_of(filter: Filter) -> tuple[Conditions, ...] | None:
    """Return the nonempty boxes of a filter, or None if they are too many."""
    if filter.boxes is None:
        return None
    found = [conditions_of(box) for box in filter.boxes]
    return tuple([box for box in found if box is not None])


def _covers(wide: _Known, wide_text: str, narrow: tuple[Conditions, ...] | None, narrow_text: str) -> bool:
    if wide_text == narrow_text:
        return True
    if narrow is None or wide.boxes is None:
        return narrow == () or (wide.boxes is not None and () in wide.boxes)
    for box in narrow:
        named = index_by_name(box)
        if not any(conditions_cover(one, named) for one in wide.boxes):
            return False
    return True


class CoverChange(NamedTuple):
    """A change of the roots: the texts of added and withdrawn roots, in the order in which to announce them."""

    added: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()


NO_CHANGE = CoverChange()


class CoverForest:
    """Filters by canonical text, with reference counts: a filter stays until it is removed as often as added."""

    __slots__ = ("_children", "_counts", "_index", "_parents")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._parents: dict[str, str] = {}
        """The parents of filters that are not roots."""
        self._children: dict[str, dict[str, None]] = {}
        self._index = CoverIndex()

    def __len__(self) -> int:
        return len(self._counts)

    def __contains__(self, text: str) -> bool:
        return text in self._counts

    def __iter__(self) -> Iterator[str]:
        """Iterate over the roots."""
        return (text for text in self._counts if text not in self._parents)

    def copy(self) -> "CoverForest":
        """Return a copy, which is much cheaper than adding each filter again."""
        other = CoverForest()
        other._counts = dict(self._counts)
        other._parents = dict(self._parents)
        other._children = {parent: dict(children) for parent, children in self._children.items()}
        other._index = self._index.copy()
        return other

    def add(self, filter: Filter) -> CoverChange:
        """Add a filter and return the change of the roots."""
        text = filter.text
        count = self._counts[text] = self._counts.get(text, 0) + 1
        if count > 1:
            return NO_CHANGE
        hidden = self._enter(filter)
        return NO_CHANGE if hidden is None else CoverChange((text,), hidden)

    def remove(self, text: str) -> CoverChange:
        """Remove a filter and return the change of the roots; raises KeyError if it is not known."""
        if self._counts[text] > 1:
            self._counts[text] -= 1
            return NO_CHANGE
        del self._counts[text]
        orphans = self._children.pop(text, {})
        parent = self._parents.pop(text, None)
        if parent is not None:
            siblings = self._children[parent]
            del siblings[text]
            for orphan in orphans:
                siblings[orphan] = None
                self._parents[orphan] = parent
            if not siblings:
                del self._children[parent]
            return NO_CHANGE
        self._index.remove(text)
        added: dict[str, None] = {}
        for orphan in orphans:
            self._parents.pop(orphan)
            hidden = self._enter(Filter(orphan))
            if hidden is not None:
                added[orphan] = None
                # Only siblings can be covered: no other root was covered by the old one.
                for sibling in hidden:
                    del added[sibling]
        return CoverChange(tuple(added), (text,))

    def _enter(self, filter: Filter) -> tuple[str, ...] | None:
        """Insert a filter. Return None if a root covers it, else the roots that it covers and replaces."""
        text, index = filter.text, self._index
        covering = index.find_covering(filter)
        if covering:
            # Roots do not cover each other, so an equivalent root is the only one that covers it.
            root = covering[0]
            if text > root or not filter.covers(Filter(root)):
                self._adopt(root, text)
                return None
        hidden = tuple(index.find_covered(filter))
        for root in hidden:
            index.remove(root)
            self._adopt(text, root)
        index.add(filter)
        return hidden

    def _adopt(self, parent: str, child: str) -> None:
        self._parents[child] = parent
        self._children.setdefault(parent, {})[child] = None
