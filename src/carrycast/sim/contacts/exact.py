"""Exact contacts: when every pair of nodes comes within range and parts again.

Two nodes on straight legs are within range while a quadratic in time is not positive, so link-up and link-down times
are its roots: there is no time step and no sampling error. A grid decides which legs are compared: time is cut into
slices, legs into pieces that lie in one slice and are short in space, and only pieces whose surroundings touch are
looked at. Standing legs are joined with each other apart, in slices as long as they last, so that nodes that stand
still for a whole run cost one comparison and not one per slice.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from carrycast.errors import UserError
from carrycast.sim.contacts.cells import MAX_CELLS, Cells, Grid
from carrycast.sim.contacts.pieces import Feed, Legs, Pieces
from carrycast.sim.contacts.plan import ContactPlan, order_by
from carrycast.sim.mobility.trajectory import Floats, Integers, Trajectories

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


def contacts(trajectories: Trajectories, range_m: float, duration_s: float) -> ContactPlan:
    """All maximal intervals in [0, duration_s] in which two nodes are at most range_m apart.

    A contact open at 0 starts at 0, one open at the end ends at duration_s. Times are rounded to a microsecond; what
    then lasts no time, such as a tangent, is no contact.
    """
    if not (range_m > 0 and duration_s > 0):
        raise UserError(f"contacts need a positive range and duration, not {range_m:g} m and {duration_s:g} s")
    nodes = trajectories.nodes
    pair, start_s, end_s = intervals(Legs.of(trajectories, duration_s), nodes, range_m, duration_s)
    start_s, end_s = _rounded(start_s), np.where(end_s > duration_s - RESOLUTION_S, duration_s, _rounded(end_s))
    real = end_s > start_s
    a, b = np.divmod(pair[real], max(nodes, 1))
    return ContactPlan.of(nodes, duration_s, a, b, start_s[real], end_s[real])


def intervals(legs: Legs, nodes: int, range_m: float, duration_s: float) -> "Intervals":
    """The same by pair and start, with every digit: what is found in parts is rounded when it has been joined."""
    moving = legs.select(legs.speed_mps > 0)
    standing = legs.select(legs.speed_mps == 0)
    found = _Contacts(nodes, range_m)
    if len(moving.node):
        path_m = float((moving.speed_mps * moving.lasting_s).sum())
        if path_m / range_m > MAX_PIECES:
            raise UserError(f"the nodes move {path_m:g} m, too far for a range of {range_m:g} m; check the units")
        wish_s = min(SLICE_RANGES * range_m * moving.total_s / path_m, moving.total_s / len(moving.node))
        least_s = _least_slice_s(nodes, len(moving.node) + path_m / range_m, duration_s)
        found.sweep(moving, standing, max(wish_s, least_s), duration_s)
    if len(standing.node):
        wish_s = standing.total_s / len(standing.node)
        least_s = _least_slice_s(nodes, len(standing.node), duration_s)
        found.sweep(standing, None, max(wish_s, least_s), duration_s)
    return _merged(found.done)


def _least_slice_s(nodes: int, pieces: float, duration_s: float) -> float:
    """Slices so long that they do not outnumber the pieces: a few short legs in a long run must not make it fine."""
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
        feeds = [Feed(some, slice_s, longest_m) for some in (legs, others) if some is not None]
        still_open: list[Intervals] = []
        for begin in range(0, slices, step):
            end = min(begin + step, slices)
            sets = [feed.cut(begin, end) for feed in feeds]
            if not len(sets[0].node):
                self.done.extend(still_open)
                still_open = []
                continue
            grid = Grid.over(sets, self.range_m)
            cells = [Cells(pieces, grid) for pieces in sets]
            pair, start_s, end_s = _merged(still_open + self._between(cells))
            # What is open at the end of the chunk may go on in the next one; the rest is complete in this sweep.
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
        low_s, high_s = _within(px, py, vx2 - vx1, vy2 - vy1, self.range_m, lasting_s)
        real = np.flatnonzero((high_s - low_s > SLIVER_S) & (a != b))
        a, b, start_s = a[real], b[real], start_s[real]
        pair = np.minimum(a, b) * self.nodes + np.maximum(a, b)
        return pair, start_s + low_s[real], start_s + high_s[real]


def _within(px: Floats, py: Floats, vx: Floats, vy: Floats, range_m: float, lasting_s: Floats) -> tuple[Floats, Floats]:
    """When a point at p with velocity v is within range of the origin, between 0 and lasting_s; low >= high if never.

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


def _rounded(time_s: Floats) -> Floats:
    """Times to the microsecond."""
    rounded: Floats = np.round(time_s, 6)
    return rounded


def _merged(found: list[Intervals]) -> Intervals:
    """Intervals by pair and start, those of a pair that touch made one."""
    if not found:
        return np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0)
    pair = np.concatenate([columns[0] for columns in found])
    start_s = np.concatenate([columns[1] for columns in found])
    end_s = np.concatenate([columns[2] for columns in found])
    order = order_by(pair, (start_s / SLIVER_S).astype(np.int64))
    pair, start_s, end_s = pair[order], start_s[order], end_s[order]
    other = pair[1:] != pair[:-1]
    until_s = _furthest(other, end_s)
    new = np.ones(len(pair) + 1, dtype=np.bool_)
    new[1:-1] = other | (start_s[1:] - until_s[:-1] > RESOLUTION_S)
    first = np.flatnonzero(new[:-1])
    last = np.flatnonzero(new[1:])
    return pair[first], start_s[first], until_s[last]


def _furthest(other: NDArray[np.bool_], end_s: Floats) -> Floats:
    """The latest end of each interval and those of its pair before it; `other` is where the next belongs to another.

    Two nodes are on one pair of legs at a time, but a gap that the resolution bridges may hold an interval: the moment
    between two legs in which a node without a pause stands. Those are joined apart from moving ones, and found later.
    """
    if not bool(((end_s[1:] < end_s[:-1]) > other).any()):
        return end_s
    # A running maximum that starts anew with each pair: over ranks, which lose no digits when the pair is put before.
    order = np.argsort(end_s)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    offset = np.cumsum(np.append(False, other)) * len(order)
    furthest: Floats = end_s[order[np.maximum.accumulate(offset + rank) - offset]]
    return furthest
