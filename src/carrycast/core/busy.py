"""How busy something was: the share of the last seconds in which it worked."""

from collections import deque
from typing import Annotated

from msgspec import Meta

LoadWindow = Annotated[float, Meta(gt=0, le=86_400, description="load is the busy share of as many last seconds")]
DEFAULT_WINDOW_S = 10.0
"""Twice the period in which brokers tell each other of themselves in an emulation of paper 002 [002 §4.2]: long enough
that one call does not make a node look overloaded, short enough that what is told is about now."""

_GRAINS = 256


class BusyShare:
    """Keeps when work was done, as far back as the window reaches.

    Very short stretches are kept together, a 256th of the window at most, so that it stays small however many there
    are. Only at the far edge of the window does that make a difference, of less than half a percent.
    """

    __slots__ = ("_grain_s", "_stretches", "_window_s")

    def __init__(self, window_s: float = DEFAULT_WINDOW_S) -> None:
        self._window_s = window_s
        self._grain_s = window_s / _GRAINS
        self._stretches: deque[tuple[float, float, float]] = deque()
        """From, to, and how long of it was work; in order, none over another."""

    def add(self, start_s: float, end_s: float) -> None:
        """It works from one time to another, the second of which may be yet to come; no earlier than it worked last."""
        if end_s <= start_s:
            return
        busy_s = end_s - start_s
        if self._stretches:
            from_s, to_s, before_s = self._stretches[-1]
            seamless = to_s == start_s and before_s == to_s - from_s
            if seamless or end_s - from_s <= self._grain_s:
                self._stretches[-1] = (from_s, end_s, end_s - from_s if seamless else before_s + busy_s)
                return
        self._forget(start_s)
        self._stretches.append((start_s, end_s, busy_s))

    def share(self, now_s: float) -> float:
        """How much of the window before now was work, 0 to 1. What was before the first work counts as rest."""
        self._forget(now_s)
        low_s, total_s = now_s - self._window_s, 0.0
        for from_s, to_s, busy_s in self._stretches:
            within_s = min(to_s, now_s) - max(from_s, low_s)
            if within_s > 0:
                total_s += busy_s if within_s == to_s - from_s else busy_s * within_s / (to_s - from_s)
        return min(1.0, total_s / self._window_s)

    def _forget(self, now_s: float) -> None:
        while self._stretches and self._stretches[0][1] <= now_s - self._window_s:
            self._stretches.popleft()

    def cut(self, now_s: float) -> None:
        """Work that was to be done after now will not be."""
        while self._stretches and self._stretches[-1][0] >= now_s:
            self._stretches.pop()
        if self._stretches and self._stretches[-1][1] > now_s:
            from_s, to_s, busy_s = self._stretches[-1]
            self._stretches[-1] = (from_s, now_s, busy_s * (now_s - from_s) / (to_s - from_s))
