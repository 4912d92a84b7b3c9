"""Movements that are difficult to cut into slices and strips."""

from collections.abc import Callable

import numpy as np

from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.movement_file import join_samples
from carrycast.sim.mobility.random_waypoint import RandomWaypoint
from carrycast.sim.mobility.stationary import GridModel
from carrycast.sim.mobility.trajectory import Trajectories
from tests.unit.contacts.test_contacts_brute_force import wild

DURATION_S = 300.0
RANGE_M = 60.0


def _walk(pause_max_s: float, side_m: float = 600.0) -> Trajectories:
    model = RandomWaypoint(speed_min_mps=1, speed_max_mps=10, pause_max_s=pause_max_s)
    return model.trajectories(40, Area(side_m, side_m), DURATION_S, np.random.default_rng(3))


def _standing() -> Trajectories:
    """Static nodes at distances of exactly the range."""
    return GridModel(spacing_m=RANGE_M).trajectories(25, Area(400, 400), DURATION_S, np.random.default_rng(1))


def _sampled() -> Trajectories:
    """Noisy receivers with a row per second and some gaps."""
    rng = np.random.default_rng(5)
    node, time_s = (grid.ravel() for grid in np.meshgrid(np.arange(30), np.arange(0.0, 301.0), indexing="ij"))
    speed = rng.uniform(-8, 8, size=(30, 2))
    start = rng.uniform(0, 600, size=(30, 2))
    place = start[node] + speed[node] * time_s[:, None] + rng.normal(0, 2, size=(len(node), 2))
    keep = rng.random(len(node)) > 0.02
    steps = time_s.astype(np.int64)[keep]
    return join_samples(30, DURATION_S, node[keep], time_s[keep], place[keep, 0], place[keep, 1], steps)


def _meeting_at_a_border() -> Trajectories:
    """Two nodes that part and meet exactly at the ends of slices, and one that leaps across the map."""
    node, time_s = np.array([0, 0, 1, 1, 1, 2, 2, 2]), np.array([0.0, 300.0, 0.0, 150.0, 300.0, 0.0, 75.0, 75.001])
    x_m = np.array([0.0, 0.0, 60.0, 120.0, 60.0, -500.0, -500.0, 900.0])
    return join_samples(3, DURATION_S, node, time_s, x_m, np.zeros(8), None)


WORLDS: dict[str, Callable[[], Trajectories]] = {
    "pauses": lambda: _walk(30.0),
    "no pauses": lambda: _walk(0.0),
    "crowd": lambda: _walk(10.0, side_m=150.0),
    "standing": _standing,
    "sampled": _sampled,
    "borders": _meeting_at_a_border,
    "wild": lambda: wild(1),
}
