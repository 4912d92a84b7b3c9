"""An index over one attribute that finds the filters that may match a value. Topic filters are in a trie."""

from dataclasses import dataclass

from carrycast.core.matching.intervals import (
    NumberCut,
    NumberIntervals,
    StringCut,
    StringIntervals,
    intersection,
    number_points,
    string_points,
    strings_with_prefix,
)
from carrycast.core.matching.patterns import LikePattern
from carrycast.core.matching.ranges import RangeIndex
from carrycast.core.matching.topics import TopicFilter
from carrycast.core.matching.values import PRESENT, ValueSet
from carrycast.core.model import Scalar


class _TrieNode:
    __slots__ = ("entries", "following")

    def __init__(self) -> None:
        self.following: dict[str, _TrieNode] = {}
        # The entries whose filter ends here. A dictionary keeps their order and removes one cheaply.
        self.entries: dict[int, None] = {}


class TopicTrie:
    """A trie of topic filters by level, with the numbers of their entries."""

    __slots__ = ("_root", "_size")

    def __init__(self) -> None:
        self._root = _TrieNode()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, entry: int, topics: TopicFilter) -> None:
        """Add the filter of an entry."""
        place = self._root
        for level in topics.expand_levels():
            place = place.following.setdefault(level, _TrieNode())
        place.entries[entry] = None
        self._size += 1

    def remove(self, entry: int, topics: TopicFilter) -> None:
        """Remove the filter of an entry, and the levels that no other filter uses."""
        path = [self._root]
        for level in topics.expand_levels():
            path.append(path[-1].following[level])
        del path[-1].entries[entry]
        self._size -= 1
        for level in reversed(topics.expand_levels()):
            place = path.pop()
            if place.following or place.entries:
                break
            del path[-1].following[level]

    def find(self, topic: str) -> list[int]:
        """Return the entries whose filter matches the topic."""
        return [entry for place in self._find_nodes(topic) for entry in place.entries]

    def estimate_matches(self, topics: TopicFilter) -> int:
        """Estimate how many filters match a topic of the given filter, with unknown levels for its wildcards."""
        # The null character occurs in no topic filter, so it makes an unknown level.
        sample = "/".join("\0" if level == "+" else level for level in topics.levels if level != "#")
        return sum(len(place.entries) for place in self._find_nodes(sample))

    def _find_nodes(self, topic: str) -> list[_TrieNode]:
        """Return the trie nodes at which filters end that match the topic."""
        ends: list[_TrieNode] = []
        places = [self._root]
        wild = not topic.startswith("$")
        for level in topic.split("/"):
            # A level `+` or `#` in a topic is not a wildcard, and no filter can name it literally.
            literal = level not in {"+", "#"}
            following: list[_TrieNode] = []
            for place in places:
                if literal and (exact := place.following.get(level)) is not None:
                    following.append(exact)
                if wild and (single := place.following.get("+")) is not None:
                    following.append(single)
            for place in following:
                if (rest := place.following.get("#")) is not None:
                    # `#` matches its parent level too.
                    ends.append(rest)
            wild = True
            places = following
        ends.extend(places)
        return ends


# The overhead of a lookup, in units of tested entries: a tree walk or a few bisections, compared with a hash lookup.
_TREE_COST = 8
_RANGE_COST = 16

# A string after those in filters: the upper end of an unbounded range.
_LAST_CHARACTER = "\U0010ffff"

# Counting stops at this number, so that adding a filter stays cheap: large estimates need not be exact.
_LIMIT = 256


@dataclass(frozen=True, slots=True)
class AccessPath:
    """The keys by which a set of values is indexed: single values, ranges, a topic filter, or any value."""

    booleans: tuple[bool, ...] = ()
    numbers: tuple[float, ...] = ()
    strings: tuple[str, ...] = ()
    number_ranges: NumberIntervals = ()
    string_ranges: StringIntervals = ()
    topics: TopicFilter | None = None
    any_value: bool = False


def choose_access_path(values: ValueSet) -> AccessPath:
    """Return the access path of a set of values. It may cover more values, never fewer. Absence cannot be indexed."""
    if values == PRESENT:
        return AccessPath(any_value=True)
    topics = next((p for p, negated in values.patterns if isinstance(p, TopicFilter) and not negated), None)
    strings = values.strings
    for pattern, negated in values.patterns:
        if isinstance(pattern, LikePattern) and not negated:
            strings = intersection(strings, strings_with_prefix(pattern.prefix()))
    return AccessPath(
        values.booleans,
        tuple(point for piece in values.numbers for point in number_points((piece,)) or ()),
        () if topics else tuple(point for piece in strings for point in string_points((piece,)) or ()),
        tuple(piece for piece in values.numbers if number_points((piece,)) is None),
        () if topics else tuple(piece for piece in strings if string_points((piece,)) is None),
        topics,
    )


