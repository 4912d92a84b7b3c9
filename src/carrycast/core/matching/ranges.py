"""An index of many changing intervals that finds those that contain a point.

Intervals are kept in blocks of doubling size, each sorted by its lower cuts with a tree of the largest upper cut above
it (the logarithmic method of Bentley and Saxe). An insertion costs O(log² n) on average, and a query O(log² n) plus its
result. Removed intervals stay in their blocks, unreported, until they outnumber the others.
"""

from bisect import bisect_left, bisect_right
from typing import Generic

from carrycast.core.matching.intervals import Cut

# Below this number of intervals a scan is faster than a tree.
SCANNED = 32


class RangeIndex(Generic[Cut]):
    """Intervals by the number of their entry. An entry with several intervals is found once for each that matches."""

    __slots__ = ("_blocks", "_dead", "_live", "_recent")

    def __init__(self) -> None:
        self._live: dict[int, list[tuple[Cut, Cut]]] = {}
        self._recent: list[tuple[Cut, Cut, int]] = []
        self._blocks: list[_Block[Cut] | None] = []
        self._dead = 0

    def __len__(self) -> int:
        return len(self._live)

    def add(self, entry: int, start: Cut, end: Cut) -> None:
        """Add an interval of the entry. A removed number must not be used again."""
        self._live.setdefault(entry, []).append((start, end))
        self._recent.append((start, end, entry))
        if len(self._recent) >= SCANNED:
            self._merge_blocks()

    def remove(self, entry: int) -> None:
        """Remove all intervals of the entry."""
        self._dead += len(self._live.pop(entry))
        if self._dead > SCANNED + len(self._live):
            self._rebuild()

    def find(self, point: Cut) -> list[int]:
        """Return the entries with an interval that contains the point, given as the cut just below it."""
        live = self._live
        found = [entry for start, end, entry in self._recent if start <= point < end and entry in live]
        for block in self._blocks:
            if block is not None:
                found.extend(entry for entry in block.find(point) if entry in live)
        return found

    def find_containing(self, start: Cut, end: Cut) -> list[int]:
        """Return the entries with an interval that contains the given one."""
        live = self._live
        found = [entry for low, high, entry in self._recent if low <= start and end <= high and entry in live]
        for block in self._blocks:
            if block is not None:
                found.extend(entry for entry in block.find_containing(start, end) if entry in live)
        return found

    def find_within(self, start: Cut, end: Cut) -> list[int]:
        """Return the entries with an interval that lies in the given one."""
        live = self._live
        found = [entry for low, high, entry in self._recent if start <= low and high <= end and entry in live]
        for block in self._blocks:
            if block is not None:
                found.extend(entry for entry in block.find_within(start, end) if entry in live)
        return found

    def count_containing(self, point: Cut, limit: int) -> int:
        """Estimate how many intervals contain the point, counting up to the limit in each block."""
        counted = sum(1 for start, end, _ in self._recent if start <= point < end)
        return counted + sum(len(block.find(point, limit)) for block in self._blocks if block is not None)

    def _merge_blocks(self) -> None:
        # Like a carry in binary addition: equal blocks merge into one of twice the size.
        items = [item for item in self._recent if item[2] in self._live]
        self._dead -= len(self._recent) - len(items)
        self._recent = []
        place = 0
        while place < len(self._blocks) and (block := self._blocks[place]) is not None:
            kept = [item for item in block.items if item[2] in self._live]
            self._dead -= len(block.items) - len(kept)
            items.extend(kept)
            self._blocks[place] = None
            place += 1
        if place == len(self._blocks):
            self._blocks.append(None)
        self._blocks[place] = _Block(sorted(items)) if items else None

    def _rebuild(self) -> None:
        items = [(start, end, entry) for entry, intervals in self._live.items() for start, end in intervals]
        self._recent = []
        self._dead = 0
        # One block, at the position that corresponds to its size.
        place = (len(items) // SCANNED).bit_length()
        self._blocks = [None] * place
        if items:
            self._blocks.append(_Block(sorted(items)))


class _Block(Generic[Cut]):
    """An immutable set of intervals, sorted by start, with a tree of the largest ends: node i has children 2i, 2i+1."""

    __slots__ = ("_largest", "_leaves", "_starts", "items")

    def __init__(self, items: list[tuple[Cut, Cut, int]]) -> None:
        self.items: list[tuple[Cut, Cut, int]] = items
        self._starts: list[Cut] = [start for start, _, _ in items]
        self._leaves = 1 << (len(items) - 1).bit_length()
        lowest = min(end for _, end, _ in items)
        largest = [lowest] * self._leaves + [end for _, end, _ in items]
        largest.extend([lowest] * (2 * self._leaves - len(largest)))
        for node in range(self._leaves - 1, 0, -1):
            largest[node] = max(largest[2 * node], largest[2 * node + 1])
        self._largest: list[Cut] = largest

    def find_containing(self, start: Cut, end: Cut) -> list[int]:
        # Like `find`, for all points from start to end.
        bound = bisect_right(self._starts, start)
        found: list[int] = []
        pending = [(1, 0, self._leaves)]
        while pending:
            node, first, size = pending.pop()
            if first >= bound or self._largest[node] < end:
                continue
            if size == 1:
                found.append(self.items[first][2])
            else:
                half = size // 2
                pending.append((2 * node + 1, first + half, half))
                pending.append((2 * node, first, half))
        return found

    def find_within(self, start: Cut, end: Cut) -> list[int]:
        # The intervals that start and end between the two cuts.
        first, last = bisect_left(self._starts, start), bisect_left(self._starts, end)
        return [entry for _, high, entry in self.items[first:last] if high <= end]

    def find(self, point: Cut, limit: int | None = None) -> list[int]:
        # The intervals that start at or below the point and end above it contain it.
        bound = bisect_right(self._starts, point)
        found: list[int] = []
        pending = [(1, 0, self._leaves)]
        while pending and len(found) != limit:
            node, first, size = pending.pop()
            if first >= bound or self._largest[node] <= point:
                continue
            if size == 1:
                found.append(self.items[first][2])
            else:
                half = size // 2
                pending.append((2 * node + 1, first + half, half))
                pending.append((2 * node, first, half))
        return found
