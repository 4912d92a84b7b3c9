"""A raster of the ground that tells quickly which lines certainly pass through buildings.

A cell is solid if it lies within one building, free if no building touches it, and uncertain otherwise. A sample of a
line in a solid cell proves that the line passes through a building. So most blocked lines need no exact computation.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

FREE, UNCERTAIN, SOLID = 0, 1, 2
# A raster of a byte for each cell. Over a larger area its cells are larger, and prove less.
MOST_CELLS = 1 << 24
FINEST_M = 2.0
# Samples of each line, three cells apart. Most lines in a town are blocked within the first street or two.
FIRST_SAMPLES, SAMPLES, CELLS_APART = 10, 32, 3
# About the width of a street: the cells along a street have no buildings.
INDEX_FINEST_M = 8.0
INDEX_MOST_CELLS = 1 << 22


class BuildingRaster:
    """The raster of some buildings."""

    def __init__(self, corners: Sequence[Floats]) -> None:
        """`corners` has the corners of each building's rings, with the sides as rows (x, y, x of the next, y)."""
        everything = np.concatenate(corners)[:, :2] if corners else np.zeros((1, 2))
        self._low = everything.min(axis=0)
        span = everything.max(axis=0) - self._low
        self._cell_m = max(FINEST_M, math.sqrt(max(float(span[0]), 1.0) * max(float(span[1]), 1.0) / MOST_CELLS))
        # A frame of free cells around the buildings, which also stands for everything outside.
        self._shape = (int(span[1] / self._cell_m) + 3, int(span[0] / self._cell_m) + 3)
        self._low = self._low - self._cell_m
        self._cells = np.zeros(self._shape, dtype=np.int8)
        for sides in corners:
            self._mark_inside(sides)
        for sides in corners:
            self._mark_sides(sides)
        self._flat = self._cells.ravel()
        self._steps_m = np.arange(1, SAMPLES + 1) * CELLS_APART * self._cell_m

    def _mark_inside(self, sides: Floats) -> None:
        """Mark the cells whose centers are inside a building, by the rule of even and odd crossings."""
        low = ((sides[:, :2].min(axis=0) - self._low) / self._cell_m).astype(np.int64)
        high = ((sides[:, :2].max(axis=0) - self._low) / self._cell_m).astype(np.int64) + 1
        xs = self._low[0] + (np.arange(low[0], high[0]) + 0.5) * self._cell_m
        ys = self._low[1] + (np.arange(low[1], high[1]) + 0.5) * self._cell_m
        inside = np.zeros((len(ys), len(xs)), dtype=np.bool_)
        for x0, y0, x1, y1 in sides.tolist():
            if y0 != y1:
                rows = (ys >= min(y0, y1)) & (ys < max(y0, y1))
                cross = x0 + (ys - y0) * (x1 - x0) / (y1 - y0)
                inside ^= rows[:, None] & (xs[None, :] < cross[:, None])
        window = self._cells[low[1] : high[1], low[0] : high[0]]
        window[inside] = SOLID

    def _mark_sides(self, sides: Floats) -> None:
        """Mark the cells that a side touches, with those around them, as uncertain."""
        for x0, y0, x1, y1 in sides.tolist():
            count = int(math.hypot(x1 - x0, y1 - y0) / self._cell_m * 2) + 2
            share = np.linspace(0.0, 1.0, count)
            columns = ((x0 + share * (x1 - x0) - self._low[0]) / self._cell_m).astype(np.int64)
            rows = ((y0 + share * (y1 - y0) - self._low[1]) / self._cell_m).astype(np.int64)
            # Samples half a cell apart may miss a corner of a cell, but not its neighborhood.
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    self._cells[rows + down, columns + right] = UNCERTAIN

    def _at(self, x: Floats, y: Floats) -> NDArray[np.int8]:
        """The cells at places that are given in cells from the corner of the raster."""
        height, width = self._shape
        column, row = x.astype(np.int32), y.astype(np.int32)
        np.minimum(np.maximum(column, 0, out=column), width - 1, out=column)
        np.minimum(np.maximum(row, 0, out=row), height - 1, out=row)
        row *= width
        row += column
        return np.asarray(self._flat.take(row))

    def least_crossings(self, place: Floats, direction: Floats, distance: Floats, enough: Floats) -> Integers:
        """A number of sides that each line from a place crosses at least. More than `enough` need not be found."""
        x, y = ((place - self._low) / self._cell_m).tolist()
        right, up = direction[:, 0] / self._cell_m, direction[:, 1] / self._cell_m
        ends = self._at(x + right * distance, y + up * distance) != FREE
        begins = int(self._at(np.array([x]), np.array([y]))[0] != FREE)
        sides = np.zeros(len(distance), dtype=np.int64)
        lines = np.arange(len(distance))
        # Most lines meet a building after a few samples. Only the others are followed further.
        for samples in (FIRST_SAMPLES, SAMPLES):
            steps = self._steps_m[:samples]
            solid = self._at(x + right[lines, None] * steps, y + up[lines, None] * steps) == SOLID
            solid &= steps < distance[lines, None]
            # Solid samples in a row may be of one building. Each row of them has a side at either end, unless the line
            # begins or ends within the building.
            entered = solid[:, 0] + np.count_nonzero(solid[:, 1:] & ~solid[:, :-1], axis=1)
            sides[lines] = 2 * entered - begins - ends[lines]
            lines = lines[sides[lines] < enough[lines]]
        return np.maximum(sides, 0)


