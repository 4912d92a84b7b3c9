"""Exact contacts: when every pair of nodes comes within range and parts again.

Two nodes on straight legs are within range while a quadratic in time is not positive, so link-up and link-down times
are its roots: there is no time step and no sampling error. A grid decides which legs are compared: time is cut into
slices, legs into pieces that lie in one slice and are short in space, and only pieces whose surroundings touch are
compared. Legs of standing nodes are compared with each other in a separate pass, whose slices are as long as these
legs last. Nodes that stand still for a whole run thus cost one comparison and not one per slice.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carrycast.errors import UserError
from carrycast.sim.contacts.plan import ContactPlan, order_by
from carrycast.sim.mobility import Floats, Integers, Trajectories

# The maximum number of pieces of one leg within a slice. A leg that would need more, such as a jump across the map,
# makes the grid of its chunk coarser instead of filling the memory.
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
        """The legs, given in any order, that overlap the time from 0 to duration_s."""
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
    """Parts of legs, each within one slice: the middle in time and space, and the largest distance from it."""

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


class LegCutter:
    """Cuts legs into pieces, some slices at a time; keeps only the legs that have not ended."""

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
        row, nth = number_groups(high - low)
        index = low[row] + nth
        start_s = np.maximum(from_s[row], index * slice_s)
        end_s = np.minimum(to_s[row], (index + 1) * slice_s)
        speed_mps = legs.speed_mps[active][row]
        parts = np.clip(np.ceil(speed_mps * (end_s - start_s) / self.longest_m), 1, MAX_PARTS).astype(np.int64)
        if len(parts) and parts.max() > 1:
            part, nth = number_groups(parts)
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


def number_groups(counts: Integers) -> tuple[Integers, Integers]:
    """For counts [2, 1]: which row each unit belongs to, [0, 0, 1], and its number in that row, [0, 1, 0]."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)


# Rows of the grid per reach of a piece: more of them follow the circle closer but cost a search each.
ROWS = 2
COLUMNS = 8
# Cells per side at most, so that (slice, row, column) fits a 64-bit key whatever the extent of the movement.
MAX_CELLS = 1 << 20
# Pairs handled at once, so that they stay in the processor's caches.
BLOCK_PAIRS = 65_536


@dataclass(frozen=True, slots=True)
class CellGrid:
    """Rows and columns over the area, per slice. Pieces whose middles are within `span_m` may be in contact."""

    x_m: float
    y_m: float
    row_m: float
    column_m: float
    rows: int
    columns: int
    span_m: float

    @classmethod
    def over(cls, sets: list[Pieces], range_m: float) -> "CellGrid":
        x_m = np.concatenate([pieces.x_m for pieces in sets])
        y_m = np.concatenate([pieces.y_m for pieces in sets])
        reach_m = np.concatenate([pieces.reach_m for pieces in sets])
        # The last factor covers rounding.
        span_m = (range_m + 2 * float(reach_m.max())) * (1 + 1e-6)
        left_m, width_m = float(x_m.min()) - span_m, float(np.ptp(x_m)) + 2 * span_m
        row_m = max(span_m / ROWS, float(np.ptp(y_m)) / MAX_CELLS)
        column_m = max(span_m / COLUMNS, width_m / MAX_CELLS)
        # Spare rows at both ends, so that a search of the adjacent rows never reaches another slice.
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
        """The distance to search to both sides in a row that is `rows_away` rows away."""
        between_m = max(abs(rows_away) - 1, 0) * self.row_m
        return sqrt(max(self.span_m**2 - between_m**2, 0.0))


class Cells:
    """Pieces ordered by the cell of the grid they lie in."""

    def __init__(self, pieces: Pieces, grid: CellGrid) -> None:
        row = grid.row(pieces)
        key = row + grid.column(pieces.x_m)
        order = np.argsort(key)
        self.pieces, self.row, self.key = pieces.take(order), row[order], key[order]
        self.grid = grid

    def near(self, other: "Cells") -> Iterator[tuple[Integers, Integers]]:
        """The pairs of pieces, of these cells and others, that may be in contact. `near(self)` has each pair once."""
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
        return _enumerate_pairs(index, np.concatenate(lows), np.concatenate(counts))


def _enumerate_pairs(index: Integers, low: Integers, count: Integers) -> Iterator[tuple[Integers, Integers]]:
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


# Contacts of a pair that are less than this apart are one: it is the resolution of the simulator's clock, far above the
# noise of floating point at the end of a leg.
RESOLUTION_S = 1e-6
# Shorter parts of contacts are left out: the resolution bridges them, and without them the starts of a pair's contacts,
# counted in this unit, are all different.
SLIVER_S = RESOLUTION_S / 4
# Two nodes that move relative to each other by less than this share of the range stand still to each other, and are
# linked at the range itself within the same share: a grid spaced by exactly the range has all its links.
NOISE = 1e-10
# The longest piece, and the slice at the mean speed, in ranges: measured minima of W1 (benchmarks/contacts.py), flat
# between half and double.
PIECE_RANGES = 1.5
SLICE_RANGES = 1.0
# Pieces handled at once: enough to make NumPy's overhead small, few enough to stay in the processor's caches.
CHUNK_PIECES = 32_768
# More pieces than this take hours: the range is surely in other units than the speeds.
MAX_PIECES = 10_000_000_000


