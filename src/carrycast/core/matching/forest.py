"""The smallest subset of many filters that covers all of them, maintained as filters are added and removed.

A forest of covering, as SIENA's filter poset [Carzaniga et al. 2001]: the parent of a filter covers it, and a root is
covered by no other. Of equivalent filters the one with the smallest text is the parent, so the roots do not depend on
the order of insertion. Only the roots are indexed. When a root is removed, only its children can become roots.
"""

from collections.abc import Iterator
from typing import NamedTuple

from carrycast.core.matching.covering import CoverIndex
from carrycast.core.matching.filter import Filter


class CoverChange(NamedTuple):
    """The change of the roots: texts of added and of withdrawn ones, in the order to announce them."""

    added: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()


NO_CHANGE = CoverChange()


class CoverForest:
    """Filters by canonical text, with reference counts: one that is added several times is removed as often."""

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
        """The roots."""
        return (text for text in self._counts if text not in self._parents)

    def copy(self) -> "CoverForest":
        """A copy; much cheaper than adding each filter again."""
        other = CoverForest()
        other._counts = dict(self._counts)
        other._parents = dict(self._parents)
        other._children = {parent: dict(children) for parent, children in self._children.items()}
        other._index = self._index.copy()
        return other

    def add(self, filter: Filter) -> CoverChange:
        """Add a filter."""
        text = filter.text
        count = self._counts[text] = self._counts.get(text, 0) + 1
        if count > 1:
            return NO_CHANGE
        hidden = self._enter(filter)
        return NO_CHANGE if hidden is None else CoverChange((text,), hidden)

    def remove(self, text: str) -> CoverChange:
        """Remove a filter; raises KeyError if it is not there."""
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
        """Insert a filter: None if a root covers it, else the roots that it covers, as a new root."""
        text, index = filter.text, self._index
        covering = index.covering(filter)
        if covering:
            # Roots do not cover each other, so an equivalent root is the only one that covers it.
            root = covering[0]
            if text > root or not filter.covers(Filter(root)):
                self._adopt(root, text)
                return None
        hidden = tuple(index.covered(filter))
        for root in hidden:
            index.remove(root)
            self._adopt(text, root)
        index.add(filter)
        return hidden

    def _adopt(self, parent: str, child: str) -> None:
        self._parents[child] = parent
        self._children.setdefault(parent, {})[child] = None
