"""The filters of other nodes that a node knows. Finds those that an event matches, and those that cover others."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from carrycast.core.matching import MATCHER, Filter, FilterError, relation
from carrycast.core.model import Event

EVERYTHING = Filter("").text
"""The canonical text of the filter that every event matches; it covers every other."""

MAX_INTERESTS = 10_000
"""Filters known at one time; bounds the memory against forged ones."""

MAX_COMPARED = 512
"""Above this number a new filter is not compared with the others; tables then have a few redundant entries."""


class KnownFilters:
    """A set of filters, by their texts. The filter that matches everything is always among them."""

    __slots__ = ("_covering", "_generation", "known")

    def __init__(self) -> None:
        self.known: dict[str, None] = {EVERYTHING: None}
        self._generation = MATCHER.generation
        self._covering: dict[str, list[str]] = {}
        """For each covered filter, the known filters that cover it; EVERYTHING, which covers all, is left out."""

    def learn(self, texts: Collection[str]) -> bool:
        """Add filters; False, and none is added, if one does not parse or they are too many."""
        new = [text for text in texts if text not in self.known]
        if len(self.known) + len(new) > MAX_INTERESTS:
            return False
        try:
            filters = [Filter(text) for text in new]
        except FilterError:
            return False
        for text, parsed in zip(new, filters, strict=True):
            MATCHER.add(text, parsed)
            if len(self.known) <= MAX_COMPARED:
                self._compare(text)
            self.known[text] = None
        return True

    def keep(self, wanted: Iterable[str]) -> None:
        """Remove all filters but these."""
        kept = {EVERYTHING, *wanted}
        gone = [text for text in self.known if text not in kept]
        for text in gone:
            del self.known[text]
            self._covering.pop(text, None)
        if gone:
            for text in list(self._covering):
                left = [other for other in self._covering[text] if other in self.known]
                if left:
                    self._covering[text] = left
                else:
                    del self._covering[text]

    def match(self, event: Event) -> list[str]:
        """The filters that an event matches, in the order of their texts, EVERYTHING last."""
        if self._generation != MATCHER.generation:
            self._register_again()
        known = self.known
        matched = [text for text in MATCHER.match(event) if text in known]
        matched.append(EVERYTHING)
        return matched

    def find_covering(self, text: str) -> Sequence[str]:
        """The known filters that cover a filter, without EVERYTHING."""
        return self._covering.get(text, _NONE)

    def find_covered(self, texts: Collection[str]) -> list[str]:
        """The known filters that one of these covers, without these."""
        if EVERYTHING in texts:
            return [text for text in self.known if text not in texts]
        return [
            covered
            for covered, others in self._covering.items()
            if covered not in texts and any(other in texts for other in others)
        ]

    def remove_redundant(self, worth: Mapping[str, float]) -> dict[str, float]:
        """Return a table of values by filter without its redundant entries.

        An entry is redundant if a covering filter has at least its value: the maximum over the filters that an event
        matches stays the same. Of two equivalent filters of equal value, the one known first stays.
        """
        floor = worth.get(EVERYTHING, -1.0)
        table = {text: value for text, value in worth.items() if value > floor or text == EVERYTHING}
        if not self._covering:
            return table
        order = {text: place for place, text in enumerate(self.known)}
        kept = {}
        for text, value in table.items():
            for other in self._covering.get(text, _NONE):
                rival = table.get(other)
                if rival is None or rival < value:
                    continue
                if rival > value or order[other] < order[text] or text not in self._covering.get(other, _NONE):
                    break
            else:
                kept[text] = value
        return kept

    def _compare(self, text: str) -> None:
        """Find the known filters that cover a new one, and those that it covers."""
        for other in self.known:
            # The texts are passed in order, so that the cache has one entry for each pair.
            found = relation(text, other) if text < other else _TURNED[relation(other, text)]
            if found and other != EVERYTHING:
                if found & 2:
                    self._covering.setdefault(text, []).append(other)
                if found & 1:
                    self._covering.setdefault(other, []).append(text)

    def _register_again(self) -> None:
        """Add the filters to the shared matcher again after it was cleared, until it is not cleared in between."""
        while self._generation != MATCHER.generation:
            self._generation = MATCHER.generation
            for text in self.known:
                if text != EVERYTHING:
                    MATCHER.add(text, Filter(text))


_NONE: tuple[str, ...] = ()
_TURNED = (0, 2, 1, 3)