def compute_contacts(trajectories: Trajectories, range_m: float, duration_s: float) -> ContactPlan:
    """All maximal intervals in [0, duration_s] in which two nodes are at most range_m apart.

    A contact open at 0 starts at 0, one open at the end ends at duration_s. Times are rounded to a microsecond;
    intervals that then have no length, such as a tangent, are left out.
    """
    if not (range_m > 0 and duration_s > 0):
        raise UserError(f"contacts need a positive range and duration, not {range_m:g} m and {duration_s:g} s")
    nodes = trajectories.nodes
    pair, start_s, end_s = contact_intervals(Legs.of(trajectories, duration_s), nodes, range_m, duration_s)
    start_s, end_s = _round_times(start_s), np.where(end_s > duration_s - RESOLUTION_S, duration_s, _round_times(end_s))
    real = end_s > start_s
    a, b = np.divmod(pair[real], max(nodes, 1))
    return ContactPlan.of(nodes, duration_s, a, b, start_s[real], end_s[real])


def contact_intervals(legs: Legs, nodes: int, range_m: float, duration_s: float) -> "Intervals":
    """Unrounded contacts, ordered by pair and start. They are rounded after the parts of each contact are merged."""
    moving = legs.select(legs.speed_mps > 0)
    standing = legs.select(legs.speed_mps == 0)
    found = _Contacts(nodes, range_m)
    if len(moving.node):
        path_m = float((moving.speed_mps * moving.lasting_s).sum())
        if path_m / range_m > MAX_PIECES:
            raise UserError(f"the nodes move {path_m:g} m, too far for a range of {range_m:g} m; check the units")
        target_s = min(SLICE_RANGES * range_m * moving.total_s / path_m, moving.total_s / len(moving.node))
        least_s = _least_slice_s(nodes, len(moving.node) + path_m / range_m, duration_s)
        found.sweep(moving, standing, max(target_s, least_s), duration_s)
    if len(standing.node):
        target_s = standing.total_s / len(standing.node)
        least_s = _least_slice_s(nodes, len(standing.node), duration_s)
        found.sweep(standing, None, max(target_s, least_s), duration_s)
    return _merge_intervals(found.done)


def _least_slice_s(nodes: int, pieces: float, duration_s: float) -> float:
    """The shortest slice with which the slices do not outnumber the pieces, as after a few short legs in a long run."""
    return nodes * duration_s / (4 * (pieces + nodes))


# Pair (a times the number of nodes, plus b), start and end.
Intervals = tuple[Integers, Floats, Floats]


