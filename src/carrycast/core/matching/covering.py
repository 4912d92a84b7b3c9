"""An index of many filters that finds which of them cover a filter, and which it covers, without comparing all pairs.

Filter F covers filter G if every event that matches G matches F [Carzaniga et al., SIENA, 2001].
"""

from collections.abc import Callable
from functools import lru_cache

from carrycast.core.matching.conditions import Conditions, by_name, conditions_cover, conditions_of, samples
from carrycast.core.matching.conjunctions import ConjunctionTree, IndexedConjunction, indexable_conjunctions
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
        """Add a filter; a known one is ignored."""
        if filter.text not in self._known:
            self._place(filter.text, _boxes_of(filter))

    def copy(self) -> "CoverIndex":
        """A copy; cheaper than adding each filter again."""
        other = CoverIndex()
        for known in self._known.values():
            other._place(known.text, known.boxes)
        return other

    def _place(self, text: str, boxes: tuple[Conditions, ...] | None) -> None:
        self._next += 1
        known = self._known[text] = _Known(text, self._next, boxes)
        spread = None if known.boxes is None else [indexable_conjunctions(box) for box in known.boxes]
        if not spread or any(conjunctions is None for conjunctions in spread):
            # A filter that nothing matches is here too: every filter covers it.
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

    def covering(self, filter: Filter) -> list[str]:
        """The known filters that cover a filter, including itself if it is known."""
        boxes = _boxes_of(filter)
        found: list[IndexedConjunction] = []
        if boxes:
            # A filter that covers all boxes covers the first one, and any part of it.
            self._tree.coverers(by_name(tuple(samples(boxes[0]))), found)
        elif boxes == ():
            return list(self._known)
        return self._texts(found, lambda known: _covers(known, known.text, boxes, filter.text))

    def covered(self, filter: Filter) -> list[str]:
        """The known filters that a filter covers, including itself if it is known."""
        boxes = _boxes_of(filter)
        if boxes is not None and () in boxes:
            return list(self._known)
        found: list[IndexedConjunction] = []
        for box in boxes or ():
            self._tree.covered(by_name(box), found)
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
    """The nonempty boxes of a filter, or None if they are too many."""
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
        named = by_name(box)
        if not any(conditions_cover(one, named) for one in wide.boxes):
            return False
    return True
