"""Buildings between nodes: polygons, and the power that a signal loses on its way through them.

[C. Sommer, D. Eckhoff, R. German, F. Dressler, A Computationally Inexpensive Empirical Model of IEEE 802.11p Radio
Shadowing in Urban Environments, WONS 2011]: the loss is beta n + gamma d, for n walls and d meters within buildings on
the straight line between sender and receiver.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from carrycast.sim.radio.building_raster import BuildingIndex, BuildingRaster

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Place = tuple[float, float]
Ring = Sequence[Place]
"""The corners of a closed line; the first is not repeated."""
Building = Sequence[Ring]
"""An outer ring, and the rings of its courtyards."""


class Obstacles:
    """The buildings of a scenario, with the loss of each wall and of each meter within."""

    def __init__(self, buildings: Sequence[Building], wall_db: float, meter_db: float) -> None:
        self.buildings = buildings
        self._wall_db = wall_db
        self._meter_db = meter_db
        starts, ends, first = [], [], [0]
        for building in buildings:
            for place, ring in enumerate(building):
                # Outer rings run counterclockwise and courtyards clockwise, so that the interior is always on the left.
                corners = _oriented(ring, counterclockwise=place == 0)
                starts += corners
                ends += [*corners[1:], corners[0]]
            first.append(len(starts))
        self._start = np.array(starts, dtype=np.float64).reshape(-1, 2)
        self._end = np.array(ends, dtype=np.float64).reshape(-1, 2)
        self._first = np.array(first, dtype=np.int64)
        sides = np.concatenate((self._start, self._end), axis=1)
        each = [sides[low:high] for low, high in pairwise(first)]
        self._raster = BuildingRaster(each)
        self._index = BuildingIndex(each)

    def __len__(self) -> int:
        return len(self.buildings)

    def losses_db(self, place: Floats, others: Floats, enough_db: Floats) -> Floats:
        """The loss on the line from one place to each of the others.

        A loss of at least `enough_db` of a line is a lower bound: the rest of the line makes no difference.
        """
        losses: Floats = np.zeros(len(others))
        if not len(others) or not len(self.buildings):
            return losses
        offset = others - place
        distance = np.hypot(offset[:, 0], offset[:, 1])
        # A node at the same place sees the other one.
        direction = offset / np.maximum(distance, 1e-9)[:, None]
        # Most lines through a town are proved to be blocked. The others are computed exactly.
        enough = enough_db / max(self._wall_db, 1e-9)
        losses += self._wall_db * self._raster.least_crossings(place, direction, distance, enough)
        lines = np.flatnonzero(losses < enough_db)
        if len(lines):
            losses[lines] = self._losses_through(place, direction[lines], distance[lines])
        return losses

    def _losses_through(self, place: Floats, direction: Floats, distance: Floats) -> Floats:
        """The exact losses of lines."""
        line, building = self._index.near_lines(place, direction, distance)
        if not len(line):
            return np.zeros(len(distance))
        counts = self._first[building + 1] - self._first[building]
        pair = np.repeat(np.arange(len(line)), counts)
        side = np.arange(len(pair)) - np.repeat(np.cumsum(counts) - counts, counts) + self._first[building][pair]
        line = line[pair]
        toward = direction[line]
        start, end = self._start[side] - place, self._end[side] - place
        # On which side of the line the ends of each side are: one convention for corners, so that each counts once.
        side_a = toward[:, 0] * start[:, 1] - toward[:, 1] * start[:, 0]
        side_b = toward[:, 0] * end[:, 1] - toward[:, 1] * end[:, 0]
        met = (side_a > 0) != (side_b > 0)
        line, toward, start, end = line[met], toward[met], start[met], end[met]
        side_a, side_b = side_a[met], side_b[met]
        along_a, along_b = (toward * start).sum(axis=1), (toward * end).sum(axis=1)
        at_m = (along_a * side_b - along_b * side_a) / (side_b - side_a)
        length_m = distance[line]
        crossed = np.bincount(line[(at_m > 0) & (at_m < length_m)], minlength=len(distance))
        # With the interior on the left of each side, a line that meets one from the right enters the building.
        sign = np.where(side_a > 0, -1.0, 1.0)
        inside = np.bincount(line, weights=sign * np.clip(at_m, 0.0, length_m), minlength=len(distance))
        return self._wall_db * crossed + self._meter_db * np.abs(inside)


def _oriented(ring: Ring, counterclockwise: bool) -> list[Place]:
    corners = list(ring)
    doubled = math.fsum(
        ax * by - bx * ay for (ax, ay), (bx, by) in zip(corners, [*corners[1:], corners[0]], strict=True)
    )
    return corners if (doubled > 0) == counterclockwise else corners[::-1]
