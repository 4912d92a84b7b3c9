"""Utilization: the busy share of a sliding time window."""

from collections import deque
from typing import Annotated

from msgspec import Meta

LoadWindow = Annotated[float, Meta(gt=0, le=86_400, description="the window over which the load is measured")]
DEFAULT_WINDOW_S = 10.0
"""Twice the period of the brokers' status messages in the evaluation of paper 002 [002 §4.2]: long enough that one call
does not make a node look overloaded, short enough to be current."""

_GRAINS = 256


class Utilization:
    """Busy intervals within a sliding window.

    Short intervals are merged into grains of a 256th of the window, which bounds the memory. The error, at the far edge
    of the window, is below half a percent.
    """

    __slots__ = ("_grain_s", "_intervals", "_window_s")

    def __init__(self, window_s: float = DEFAULT_WINDOW_S) -> None:
        self._window_s = window_s
        self._grain_s = window_s / _GRAINS
        self._intervals: deque[tuple[float, float, float]] = deque()
        """(from, to, busy seconds in between), in order and disjoint."""

    def add(self, start_s: float, end_s: float) -> None:
        """Record a busy interval, which may end in the future and starts no earlier than the last one."""
        if end_s <= start_s:
            return
        busy_s = end_s - start_s
        if self._intervals:
            from_s, to_s, before_s = self._intervals[-1]
            seamless = to_s == start_s and before_s == to_s - from_s
            if seamless or end_s - from_s <= self._grain_s:
                self._intervals[-1] = (from_s, end_s, end_s - from_s if seamless else before_s + busy_s)
                return
        self._forget(start_s)
        self._intervals.append((start_s, end_s, busy_s))

    def share(self, now_s: float) -> float:
        """The busy share of the window before now, 0 to 1. Time before the first interval counts as idle."""
        self._forget(now_s)
        low_s, total_s = now_s - self._window_s, 0.0
        for from_s, to_s, busy_s in self._intervals:
            within_s = min(to_s, now_s) - max(from_s, low_s)
            if within_s > 0:
                total_s += busy_s if within_s == to_s - from_s else busy_s * within_s / (to_s - from_s)
        return min(1.0, total_s / self._window_s)

    def _forget(self, now_s: float) -> None:
        while self._intervals and self._intervals[0][1] <= now_s - self._window_s:
            self._intervals.popleft()

    def cut(self, now_s: float) -> None:
        """Cancel the work planned after now."""
        while self._intervals and self._intervals[-1][0] >= now_s:
            self._intervals.pop()
        if self._intervals and self._intervals[-1][1] > now_s:
            from_s, to_s, busy_s = self._intervals[-1]
            self._intervals[-1] = (from_s, now_s, busy_s * (now_s - from_s) / (to_s - from_s))
