"""Legs of trajectories, cut into pieces that lie in one slice of time and are short in space."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories

# A leg within a slice is cut into so many pieces at most. A leap across the map that would need more makes the grid of
# its chunk coarser instead of filling the memory.
MAX_PARTS = 256


class Legs(NamedTuple):
    """Legs by the time they start, clipped to the run."""

    node: Integers
    start_s: Floats
    end_s: Floats
    x_m: Floats
    y_m: Floats
    vx_mps: Floats
    vy_mps: Floats
    speed_mps: Floats

    @classmethod
    def of(cls, source: Trajectories, duration_s: float) -> "Legs":
        node = np.repeat(np.arange(source.nodes), np.diff(source.first))
        columns = (source.start_s, source.end_s, source.x_m, source.y_m, source.vx_mps, source.vy_mps)
        return cls.between(duration_s, node, *columns)

    @classmethod
    def between(
        cls,
        duration_s: float,
        node: Integers,
        start_s: Floats,
        end_s: Floats,
        x_m: Floats,
        y_m: Floats,
        vx_mps: Floats,
        vy_mps: Floats,
    ) -> "Legs":
        """Legs given in any order, those of them that are under way between 0 and duration_s."""
        legs = cls(node, start_s, np.minimum(end_s, duration_s), x_m, y_m, vx_mps, vy_mps, np.hypot(vx_mps, vy_mps))
        order = np.argsort(start_s, kind="stable")
        return legs.select(order[(legs.end_s > np.maximum(start_s, 0.0))[order]])

    def select(self, rows: Integers | NDArray[np.bool_]) -> "Legs":
        return Legs(self.node[rows], *(column[rows] for column in self[1:]))

    @property
    def lasting_s(self) -> Floats:
        return self.end_s - np.maximum(self.start_s, 0.0)

    @property
    def total_s(self) -> float:
        return float(self.lasting_s.sum())


class Pieces(NamedTuple):
    """Parts of legs, each within one slice: the middle in time and space, and how far from it the node gets."""

    node: Integers
    in_slice: Integers
    start_s: Floats
    end_s: Floats
    middle_s: Floats
    x_m: Floats
    y_m: Floats
    vx_mps: Floats
    vy_mps: Floats
    reach_m: Floats

    def take(self, rows: Integers) -> "Pieces":
        return Pieces(self.node[rows], self.in_slice[rows], *(column[rows] for column in self[2:]))


class Feed:
    """Cuts legs into pieces, some slices at a time, holding only the legs that are under way."""

    def __init__(self, legs: Legs, slice_s: float, longest_m: float) -> None:
        self.legs = legs
        self.slice_s = slice_s
        self.longest_m = longest_m
        self.taken = 0
        self.active: Integers = np.zeros(0, dtype=np.int64)

    def cut(self, begin: int, end: int) -> Pieces:
        """The pieces in slices begin to end - 1. Calls must go forward in time."""
        legs, slice_s = self.legs, self.slice_s
        begin_s, until_s = begin * slice_s, end * slice_s
        upto = int(np.searchsorted(legs.start_s, until_s))
        active = np.concatenate((self.active[legs.end_s[self.active] > begin_s], np.arange(self.taken, upto)))
        self.taken, self.active = upto, active
        from_s = np.maximum(legs.start_s[active], begin_s)
        to_s = np.minimum(legs.end_s[active], until_s)
        low = np.clip((from_s / slice_s).astype(np.int64), begin, end - 1)
        high = np.clip(np.ceil(to_s / slice_s).astype(np.int64), low + 1, end)
        row, nth = numbered(high - low)
        index = low[row] + nth
        start_s = np.maximum(from_s[row], index * slice_s)
        end_s = np.minimum(to_s[row], (index + 1) * slice_s)
        speed_mps = legs.speed_mps[active][row]
        parts = np.clip(np.ceil(speed_mps * (end_s - start_s) / self.longest_m), 1, MAX_PARTS).astype(np.int64)
        if len(parts) and parts.max() > 1:
            part, nth = numbered(parts)
            step_s = (end_s - start_s) / parts
            start_s, end_s = start_s[part] + step_s[part] * nth, start_s[part] + step_s[part] * (nth + 1)
            row, index, speed_mps = row[part], index[part], speed_mps[part]
        leg = active[row]
        middle_s = (start_s + end_s) / 2
        vx_mps, vy_mps = legs.vx_mps[leg], legs.vy_mps[leg]
        elapsed_s = middle_s - legs.start_s[leg]
        x_m, y_m = legs.x_m[leg] + vx_mps * elapsed_s, legs.y_m[leg] + vy_mps * elapsed_s
        reach_m = speed_mps * (end_s - start_s) / 2
        return Pieces(legs.node[leg], index - begin, start_s, end_s, middle_s, x_m, y_m, vx_mps, vy_mps, reach_m)


def numbered(counts: Integers) -> tuple[Integers, Integers]:
    """For counts [2, 1]: which row each unit belongs to, [0, 0, 1], and its number in that row, [0, 1, 0]."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
