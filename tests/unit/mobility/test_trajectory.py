"""Positions and velocities on piecewise-linear movement."""

import pickle

import numpy as np
import pytest

from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.random_waypoint import RandomWaypoint
from carrycast.sim.mobility.trajectory import Trajectories


@pytest.fixture
def two() -> Trajectories:
    """Node 0 walks right for 10 s and rests; node 1 is there from 5 s to 8 s and again from 12 s, elsewhere."""
    return Trajectories(
        np.array([0, 2, 4]),
        np.array([0.0, 10.0, 5.0, 12.0]),
        np.array([10.0, 20.0, 8.0, 20.0]),
        np.array([0.0, 20.0, 7.0, 50.0]),
        np.array([0.0, 0.0, 7.0, 50.0]),
        np.array([2.0, 0.0, 0.0, 0.0]),
        np.array([0.0, 0.0, 1.0, -1.0]),
    )


@pytest.mark.parametrize(
    ("node", "time_s", "place", "velocity"),
    [
        (0, 0.0, (0.0, 0.0), (2.0, 0.0)),
        (0, 2.5, (5.0, 0.0), (2.0, 0.0)),
        (0, 10.0, (20.0, 0.0), (0.0, 0.0)),
        (0, 20.0, (20.0, 0.0), (0.0, 0.0)),
        (1, 5.0, (7.0, 7.0), (0.0, 1.0)),
        (1, 8.0, (7.0, 10.0), (0.0, 1.0)),
        (1, 14.0, (50.0, 48.0), (0.0, -1.0)),
    ],
)
def test_a_node_is_where_its_leg_takes_it(
    two: Trajectories, node: int, time_s: float, place: tuple[float, float], velocity: tuple[float, float]
) -> None:
    assert two.position(node, time_s) == place
    assert two.velocity(node, time_s) == velocity
    assert tuple(two.positions(time_s)[node]) == place


@pytest.mark.parametrize("time_s", [0.0, 4.999, 8.001, 11.9, 20.1, -1.0])
def test_an_absent_node_is_nowhere(two: Trajectories, time_s: float) -> None:
    assert two.position(1, time_s) is None
    assert two.velocity(1, time_s) is None
    assert np.isnan(two.positions(time_s)[1]).all()


def test_plain_numbers_come_out(two: Trajectories) -> None:
    position, velocity = two.position(0, 1.0), two.velocity(0, 1.0)
    assert position is not None
    assert velocity is not None
    assert [type(value) for value in position + velocity] == [float] * 4


def test_one_node_at_a_time_agrees_with_all_at_once() -> None:
    model = RandomWaypoint(speed_min_mps=1, speed_max_mps=20, pause_max_s=5)
    there = model.trajectories(30, Area(300, 200), 100.0, np.random.default_rng(3))
    for time_s in np.linspace(0, 100, 41).tolist():
        single = np.array([there.position(node, time_s) for node in range(30)])
        assert np.allclose(there.positions(time_s), single, rtol=0, atol=1e-9)


def test_what_is_known_of_all_legs(two: Trajectories) -> None:
    assert (two.nodes, two.legs, two.duration_s) == (2, 4, 20.0)


def test_no_node_has_no_duration() -> None:
    none = Trajectories.standing(np.zeros(0), np.zeros(0), 5.0)
    assert (none.nodes, none.duration_s, none.positions(1.0).shape) == (0, 0.0, (0, 2))


def test_trajectories_survive_pickling(two: Trajectories) -> None:
    again: Trajectories = pickle.loads(pickle.dumps(two))
    assert again.position(0, 2.5) == (5.0, 0.0)


def test_legs_are_put_in_the_order_of_node_and_time() -> None:
    there = Trajectories.from_legs(
        3,
        np.array([2, 0, 2, 0]),
        np.array([5.0, 0.0, 0.0, 3.0]),
        np.array([9.0, 3.0, 5.0, 3.0]),
        np.array([1.0, 2.0, 3.0, 4.0]),
        np.zeros(4),
        np.zeros(4),
        np.zeros(4),
    )
    assert there.first.tolist() == [0, 1, 1, 3]
    assert there.x_m.tolist() == [2.0, 3.0, 1.0]


def test_legs_of_a_node_that_overlap_are_a_defect() -> None:
    zeros = np.zeros(2)
    with pytest.raises(AssertionError, match="overlap"):
        Trajectories(np.array([0, 2]), np.array([0.0, 4.0]), np.array([5.0, 9.0]), zeros, zeros, zeros, zeros)
