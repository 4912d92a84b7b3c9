"""Random waypoint: its rules, its steady state, and the drift of a cold start."""

import msgspec
import numpy as np
import pytest

from carrycast.errors import UserError
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.random_waypoint import RandomWaypoint, mean_inverse_speed, mean_leg_m, residual_pause_s
from carrycast.sim.mobility.trajectory import Floats, Trajectories

SQUARE = Area(1000, 1000)


def walk(model: RandomWaypoint, nodes: int, area: Area, duration_s: float, seed: int = 1) -> Trajectories:
    return model.trajectories(nodes, area, duration_s, np.random.default_rng(seed))


def speeds(there: Trajectories, time_s: float) -> Floats:
    return np.array([np.hypot(*(there.velocity(node, time_s) or (np.nan, np.nan))) for node in range(there.nodes)])


def centrality(there: Trajectories, time_s: float) -> float:
    """The share of nodes in the middle quarter of the square."""
    place = there.positions(time_s)
    return float(((place > 250) & (place < 750)).all(axis=1).mean())


@pytest.mark.parametrize(("width_m", "height_m", "mean_m"), [(1000, 1000, 521.4), (200, 500, 191), (750, 500, 329)])
def test_the_mean_leg_is_the_mean_distance_in_a_rectangle(width_m: float, height_m: float, mean_m: float) -> None:
    assert mean_leg_m(Area(width_m, height_m)) == pytest.approx(mean_m, rel=3e-3)


@pytest.mark.parametrize(("low", "high", "mean"), [(1, 20, 6.34), (1, 5, 2.49), (1, 10, 3.91), (4, 4, 4.0)])
def test_the_mean_speed_in_time_is_below_the_mean_of_the_range(low: float, high: float, mean: float) -> None:
    assert 1 / mean_inverse_speed(low, high) == pytest.approx(mean, abs=5e-3)


@pytest.mark.parametrize(
    ("area", "speed", "pause", "probability"),
    [
        (SQUARE, (1, 20), (10, 10), 0.108),
        (Area(750, 500), (1, 20), (30, 30), 0.367),
        (Area(200, 500), (1, 5), (1, 5), 0.038),
    ],
)
def test_the_share_of_time_in_pauses(
    area: Area, speed: tuple[float, float], pause: tuple[float, float], probability: float
) -> None:
    model = RandomWaypoint(
        speed_min_mps=speed[0], speed_max_mps=speed[1], pause_min_s=pause[0], pause_max_s=pause[1], start="steady"
    )
    assert model.pause_probability(area) == pytest.approx(probability, abs=1e-3)
    nodes = 6000
    there = walk(model, nodes, area, 200.0)
    error = (probability * (1 - probability) / nodes) ** 0.5
    for time_s in (0.0, 150.0):
        assert (speeds(there, time_s) == 0).mean() == pytest.approx(probability, abs=4 * error)


@pytest.mark.parametrize(("high", "mean"), [(5, 2.49), (20, 6.34)])
def test_a_steady_start_has_the_steady_speed_at_all_times(high: float, mean: float) -> None:
    there = walk(RandomWaypoint(speed_min_mps=1, speed_max_mps=high, start="steady"), 4000, SQUARE, 600.0)
    for time_s in (0.0, 100.0, 600.0):
        speed = speeds(there, time_s)
        assert speed.mean() == pytest.approx(mean, abs=4 * speed.std() / 4000**0.5)


def test_a_cold_start_is_fast_first_and_slows_down() -> None:
    there = walk(RandomWaypoint(speed_min_mps=1, speed_max_mps=20), 4000, SQUARE, 2000.0)
    assert speeds(there, 0.0).mean() == pytest.approx(10.5, abs=0.35)
    assert speeds(there, 2000.0).mean() == pytest.approx(6.34, abs=0.35)


def test_a_cold_start_is_uniform_and_then_gathers_in_the_middle_while_a_steady_one_stays() -> None:
    cold = walk(RandomWaypoint(speed_min_mps=5, speed_max_mps=10), 4000, SQUARE, 500.0)
    steady = walk(RandomWaypoint(speed_min_mps=5, speed_max_mps=10, start="steady"), 4000, SQUARE, 500.0)
    # Four standard errors of a share of 0.4 among 4000 are 0.031.
    assert centrality(cold, 0.0) == pytest.approx(0.25, abs=0.03)
    assert centrality(cold, 500.0) > 0.35
    assert centrality(steady, 0.0) == pytest.approx(centrality(cold, 500.0), abs=0.045)
    assert centrality(steady, 0.0) == pytest.approx(centrality(steady, 250.0), abs=0.045)


