"""The filters that a node has heard of: which of them an event matches, and which of them cover which."""

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache

from driftcast.matching import Filter, FilterError, FilterIndex
from driftcast.model import Attributes

EVERYTHING = Filter("").text
"""The canonical text of the filter that every event matches; it covers every other."""

MAX_INTERESTS = 10_000
"""Filters known at one time; forged ones cannot fill the memory."""


@lru_cache(maxsize=1 << 16)
def covers(text: str, other: str) -> bool:
    """Whether one filter covers another, both given by their texts. Nodes ask this of the same few again and again."""
    return Filter(text).covers(Filter(other))


class Interests:
    """A set of filters, known by their texts."""

    __slots__ = ("_covering", "_index", "known")

    def __init__(self) -> None:
        self.known: dict[str, None] = {}
        self._index: FilterIndex[str] = FilterIndex()
        self._covering: dict[str, list[str]] = {}
        """For each filter that is covered by known ones: those."""

    def learn(self, texts: Collection[str]) -> bool:
        """Take filters in; False, and nothing is taken in, if one of them does not parse or they are too many."""
        new = [text for text in texts if text not in self.known]
        if len(self.known) + len(new) > MAX_INTERESTS:
            return False
        try:
            filters = [Filter(text) for text in new]
        except FilterError:
            return False
        for text, parsed in zip(new, filters, strict=True):
            self._index.add(text, parsed)
            for other in self.known:
                if covers(other, text):
                    self._covering.setdefault(text, []).append(other)
                if covers(text, other):
                    self._covering.setdefault(other, []).append(text)
            self.known[text] = None
        return True

    def keep(self, wanted: Iterable[str]) -> None:
        """Forget all filters but these."""
        kept = set(wanted)
        gone = [text for text in self.known if text not in kept]
        for text in gone:
            del self.known[text]
            self._index.remove(text)
            self._covering.pop(text, None)
        if gone:
            for text in list(self._covering):
                left = [other for other in self._covering[text] if other in self.known]
                if left:
                    self._covering[text] = left
                else:
                    del self._covering[text]

    def match(self, attributes: Attributes) -> list[str]:
        """The filters that an event matches, in the order in which they became known."""
        return self._index.match(attributes)

    def covering(self, text: str) -> list[str]:
        """The other known filters that cover a known one."""
        return self._covering.get(text, _NONE)

    def uncovered(self, worth: Mapping[str, float]) -> dict[str, float]:
        """A table of values by filter without the entries that say nothing.

        An entry goes if a covering one has at least its value, so the maximum over the filters that an event matches
        stays what it was. Of two that cover each other and are worth the same, the one known first stays.
        """
        if len(self._covering) == 0:
            return dict(worth)
        order = {text: place for place, text in enumerate(self.known)}
        kept = {}
        for text, value in worth.items():
            for other in self._covering.get(text, _NONE):
                rival = worth.get(other)
                if rival is None or rival < value:
                    continue
                if rival > value or order[other] < order[text] or text not in self._covering.get(other, _NONE):
                    break
            else:
                kept[text] = value
        return kept


_NONE: list[str] = []
