"""How much of a map lies off its roads."""

from math import sqrt

import numpy as np

from carrycast.core.model.roads import RoadMap

# Enough for three digits of a share.
POINTS = 1_000_000


def share_beyond(map: RoadMap, distance_m: float) -> float:
    """The share of the rectangle that is farther than a distance from the middle of every road, on a raster."""
    step_m = sqrt(map.width_m * map.height_m / POINTS)
    columns, rows = max(1, round(map.width_m / step_m)), max(1, round(map.height_m / step_m))
    x_m = ((np.arange(columns) + 0.5) * map.width_m / columns)[:, None]
    y_m = ((np.arange(rows) + 0.5) * map.height_m / rows)[None, :]
    beyond = np.ones((columns, rows), dtype=np.bool_)
    for road in map.roads:
        for (start_x_m, start_y_m), end in road.pieces():
            dx_m, dy_m = end[0] - start_x_m, end[1] - start_y_m
            share = ((x_m - start_x_m) * dx_m + (y_m - start_y_m) * dy_m) / (dx_m * dx_m + dy_m * dy_m)
            share = np.clip(share, 0.0, 1.0)
            squared = (start_x_m + share * dx_m - x_m) ** 2 + (start_y_m + share * dy_m - y_m) ** 2
            beyond &= squared > distance_m * distance_m
    return float(beyond.mean())