def test_the_rest_of_a_constant_pause_is_uniform() -> None:
    quantile = np.linspace(0, 1, 11)
    assert np.allclose(residual_pause_s(8, 8, quantile), 8 * quantile)


def test_the_rest_of_a_pause_follows_the_survival() -> None:
    # For U[a, b] the mean rest is E[P^2] / (2 E[P]); the share of rests below a is a / E[P].
    rest_s = residual_pause_s(2, 10, (np.arange(100_000) + 0.5) / 100_000)
    second_moment = (10**3 - 2**3) / (3 * 8)
    assert rest_s.mean() == pytest.approx(second_moment / (2 * 6), rel=1e-4)
    assert (rest_s < 2).mean() == pytest.approx(2 / 6, abs=1e-4)
    assert (rest_s.min() >= 0, rest_s.max() <= 10) == (True, True)


def test_legs_join_and_stay_in_the_area_for_the_whole_run() -> None:
    model = RandomWaypoint(speed_min_mps=2, speed_max_mps=9, pause_min_s=1, pause_max_s=4, start="steady")
    there = walk(model, 40, Area(300, 100), 200.0)
    for node in range(40):
        rows = slice(there.first[node], there.first[node + 1])
        start_s, end_s = there.start_s[rows], there.end_s[rows]
        assert (start_s[0], end_s[-1]) == (0.0, 200.0)
        assert np.array_equal(start_s[1:], end_s[:-1])
        x_m, y_m = there.x_m[rows], there.y_m[rows]
        end_x_m, end_y_m = (
            x_m + there.vx_mps[rows] * (end_s - start_s),
            y_m + there.vy_mps[rows] * (end_s - start_s),
        )
        assert np.allclose(end_x_m[:-1], x_m[1:], rtol=0, atol=1e-6)
        assert np.allclose(end_y_m[:-1], y_m[1:], rtol=0, atol=1e-6)
        assert (np.r_[x_m, end_x_m].min() > -1e-6, np.r_[x_m, end_x_m].max() < 300 + 1e-6) == (True, True)
        assert (np.r_[y_m, end_y_m].min() > -1e-6, np.r_[y_m, end_y_m].max() < 100 + 1e-6) == (True, True)
    speed = np.hypot(there.vx_mps, there.vy_mps)
    assert ((speed[speed > 0] > 2 - 1e-9) & (speed[speed > 0] < 9 + 1e-9)).all()


def test_the_same_seed_gives_the_same_movement_and_another_one_another() -> None:
    model = RandomWaypoint(speed_min_mps=1, speed_max_mps=5, pause_max_s=3, start="steady")
    one, same, other = (walk(model, 20, SQUARE, 300.0, seed) for seed in (7, 7, 8))
    assert np.array_equal(one.x_m, same.x_m)
    assert np.array_equal(one.end_s, same.end_s)
    assert not np.array_equal(one.positions(0.0), other.positions(0.0))


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"speed_min_mps": 5, "speed_max_mps": 1}, "must not exceed speed_max_mps"),
        ({"speed_min_mps": 0, "speed_max_mps": 1}, "speed_min_mps"),
        ({"speed_min_mps": float("nan"), "speed_max_mps": 1}, "speed_min_mps"),
        ({"speed_min_mps": 1, "speed_max_mps": 2, "pause_min_s": 3}, "must not exceed pause_max_s"),
        ({"speed_min_mps": 1, "speed_max_mps": 2, "pause_max_s": -1}, "pause_max_s"),
        ({"speed_min_mps": 1, "speed_max_mps": 2, "start": "warm"}, "warm"),
        ({"speed_min_mps": 1, "speed_max_mps": 2, "speed": 2}, "unknown field `speed`"),
        ({"speed_min_mps": 1}, "speed_max_mps"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=complaint):
        msgspec.convert(settings, RandomWaypoint)


def test_an_area_in_the_wrong_unit_is_refused() -> None:
    with pytest.raises(UserError, match="larger area"):
        walk(RandomWaypoint(speed_min_mps=10, speed_max_mps=20), 1000, Area(0.001, 0.001), 600.0)