class BuildingIndex:
    """A grid that finds the buildings near a line."""

    def __init__(self, corners: Sequence[Floats]) -> None:
        """`corners` as for the raster."""
        low = np.array([sides[:, :2].min(axis=0) for sides in corners]).reshape(-1, 2)
        high = np.array([sides[:, :2].max(axis=0) for sides in corners]).reshape(-1, 2)
        self._buildings = len(corners)
        self._low = low.min(axis=0) if len(low) else np.zeros(2)
        span = high.max(axis=0) - self._low if len(high) else np.ones(2)
        area_m2 = max(float(span[0]), 1.0) * max(float(span[1]), 1.0)
        self._cell_m = max(INDEX_FINEST_M, math.sqrt(area_m2 / INDEX_MOST_CELLS))
        # Lines are sampled once for each cell, so a point of a line is within half a cell of a sample.
        self._low = self._low - self._cell_m
        self._width = int(span[0] / self._cell_m) + 4
        self._height = int(span[1] / self._cell_m) + 4
        first = ((low - self._cell_m / 2 - self._low) / self._cell_m).astype(np.int64)
        last = ((high + self._cell_m / 2 - self._low) / self._cell_m).astype(np.int64)
        cells, owners = [], []
        for building, ((left, bottom), (right, top)) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            rows, columns = np.arange(bottom, top + 1), np.arange(left, right + 1)
            covered = (rows[:, None] * self._width + columns[None, :]).ravel()
            cells.append(covered)
            owners.append(np.full(len(covered), building))
        cell = np.concatenate(cells) if cells else np.zeros(0, dtype=np.int64)
        owner = np.concatenate(owners) if owners else np.zeros(0, dtype=np.int64)
        order = np.argsort(cell, kind="stable")
        self._owner = owner[order]
        self._start = np.searchsorted(cell[order], np.arange(self._width * self._height + 1))

    def near_lines(self, place: Floats, direction: Floats, distance: Floats) -> tuple[Integers, Integers]:
        """The pairs of a line from a place and a building that may touch it."""
        steps = np.arange(0.0, float(distance.max()) + self._cell_m, self._cell_m)
        at = np.minimum(steps, distance[:, None])
        at /= self._cell_m
        x, y = ((place - self._low) / self._cell_m).tolist()
        column = (x + direction[:, :1] * at).astype(np.int32)
        row = (y + direction[:, 1:] * at).astype(np.int32)
        within = (column >= 0) & (column < self._width) & (row >= 0) & (row < self._height)
        line, _ = np.nonzero(within)
        cell = row[within].astype(np.int64) * self._width + column[within]
        start, end = self._start[cell], self._start[cell + 1]
        some = end > start
        line, start, counts = line[some], start[some], end[some] - start[some]
        pair = np.repeat(np.arange(len(line)), counts)
        place_in = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts) + start[pair]
        # A building is near several samples of a line; it counts once.
        met = np.zeros((len(distance), self._buildings), dtype=np.bool_)
        met[line[pair], self._owner[place_in]] = True
        lines, buildings = np.nonzero(met)
        return lines.astype(np.int64), buildings.astype(np.int64)
