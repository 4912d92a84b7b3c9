"""How long events took to their subscribers, counted in buckets, so that it costs the same however many there are."""

from bisect import bisect_left
from collections.abc import Iterator

BOUNDS_S = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0)
"""From a hop on a fast link to an hour with a carrier."""


class Delays:
    """Of one start of a node."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_S) + 1)
        self.count = 0
        self.sum_s = 0.0

    def add(self, delay_s: float) -> None:
        """A delivery. Where clocks differ it may seem to be earlier than its publication, and counts as at once."""
        delay_s = max(0.0, delay_s)
        self._counts[bisect_left(BOUNDS_S, delay_s)] += 1
        self.count += 1
        self.sum_s += delay_s

    def cumulative(self) -> Iterator[tuple[float | None, int]]:
        """How many took at most so long; None is any time."""
        total = 0
        for bound, count in zip((*BOUNDS_S, None), self._counts, strict=True):
            total += count
            yield bound, total
