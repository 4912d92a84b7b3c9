"""The filters that a node has heard of: which of them an event matches, and which of them cover which."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache

from driftcast.matching import Filter, FilterError, FilterIndex
from driftcast.model import Event

EVERYTHING = Filter("").text
"""The canonical text of the filter that every event matches; it covers every other."""

MAX_INTERESTS = 10_000
"""Filters known at one time; forged ones cannot fill the memory."""

MAX_COMPARED = 512
"""A filter that is learned when more are known is not compared with them: tables then hold a few idle entries more."""

_KEPT_FILTERS = 50_000
"""More than all nodes of a simulation know together; beyond it they tell theirs again in turn, which is slow."""
_KEPT_EVENTS = 4096


@lru_cache(maxsize=1 << 16)
def relation(text: str, other: str) -> int:
    """How two filters cover each other: 1 if the first covers the second, 2 if the second covers the first, 3 if both,
    0 if neither. Nodes ask this of the same few again and again."""
    one, two = Filter(text), Filter(other)
    return one.covers(two) + 2 * two.covers(one)


class _Matcher:
    """Matches an event once for all nodes of a process.

    In a simulation hundreds of nodes know the same filters and meet the same events, and matching them anew at each
    costs more than choosing links. This is a cache and nothing else: what a node gets depends on its own filters alone.
    """

    def __init__(self) -> None:
        self._index: FilterIndex[str] = FilterIndex()
        self._matched: dict[int, tuple[Event, list[str]]] = {}
        self.generation = 0

    def add(self, text: str, filter: Filter) -> None:
        """Know a filter; the results so far are void then."""
        if text not in self._index:
            self._matched.clear()
            if len(self._index) >= _KEPT_FILTERS:
                self._index = FilterIndex()
                self.generation += 1
            self._index.add(text, filter)

    def match(self, event: Event) -> list[str]:
        """The filters of all nodes that an event matches, in the order of their texts."""
        # Keyed by the object: it is kept with its result, so no other can have its identity.
        found = self._matched.get(id(event))
        if found is None:
            if len(self._matched) >= _KEPT_EVENTS:
                self._matched.clear()
            found = self._matched[id(event)] = (event, sorted(self._index.match(event.attributes)))
        return found[1]


_MATCHER = _Matcher()


class Interests:
    """A set of filters, known by their texts. The filter that everything matches is always among them."""

    __slots__ = ("_covering", "_generation", "known")

    def __init__(self) -> None:
        self.known: dict[str, None] = {EVERYTHING: None}
        self._generation = _MATCHER.generation
        self._covering: dict[str, list[str]] = {}
        """For each filter that is covered by known ones: those. That EVERYTHING covers all goes without saying."""

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
            _MATCHER.add(text, parsed)
            if len(self.known) <= MAX_COMPARED:
                self._compare(text)
            self.known[text] = None
        return True

    def keep(self, wanted: Iterable[str]) -> None:
        """Forget all filters but these."""
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
        """The filters that an event matches, in the order of their texts, and at the end EVERYTHING."""
        if self._generation != _MATCHER.generation:
            self._tell_again()
        known = self.known
        matched = [text for text in _MATCHER.match(event) if text in known]
        matched.append(EVERYTHING)
        return matched

    def covering(self, text: str) -> Sequence[str]:
        """The known filters that cover a filter, but for EVERYTHING, which covers all."""
        return self._covering.get(text, _NONE)

    def covered_by(self, texts: Collection[str]) -> list[str]:
        """The known filters that one of these covers, themselves not among them."""
        if EVERYTHING in texts:
            return [text for text in self.known if text not in texts]
        return [
            covered
            for covered, others in self._covering.items()
            if covered not in texts and any(other in texts for other in others)
        ]

    def uncovered(self, worth: Mapping[str, float]) -> dict[str, float]:
        """A table of values by filter without the entries that say nothing.

        An entry goes if a covering one has at least its value, so the maximum over the filters that an event matches
        stays what it was. Of two that cover each other and are worth the same, the one known first stays.
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
        """Find out which known filters cover a new one, and which it covers."""
        for other in self.known:
            # In the order of the texts, so that each pair is asked about in one way only.
            found = relation(text, other) if text < other else _TURNED[relation(other, text)]
            if found and other != EVERYTHING:
                if found & 2:
                    self._covering.setdefault(text, []).append(other)
                if found & 1:
                    self._covering.setdefault(other, []).append(text)

    def _tell_again(self) -> None:
        """The matcher was emptied to make room. It may be once more while this is told: then all is told again."""
        while self._generation != _MATCHER.generation:
            self._generation = _MATCHER.generation
            for text in self.known:
                if text != EVERYTHING:
                    _MATCHER.add(text, Filter(text))


_NONE: tuple[str, ...] = ()
_TURNED = (0, 2, 1, 3)
