"""A grid over pieces: only pieces whose surroundings touch are compared."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import sqrt

import numpy as np

from carrycast.sim.contacts.pieces import Pieces
from carrycast.sim.mobility.trajectory import Floats, Integers

# Rows of the grid per reach of a piece: more of them follow the circle closer but cost a search each.
ROWS = 2
COLUMNS = 8
# Cells per side at most, so that (slice, row, column) fits a 64-bit key whatever the extent of the movement.
MAX_CELLS = 1 << 20
# Pairs handled at once, so that they stay in the processor's caches.
BLOCK_PAIRS = 65_536


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows and columns over the area, per slice. Pieces whose middles are within `span_m` may be in contact."""

    x_m: float
    y_m: float
    row_m: float
    column_m: float
    rows: int
    columns: int
    span_m: float

    @classmethod
    def over(cls, sets: list[Pieces], range_m: float) -> "Grid":
        x_m = np.concatenate([pieces.x_m for pieces in sets])
        y_m = np.concatenate([pieces.y_m for pieces in sets])
        reach_m = np.concatenate([pieces.reach_m for pieces in sets])
        # The last factor covers rounding.
        span_m = (range_m + 2 * float(reach_m.max())) * (1 + 1e-6)
        left_m, width_m = float(x_m.min()) - span_m, float(np.ptp(x_m)) + 2 * span_m
        row_m = max(span_m / ROWS, float(np.ptp(y_m)) / MAX_CELLS)
        column_m = max(span_m / COLUMNS, width_m / MAX_CELLS)
        # Spare rows at both ends, so that a look at the rows around never ends up in another slice.
        rows = int(float(np.ptp(y_m)) / row_m) + 2 * ROWS + 2
        return cls(left_m, float(y_m.min()) - ROWS * row_m, row_m, column_m, rows, int(width_m / column_m) + 2, span_m)

    def row(self, pieces: Pieces) -> Integers:
        """The first key of the row that each piece lies in."""
        row = ((pieces.y_m - self.y_m) / self.row_m).astype(np.int64)
        return (pieces.in_slice * self.rows + row) * self.columns

    def column(self, x_m: Floats) -> Integers:
        """The column of each place."""
        return ((x_m - self.x_m) / self.column_m).astype(np.int64)

    def width_m(self, rows_away: int) -> float:
        """How far to look to both sides, so many rows away."""
        between_m = max(abs(rows_away) - 1, 0) * self.row_m
        return sqrt(max(self.span_m**2 - between_m**2, 0.0))


class Cells:
    """Pieces ordered by the cell of the grid they lie in."""

    def __init__(self, pieces: Pieces, grid: Grid) -> None:
        row = grid.row(pieces)
        key = row + grid.column(pieces.x_m)
        order = np.argsort(key)
        self.pieces, self.row, self.key = pieces.take(order), row[order], key[order]
        self.grid = grid

    def near(self, other: "Cells") -> Iterator[tuple[Integers, Integers]]:
        """Pieces of this and of the other that may be in contact, block by block; with itself, each pair once."""
        grid, x_m, key = self.grid, self.pieces.x_m, other.key
        itself = other is self
        lows: list[Integers] = []
        counts: list[Integers] = []
        for away in range(0 if itself else -ROWS, ROWS + 1):
            width_m = grid.width_m(away)
            there = self.row + away * grid.columns
            if itself and away == 0:
                low = np.arange(1, len(key) + 1)
            else:
                low = np.searchsorted(key, there + grid.column(x_m - width_m))
            high = np.searchsorted(key, there + grid.column(x_m + width_m), side="right")
            lows.append(low)
            counts.append(np.maximum(high - low, 0))
        index = np.tile(np.arange(len(x_m)), len(lows))
        return _blocks(index, np.concatenate(lows), np.concatenate(counts))


def _blocks(index: Integers, low: Integers, count: Integers) -> Iterator[tuple[Integers, Integers]]:
    """Each index paired with low, low + 1, ... as often as its count says; about BLOCK_PAIRS pairs at a time."""
    upto = np.cumsum(count)
    total = int(upto[-1]) if len(upto) else 0
    cuts = np.searchsorted(upto, np.arange(BLOCK_PAIRS, total + BLOCK_PAIRS, BLOCK_PAIRS)) + 1
    begin = 0
    for end in np.minimum(cuts, len(upto)).tolist():
        if end > begin:
            part = count[begin:end]
            before = upto[begin:end] - part
            one = np.repeat(index[begin:end], part)
            yield one, np.repeat(low[begin:end] - before + before[0], part) + np.arange(len(one))
        begin = end