class AttributeIndex:
    """The entries (by number) that are indexed by one attribute."""

    __slots__ = (
        "_any_value",
        "_booleans",
        "_number_ranges",
        "_numbers",
        "_size",
        "_string_ranges",
        "_strings",
        "_topics",
    )

    def __init__(self) -> None:
        self._booleans: dict[bool, dict[int, None]] = {}
        self._numbers: dict[float, dict[int, None]] = {}
        self._strings: dict[str, dict[int, None]] = {}
        self._number_ranges: RangeIndex[NumberCut] = RangeIndex()
        self._string_ranges: RangeIndex[StringCut] = RangeIndex()
        self._topics = TopicTrie()
        self._any_value: dict[int, None] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def estimate_cost(self, path: AccessPath) -> int:
        """Estimate how many entries an event reaches by this path, from the entries that are already indexed.

        A range costs as much as a lookup at the more expensive of its ends. So a range without an upper end costs as
        much as all others without one.
        """
        cost = sum(len(self._booleans.get(value, ())) for value in path.booleans)
        cost += sum(len(self._numbers.get(value, ())) for value in path.numbers)
        cost += sum(len(self._strings.get(value, ())) for value in path.strings)
        if path.topics is not None:
            cost += _TREE_COST + self._topics.estimate_matches(path.topics)
        if path.number_ranges:
            (low, _), (_, high) = path.number_ranges[0], path.number_ranges[-1]
            # The cut just below the upper end: the upper end itself lies outside of the range.
            inside: NumberCut = (high[0], high[1] - 1)
            ranges = self._number_ranges
            cost += _RANGE_COST + max(ranges.count_containing(low, _LIMIT), ranges.count_containing(inside, _LIMIT))
        if path.string_ranges:
            start, end = path.string_ranges[0][0], path.string_ranges[-1][1]
            last: StringCut = (0, _LAST_CHARACTER) if end == (1, "") else start
            cost += _RANGE_COST + max(
                self._string_ranges.count_containing(start, _LIMIT),
                self._string_ranges.count_containing(last, _LIMIT),
            )
        if path.any_value:
            cost += _RANGE_COST + self._size
        return cost

    def add(self, entry: int, path: AccessPath) -> None:
        """Index an entry by an access path. A number is used for one path, and not reused after its removal."""
        self._size += 1
        for boolean in path.booleans:
            self._booleans.setdefault(boolean, {})[entry] = None
        for number in path.numbers:
            self._numbers.setdefault(number, {})[entry] = None
        for string in path.strings:
            self._strings.setdefault(string, {})[entry] = None
        for low, high in path.number_ranges:
            self._number_ranges.add(entry, low, high)
        for start, end in path.string_ranges:
            self._string_ranges.add(entry, start, end)
        if path.topics is not None:
            self._topics.add(entry, path.topics)
        if path.any_value:
            self._any_value[entry] = None

    def remove(self, entry: int, path: AccessPath) -> None:
        """Undo `add` of the same access path."""
        self._size -= 1
        for boolean in path.booleans:
            del self._booleans[boolean][entry]
        for number in path.numbers:
            del self._numbers[number][entry]
            if not self._numbers[number]:
                del self._numbers[number]
        for string in path.strings:
            del self._strings[string][entry]
            if not self._strings[string]:
                del self._strings[string]
        if path.number_ranges:
            self._number_ranges.remove(entry)
        if path.string_ranges:
            self._string_ranges.remove(entry)
        if path.topics is not None:
            self._topics.remove(entry, path.topics)
        if path.any_value:
            del self._any_value[entry]

    def append_candidates(self, value: Scalar, found: list[int]) -> None:
        """Append the entries that may match this value; an entry may occur more than once."""
        if self._any_value:
            found.extend(self._any_value)
        if isinstance(value, bool):
            found.extend(self._booleans.get(value, ()))
        elif isinstance(value, str):
            found.extend(self._strings.get(value, ()))
            if len(self._string_ranges):
                found.extend(self._string_ranges.find((0, value)))
            if len(self._topics):
                found.extend(self._topics.find(value))
        else:
            found.extend(self._numbers.get(value, ()))
            if len(self._number_ranges):
                found.extend(self._number_ranges.find((value, 0)))