class _Contacts:
    """Collects the contacts of pieces and joins those that continue from one piece to the next."""

    def __init__(self, nodes: int, range_m: float) -> None:
        self.nodes = nodes
        self.range_m = range_m
        self.done: list[Intervals] = []

    def sweep(self, legs: Legs, others: Legs | None, slice_s: float, duration_s: float) -> None:
        """Compare legs with each other, and with others, from the start of the run to its end."""
        # Pieces last some microseconds at least, however fast a node is: shorter ones would be taken for slivers.
        least_s = 4 * RESOLUTION_S
        slice_s = max(slice_s, least_s)
        longest_m = max(PIECE_RANGES * self.range_m, float(legs.speed_mps.max()) * least_s)
        slices = max(ceil(duration_s / slice_s), 1)
        step = max(min(CHUNK_PIECES // self.nodes, MAX_CELLS), 1)
        feeds = [LegCutter(some, slice_s, longest_m) for some in (legs, others) if some is not None]
        still_open: list[Intervals] = []
        for begin in range(0, slices, step):
            end = min(begin + step, slices)
            sets = [feed.cut(begin, end) for feed in feeds]
            if not len(sets[0].node):
                self.done.extend(still_open)
                still_open = []
                continue
            grid = CellGrid.over(sets, self.range_m)
            cells = [Cells(pieces, grid) for pieces in sets]
            pair, start_s, end_s = _merge_intervals(still_open + self._between(cells))
            # Contacts open at the end of the chunk may continue in the next one; all others are complete.
            going_on = end_s > end * slice_s - RESOLUTION_S
            still_open = [(pair[going_on], start_s[going_on], end_s[going_on])]
            self.done.append((pair[~going_on], start_s[~going_on], end_s[~going_on]))
        self.done.extend(still_open)

    def _between(self, cells: list[Cells]) -> list[Intervals]:
        """The contacts of the first pieces with each other and with all others."""
        mine = cells[0]
        return [self._solve(mine.pieces, some.pieces, i, j) for some in cells for i, j in mine.near(some)]

    def _solve(self, one: Pieces, other: Pieces, i: Integers, j: Integers) -> Intervals:
        """The contacts of pieces i of one with pieces j of the other: pair, start and end."""
        dx, dy = other.x_m[j] - one.x_m[i], other.y_m[j] - one.y_m[i]
        reach_m = one.reach_m[i] + other.reach_m[j] + self.range_m * (1 + 1e-9)
        near = np.flatnonzero(dx * dx + dy * dy <= reach_m * reach_m)
        i, j, dx, dy = i[near], j[near], dx[near], dy[near]
        start_s = np.maximum(one.start_s[i], other.start_s[j])
        lasting_s = np.minimum(one.end_s[i], other.end_s[j]) - start_s
        a, b = one.node[i], other.node[j]
        vx1, vy1, vx2, vy2 = one.vx_mps[i], one.vy_mps[i], other.vx_mps[j], other.vy_mps[j]
        after1_s, after2_s = start_s - one.middle_s[i], start_s - other.middle_s[j]
        px, py = dx + vx2 * after2_s - vx1 * after1_s, dy + vy2 * after2_s - vy1 * after1_s
        low_s, high_s = _times_within_range(px, py, vx2 - vx1, vy2 - vy1, self.range_m, lasting_s)
        real = np.flatnonzero((high_s - low_s > SLIVER_S) & (a != b))
        a, b, start_s = a[real], b[real], start_s[real]
        pair = np.minimum(a, b) * self.nodes + np.maximum(a, b)
        return pair, start_s + low_s[real], start_s + high_s[real]


def _times_within_range(
    px: Floats, py: Floats, vx: Floats, vy: Floats, range_m: float, lasting_s: Floats
) -> tuple[Floats, Floats]:
    """The times at which a point at p with velocity v is within range of the origin; low >= high if never.

    |p + v t| = R has the roots (-p.v -+ sqrt(D)) / v.v with D = (R |v|)^2 - (p x v)^2, which keeps its digits where
    (p.v)^2 - v.v (p.p - R^2) would cancel. Of the two roots the one that adds is computed first, the other from the
    product of both.
    """
    square = vx * vx + vy * vy
    dot = px * vx + py * vy
    cross = px * vy - py * vx
    away = px * px + py * py - range_m * range_m
    discriminant = range_m * range_m * square - cross * cross
    with np.errstate(divide="ignore", invalid="ignore"):
        added = -(dot + np.copysign(np.sqrt(discriminant), dot))
        one, two = added / square, away / added
    low_s, high_s = np.fmax(np.fmin(one, two), 0.0), np.fmin(np.fmax(one, two), lasting_s)
    # Not a number means a negative discriminant: the line passes by. Zero is a tangent.
    high_s[~(discriminant > 0)] = -1.0
    still = np.flatnonzero(square * lasting_s * lasting_s <= (NOISE * range_m) ** 2)
    if len(still):
        low_s[still] = 0.0
        high_s[still] = np.where(away[still] <= 2 * NOISE * range_m * range_m, lasting_s[still], -1.0)
    return low_s, high_s


def _round_times(time_s: Floats) -> Floats:
    """Round times to the microsecond."""
    rounded: Floats = np.round(time_s, 6)
    return rounded


def _merge_intervals(found: list[Intervals]) -> Intervals:
    """Intervals ordered by pair and start, with touching intervals of a pair merged."""
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
    pair = np.concatenate([columns[0] for columns in found])
    start_s = np.concatenate([columns[1] for columns in found])
    end_s = np.concatenate([columns[2] for columns in found])
    order = order_by(pair, (start_s / SLIVER_S).astype(np.int64))
    pair, start_s, end_s = pair[order], start_s[order], end_s[order]
    other = pair[1:] != pair[:-1]
    until_s = _latest_ends(other, end_s)
    new = np.ones(len(pair) + 1, dtype=np.bool_)
    new[1:-1] = other | (start_s[1:] - until_s[:-1] > RESOLUTION_S)
    first = np.flatnonzero(new[:-1])
    last = np.flatnonzero(new[1:])
    return pair[first], start_s[first], until_s[last]


def _latest_ends(other: NDArray[np.bool_], end_s: Floats) -> Floats:
    """The latest end among each interval and the earlier ones of its pair; `other` is true where the pair changes.

    Ends usually increase, since two nodes are on one pair of legs at a time. The exception is a gap within the
    resolution that contains an interval: the moment between two legs in which a node stands. Intervals of standing
    nodes are computed in a separate pass.
    """
    if not bool(((end_s[1:] < end_s[:-1]) > other).any()):
        return end_s
    # A running maximum per pair. It is taken over ranks, to which the pair's offset can be added without rounding.
    order = np.argsort(end_s)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    offset = np.cumsum(np.append(False, other)) * len(order)
    furthest: Floats = end_s[order[np.maximum.accumulate(offset + rank) - offset]]
    return furthest
