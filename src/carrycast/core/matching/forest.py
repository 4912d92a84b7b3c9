"""The fewest filters that cover all of very many, kept up to date as filters come and go.

A forest: the parent of a filter covers it, and a root is covered by no other. Of filters that cover each other the one
with the least text is the parent, so which filters are roots depends on the filters alone, not on how they came. Only
the roots are indexed. When one goes, its children are all that may become roots: what it costs is what has to be said.
"""

from collections.abc import Iterator
from typing import NamedTuple

from carrycast.core.matching.covering import CoverIndex
from carrycast.core.matching.filter import Filter


class CoverChange(NamedTuple):
    """What became of the roots: these are new, those are no more. Texts, in the order to say them."""

    added: tuple[str, ...] = ()
    withdrawn: tuple[str, ...] = ()


NO_CHANGE = CoverChange()


class CoverForest:
    """Filters by canonical text; one that is added several times must be removed as often."""

    __slots__ = ("_children", "_counts", "_index", "_parents")

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._parents: dict[str, str] = {}
        """Of those that are no roots."""
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
        """Another with the same filters, at a small part of what adding them would cost."""
        other = CoverForest()
        other._counts = dict(self._counts)
        other._parents = dict(self._parents)
        other._children = {parent: dict(children) for parent, children in self._children.items()}
        other._index = self._index.copy()
        return other

    def add(self, filter: Filter) -> CoverChange:
        """One filter more."""
        text = filter.text
        count = self._counts[text] = self._counts.get(text, 0) + 1
        if count > 1:
            return NO_CHANGE
        hidden = self._enter(filter)
        return NO_CHANGE if hidden is None else CoverChange((text,), hidden)

    def remove(self, text: str) -> CoverChange:
        """One filter less; raises KeyError if it is not there."""
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
                # Only siblings can have been hidden: the other roots stood beside the old one.
                for sibling in hidden:
                    del added[sibling]
        return CoverChange(tuple(added), (text,))

    def _enter(self, filter: Filter) -> tuple[str, ...] | None:
        """Find a place: None if a root covers the filter, else the roots that it covers now, as a root itself."""
        text, index = filter.text, self._index
        covering = index.covering(filter)
        if covering:
            # Roots do not cover each other, so if one says the same it is the only one.
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
