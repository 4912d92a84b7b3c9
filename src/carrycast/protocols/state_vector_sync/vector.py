"""State vectors: the latest sequence number of each publisher, and the numbers of events that are still missing."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from carrycast.core.model import EventId, NodeId
from carrycast.protocols.state_vector_sync.messages import SequenceRange, StateEntry

MAX_RANGES = 32
"""Missing ranges of one publisher; the oldest are given up. It bounds the memory that forged numbers can use."""


class MissingRanges:
    """Sequence numbers of one publisher as disjoint ranges, the lowest first."""

    __slots__ = ("_ranges",)

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __contains__(self, number: int) -> bool:
        return any(low <= number <= high for low, high in self._ranges)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._ranges)

    def append(self, low: int, high: int) -> None:
        """Add numbers that are higher than all others; none if `high` is below `low`."""
        if high < low:
            return
        if self._ranges and self._ranges[-1][1] == low - 1:
            self._ranges[-1] = (self._ranges[-1][0], high)
        else:
            self._ranges.append((low, high))
            del self._ranges[:-MAX_RANGES]

    def remove(self, first: int, last: int) -> None:
        """Remove the numbers from `first` to `last`."""
        left: list[tuple[int, int]] = []
        for low, high in self._ranges:
            if last < low or high < first:
                left.append((low, high))
                continue
            if low < first:
                left.append((low, first - 1))
            if last < high:
                left.append((last + 1, high))
        self._ranges = left


def remove_numbers(wanted: SequenceRange, numbers: Iterable[int]) -> list[SequenceRange]:
    """A range without some numbers, which are in order."""
    source, low, high = wanted
    parts = []
    for number in numbers:
        if low < number:
            parts.append(SequenceRange(source, low, number - 1))
        low = number + 1
    if low <= high:
        parts.append(SequenceRange(source, low, high))
    return parts


class StateVector:
    """The state of one node: its state vector, the publisher updated last at the end, and its missing events."""

    def __init__(self, sources: int) -> None:
        self._most = sources
        self.latest: dict[NodeId, int] = {}
        """The latest sequence number of each publisher; read-only."""
        self._missing: dict[NodeId, MissingRanges] = {}

    def learn(self, source: NodeId, sequence: int) -> bool:
        """A publisher has published up to a number; False if that was known. What lies between is missing."""
        known = self.latest.get(source, -1)
        if sequence <= known:
            return False
        self._missing.setdefault(source, MissingRanges()).append(known + 1, sequence)
        self.latest.pop(source, None)
        self.latest[source] = sequence
        if len(self.latest) > self._most:
            oldest = next(iter(self.latest))
            del self.latest[oldest]
            self._missing.pop(oldest, None)
        return True

    def add(self, id: EventId) -> bool:
        """An event has arrived; False if its number was known."""
        new = self.learn(id.source, id.sequence)
        self.give_up(id.source, id.sequence, id.sequence)
        return new

    def give_up(self, source: NodeId, low: int, high: int) -> None:
        """Numbers are not missing any more."""
        missing = self._missing.get(source)
        if missing is not None:
            missing.remove(low, high)
            if not missing:
                del self._missing[source]

    @property
    def has_missing(self) -> bool:
        """Whether an event is missing."""
        return bool(self._missing)

    def find_missing(self, parts: Iterable[SequenceRange]) -> list[SequenceRange]:
        """The missing numbers of some ranges."""
        found = []
        for source, low, high in parts:
            for first, last in self._missing.get(source, ()):
                if first <= high and low <= last:
                    found.append(SequenceRange(source, max(low, first), min(high, last)))
        return found

    def without_missing(self, parts: Iterable[SequenceRange]) -> list[SequenceRange]:
        """The numbers of some ranges that are not missing, and not beyond the latest."""
        found = []
        for source, low, high in parts:
            left = MissingRanges()
            left.append(low, min(high, self.latest.get(source, -1)))
            for first, last in self._missing.get(source, ()):
                left.remove(first, last)
            found += [SequenceRange(source, first, last) for first, last in left]
        return found

    def missing(self) -> Iterator[SequenceRange]:
        """All missing ranges."""
        for source, ranges in self._missing.items():
            for low, high in ranges:
                yield SequenceRange(source, low, high)

    def is_newer(self, other: Mapping[NodeId, int]) -> bool:
        """[SVS §3] Whether another vector is outdated: it has an entry strictly smaller than this one, or none."""
        return any(other.get(source, -1) < sequence for source, sequence in self.latest.items())

    def is_newer_in(self, other: Iterable[StateEntry]) -> bool:
        """Whether an entry of a part of another vector is outdated."""
        return any(sequence < self.latest.get(source, -1) for source, sequence in other)

    def entries(self, most: int) -> tuple[StateEntry, ...]:
        """The entries updated last, in order of their publishers [SVS §3]."""
        last = islice(reversed(self.latest.items()), most)
        return tuple(sorted(StateEntry(source, sequence) for source, sequence in last))
