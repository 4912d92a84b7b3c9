"""Piecewise-linear movement of all nodes of a run, kept as flat arrays of legs."""

import math
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
if TYPE_CHECKING:
    _Floats = memoryview[float]
    _Views = tuple[memoryview[int], _Floats, _Floats, _Floats, _Floats, _Floats, _Floats]
_NO_LEG = (0.0, -1.0, 0.0, 0.0, 0.0, 0.0)
_NOWHERE = (math.nan, math.nan)


@dataclass(frozen=True, slots=True, eq=False)
class Trajectories:
    """The position of each node at any time.

    The legs of node i are rows first[i]:first[i+1], ordered by time. On a leg the node starts at (x_m, y_m) at start_s
    and moves with constant velocity until end_s. During a gap between two legs the node is absent. A leg need not begin
    where the one before it ended.
    """

    first: Integers
    start_s: Floats
    end_s: Floats
    x_m: Floats
    y_m: Floats
    vx_mps: Floats
    vy_mps: Floats
    # Reading a number from a memoryview costs a third of indexing an array with a scalar.
    _views: "_Views" = field(init=False, repr=False)
    _lately: list[tuple[float, float, float, float, float, float]] = field(init=False, repr=False)
    """A cache of the last leg looked up for each node: start, end, place, velocity. Most lookups hit it."""

    def __post_init__(self) -> None:
        first = np.ascontiguousarray(self.first, dtype=np.int64)
        object.__setattr__(self, "first", first)
        assert first.ndim == 1, "first must be one row of numbers"
        assert first[0] == 0, "the legs of node 0 start at row 0"
        assert bool(np.all(np.diff(first) >= 0)), "first must not decrease"
        for name in ("start_s", "end_s", "x_m", "y_m", "vx_mps", "vy_mps"):
            column = np.ascontiguousarray(getattr(self, name), dtype=np.float64)
            assert column.shape == (int(first[-1]),), f"{name} has {column.shape} entries for {first[-1]} legs"
            assert bool(np.isfinite(column).all()), f"{name} must be finite"
            object.__setattr__(self, name, column)
        assert bool(np.all(self.end_s >= self.start_s)), "a leg ends before it starts"
        same_node = np.ones(max(len(self.start_s) - 1, 0), dtype=np.bool_)
        inner = first[1:-1]
        same_node[inner[(inner > 0) & (inner < len(self.start_s))] - 1] = False
        assert bool(np.all((self.start_s[1:] >= self.end_s[:-1])[same_node])), "legs of a node overlap or are unsorted"
        columns = (self.start_s, self.end_s, self.x_m, self.y_m, self.vx_mps, self.vy_mps)
        object.__setattr__(self, "_views", (first.data, *(column.data for column in columns)))
        object.__setattr__(self, "_lately", [_NO_LEG] * self.nodes)

    def __reduce__(self) -> tuple[type["Trajectories"], tuple[Integers | Floats, ...]]:
        return Trajectories, self.columns()

    def columns(self) -> tuple[Integers, Floats, Floats, Floats, Floats, Floats, Floats]:
        """The first leg of each node, and the columns of all legs: start, end, place, velocity."""
        return self.first, self.start_s, self.end_s, self.x_m, self.y_m, self.vx_mps, self.vy_mps

    @classmethod
    def standing(cls, x_m: Floats, y_m: Floats, duration_s: float) -> "Trajectories":
        """Nodes that stay at the given places for the whole run."""
        nodes = len(x_m)
        zeros = np.zeros(nodes)
        return cls(np.arange(nodes + 1), zeros, np.full(nodes, float(duration_s)), x_m, y_m, zeros, zeros)

    @classmethod
    def from_legs(
        cls,
        nodes: int,
        node: Integers,
        start_s: Floats,
        end_s: Floats,
        x_m: Floats,
        y_m: Floats,
        vx: Floats,
        vy: Floats,
    ) -> "Trajectories":
        """Make trajectories of legs given in any order. Legs of zero duration are dropped."""
        order = np.lexsort((start_s, node))
        order = order[(end_s > start_s)[order]]
        first = np.searchsorted(node[order], np.arange(nodes + 1))
        return cls(first, start_s[order], end_s[order], x_m[order], y_m[order], vx[order], vy[order])

    @property
    def nodes(self) -> int:
        """The number of nodes."""
        return len(self.first) - 1

    @property
    def legs(self) -> int:
        """The number of legs of all nodes together."""
        return len(self.start_s)

    @property
    def duration_s(self) -> float:
        """When the last leg ends; 0 without legs."""
        return float(self.end_s.max()) if self.legs else 0.0

    @property
    def fastest_mps(self) -> float:
        """The highest speed of any node; 0 if all stand."""
        return float(np.hypot(self.vx_mps, self.vy_mps).max(initial=0.0))

    def _leg(self, node: int, time_s: float) -> int:
        """Find the row of the leg that a node is on, or -1 while it is absent. At a boundary, the later leg."""
        first, start_s, end_s = self._views[0], self._views[1], self._views[2]
        low: int = first[node]
        leg = bisect_right(start_s, time_s, low, first[node + 1]) - 1
        return leg if leg >= low and time_s <= end_s[leg] else -1

    def position(self, node: int, time_s: float) -> tuple[float, float] | None:
        """The position of a node in meters; None while it is absent."""
        start_s, end_s, x_m, y_m, vx_mps, vy_mps = self._lately[node]
        if not start_s <= time_s < end_s:
            leg = self._leg(node, time_s)
            if leg < 0:
                return None
            _, starts_s, ends_s, xs_m, ys_m, vxs_mps, vys_mps = self._views
            start_s, x_m, y_m, vx_mps, vy_mps = starts_s[leg], xs_m[leg], ys_m[leg], vxs_mps[leg], vys_mps[leg]
            self._lately[node] = (start_s, ends_s[leg], x_m, y_m, vx_mps, vy_mps)
        elapsed_s = time_s - start_s
        return x_m + vx_mps * elapsed_s, y_m + vy_mps * elapsed_s

    def places(self, nodes: Iterable[int], time_s: float) -> list[tuple[float, float]]:
        """The positions of some nodes; NaN while a node is absent, so that no comparison of distances holds."""
        lately, found = self._lately, []
        for node in nodes:
            start_s, end_s, x_m, y_m, vx_mps, vy_mps = lately[node]
            if start_s <= time_s < end_s:
                elapsed_s = time_s - start_s
                found.append((x_m + vx_mps * elapsed_s, y_m + vy_mps * elapsed_s))
            else:
                found.append(self.position(node, time_s) or _NOWHERE)
        return found

    def velocity(self, node: int, time_s: float) -> tuple[float, float] | None:
        """The velocity of a node in meters per second; None while it is absent."""
        leg = self._leg(node, time_s)
        if leg < 0:
            return None
        return self._views[5][leg], self._views[6][leg]

    def positions(self, time_s: float) -> Floats:
        """The positions of all nodes, one row (x, y) each; NaN where a node is absent."""
        low = self.first[:-1].copy()
        high = self.first[1:].copy()
        # A binary search in every node's legs at once: afterwards `low` is the first leg that starts after time_s.
        while bool((open_ := low < high).any()):
            middle = (low + high) >> 1
            later = self.start_s[np.where(open_, middle, 0)] <= time_s
            low = np.where(open_ & later, middle + 1, low)
            high = np.where(open_ & ~later, middle, high)
        leg = low - 1
        present = leg >= self.first[:-1]
        present[present] = time_s <= self.end_s[leg[present]]
        leg = leg[present]
        elapsed_s = time_s - self.start_s[leg]
        where = np.full((self.nodes, 2), np.nan)
        where[present, 0] = self.x_m[leg] + self.vx_mps[leg] * elapsed_s
        where[present, 1] = self.y_m[leg] + self.vy_mps[leg] * elapsed_s
        return where
