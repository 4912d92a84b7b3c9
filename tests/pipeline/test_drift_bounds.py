"""What anybody could do in the networks of drift, by hand."""

from pathlib import Path

import numpy as np

import carrycast
from carrycast.analysis.experiments.drift.bounds import (
    count_greedy_frames,
    count_tree_frames,
    links_at,
    reachable_share,
)
from carrycast.sim.contacts.plan import ContactPlan

EXPERIMENTS = Path(carrycast.__file__).parent / "analysis" / "experiments"


def test_a_tree_of_broadcasts_reaches_everybody_who_is_linked() -> None:
    line = {0: {1}, 1: {0, 2}, 2: {1, 3}, 3: {2}}
    assert count_greedy_frames(line, 0) == 3
    assert count_greedy_frames(line, 1) == 2
    star = {0: {1, 2, 3}, 1: {0}, 2: {0}, 3: {0}}
    assert count_greedy_frames(star, 0) == 1
    assert count_greedy_frames(star, 3) == 2
    assert count_greedy_frames(star, 9) == 0


def test_links_are_those_of_the_moment() -> None:
    a, b = np.array([0, 1]), np.array([1, 2])
    plan = ContactPlan.of(3, 10.0, a, b, np.array([0.0, 4.0]), np.array([5.0, 10.0]))
    assert links_at(plan, 1.0) == {0: {1}, 1: {0}}
    assert links_at(plan, 4.5) == {0: {1}, 1: {0, 2}, 2: {1}}
    assert links_at(plan, 5.0) == {1: {2}, 2: {1}}


def test_in_the_grid_everybody_can_be_reached_and_in_the_sparse_network_not() -> None:
    assert reachable_share(EXPERIMENTS / "drift/grid.toml", 1) == 1.0
    found = reachable_share(EXPERIMENTS / "baselines/sparse.toml", 1)
    assert found is not None
    assert 0.85 < found < 0.98
    frames = count_tree_frames(EXPERIMENTS / "drift/grid.toml", 1)
    assert frames is not None
    # Some 300 events, and of 49 nodes with four neighbors each some twenty speak.
    assert 300 * 15 < frames < 310 * 25
