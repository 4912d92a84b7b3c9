"""W1: exact contacts against a KD-tree that steps through time.

Random waypoint, 2000 m x 2000 m at 200 nodes and an area that grows with the nodes, 1 to 10 m/s, no pause, range 250 m,
600 s. The yardstick asks a KD-tree for all close pairs every second and compares with the second before; it finds link
changes to the second, and misses what happens between. CPU seconds are those of the whole process, threads included.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
from scipy.spatial import cKDTree

from carrycast.sim.contacts.exact import compute_contacts
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.random_waypoint import RandomWaypoint
from carrycast.sim.mobility.trajectory import Trajectories

RANGE_M = 250.0
DURATION_S = 600.0
SIZES = (200, 1000, 5000)
# The best of several runs: on a busy machine the others measure the neighbors.
REPEATS = 3


def movement(nodes: int, seed: int = 1) -> Trajectories:
    """The walk of W1, with the density of 200 nodes in 2000 m x 2000 m."""
    side_m = 2000.0 * (nodes / 200) ** 0.5
    model = RandomWaypoint(speed_min_mps=1, speed_max_mps=10)
    return model.trajectories(nodes, Area(side_m, side_m), DURATION_S, np.random.default_rng(seed))


def link_changes_by_tree(there: Trajectories) -> int:
    """The straightforward program: all pairs in range each second, as sorted arrays, and what differs."""
    before = np.zeros(0, dtype=np.int64)
    changes = 0
    for second in range(int(DURATION_S) + 1):
        pairs = cKDTree(there.positions(float(second))).query_pairs(RANGE_M, output_type="ndarray")
        now = np.sort(pairs[:, 0] * there.nodes + pairs[:, 1])
        changes += len(np.setxor1d(before, now, assume_unique=True))
        before = now
    return changes


def link_changes(there: Trajectories) -> int:
    """The same count from the exact contacts, which also see what lasts less than a second."""
    return len(compute_contacts(there, RANGE_M, DURATION_S).changes().time_s)


def _cpu_s(work: Callable[[], object]) -> float:
    """The least CPU time of some runs."""
    times_s = []
    for _ in range(REPEATS):
        begin_s = process_time()
        work()
        times_s.append(process_time() - begin_s)
    return min(times_s)


def run() -> dict[str, object]:
    """CPU seconds per size, the ratio to the yardstick, and the growth from 1000 to 5000 nodes."""
    rows: list[dict[str, float]] = []
    exact_s: dict[int, float] = {}
    for nodes in SIZES:
        there = movement(nodes)
        exact_s[nodes] = _cpu_s(partial(compute_contacts, there, RANGE_M, DURATION_S))
        tree_s = _cpu_s(partial(link_changes_by_tree, there))
        rows.append(
            {
                "nodes": nodes,
                "trajectories_cpu_s": _cpu_s(partial(movement, nodes)),
                "exact_cpu_s": exact_s[nodes],
                "tree_cpu_s": tree_s,
                "ratio": exact_s[nodes] / tree_s,
                "link_changes": link_changes(there),
                "link_changes_seen_by_tree": link_changes_by_tree(there),
            }
        )
    return {
        "name": "W1 contacts",
        "rows": rows,
        "ratio_worst": max(row["ratio"] for row in rows),
        "ratio_allowed": 1.0,
        "growth_1000_to_5000": exact_s[5000] / exact_s[1000],
        "growth_allowed": 7.0,
    }


if __name__ == "__main__":
    json.dump(run(), sys.stdout, indent=2)
    sys.stdout.write("\n")
