"""Freeway: lanes, safety distance, speeds, and what happens at the end of a road."""

import itertools
import time
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from carrycast.errors import UserError
from carrycast.sim.mobility.freeway import Freeway
from carrycast.sim.mobility.model import Area
from carrycast.sim.mobility.trajectory import Trajectories
from tests.unit.mobility.road_worlds import (
    SQUARE,
    assert_legs_join,
    assert_on_roads,
    assert_speeds_within,
    drive,
    map_file,
)

HIGHWAY = Freeway(map="highway", speed_min_mps=10, speed_max_mps=60)
# One lane each way along y = 500, 980 m long: lanes at 498.25 and 501.75, a circuit of 1967 m.
ONE_ROAD = ({"a": (10, 500), "b": (990, 500)}, ["nodes = ['a', 'b']"])


def along(there: Trajectories, time_s: float) -> list[tuple[float, int]]:
    """The place of each vehicle on the circuit of ONE_ROAD, from back to front."""
    rows = []
    for node, (x_m, y_m) in enumerate(there.positions(time_s).tolist()):
        if abs(y_m - 498.25) < 1e-6:
            rows.append((x_m - 10, node))
        elif abs(y_m - 501.75) < 1e-6:
            rows.append((980 + 3.5 + 990 - x_m, node))
        else:
            rows.append((980 + y_m - 498.25 if x_m > 500 else 1963.5 + 501.75 - y_m, node))
    return sorted(rows)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), low=st.floats(0, 20), high=st.floats(20, 60), nodes=st.integers(1, 60))
def test_vehicles_stay_on_the_map_within_their_speeds_and_never_leap(
    seed: int, low: float, high: float, nodes: int
) -> None:
    model = Freeway(map="highway", speed_min_mps=low, speed_max_mps=high)
    there = drive(model, nodes, 60.0, seed)
    assert_legs_join(there, 60.0)
    assert_on_roads(there, model.road_map())
    assert_speeds_within(there, low, high)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000), nodes=st.integers(2, 39), slot_s=st.sampled_from([0.3, 1.0, 5.0]), low=st.floats(0, 30)
)
def test_the_safety_distance_is_kept_at_all_times(
    tmp_path_factory: pytest.TempPathFactory, seed: int, nodes: int, slot_s: float, low: float
) -> None:
    map = map_file(tmp_path_factory.mktemp("map"), *ONE_ROAD)
    there = drive(Freeway(map=map, speed_min_mps=low, speed_max_mps=40, slot_s=slot_s), nodes, 60.0, seed)
    order = None
    for time_s in np.linspace(0, 60, 173).tolist():
        rows = along(there, time_s)
        gaps_m = [ahead - back for (back, _), (ahead, _) in itertools.pairwise(rows)]
        gaps_m.append(rows[0][0] + 1967 - rows[-1][0])
        assert min(gaps_m) >= 50 - 1e-6
        # Nobody overtakes: the order around the circuit stays.
        nodes_in_order = [node for _, node in rows]
        first = nodes_in_order.index(0)
        turned = nodes_in_order[first:] + nodes_in_order[:first]
        order = order or turned
        assert turned == order


def test_looked_at_once_a_slot_the_distance_may_shrink_but_nobody_overtakes(tmp_path: Path) -> None:
    map = map_file(tmp_path, *ONE_ROAD)
    model = Freeway(map=map, speed_min_mps=1, speed_max_mps=40, safety_rule="sampled", slot_s=3.0)
    there = drive(model, 25, 300.0)
    order = [node for _, node in along(there, 0.0)]
    gone_m = {node: place_m for place_m, node in along(there, 0.0)}
    closest_m = 1e9
    for slot in range(100):
        before, after = ({node: place_m for place_m, node in along(there, 3.0 * at)} for at in (slot, slot + 1))
        went_m = {node: (after[node] - before[node]) % 1967 for node in order}
        for back, ahead in zip(order, [*order[1:], order[0]], strict=True):
            gap_m = gone_m[ahead] - gone_m[back] + (1967 if ahead == order[0] else 0)
            closest_m = min(closest_m, gap_m)
            # [IMPORTANT] Within the safety distance nobody is faster than the one ahead.
            assert went_m[back] <= went_m[ahead] + 1e-6 or gap_m > 50 - 1e-6
        gone_m = {node: gone_m[node] + went_m[node] for node in order}
    # Somebody came close, as the rule allows between two looks, and nobody went past.
    assert -1e-6 <= closest_m < 40


def test_a_vehicle_keeps_its_lane_to_the_end_of_the_road_and_comes_back_on_the_opposite_one() -> None:
    there = drive(HIGHWAY, 60, 300.0)
    # On the road west to east, lanes are 1.75 m and 5.25 m from the middle at y = 300.
    found = 0
    for node in range(60):
        rows = slice(there.first[node], there.first[node + 1])
        x_m, y_m, vx, vy = there.x_m[rows], there.y_m[rows], there.vx_mps[rows], there.vy_mps[rows]
        if abs(y_m[0] - 300) > 6 or vy[0] != 0:
            continue
        found += 1
        offset_m = abs(y_m[0] - 300)
        straight = vy == 0
        assert np.allclose(np.abs(y_m[straight] - 300), offset_m)
        assert np.array_equal(np.sign(vx[straight]), np.sign(300 - y_m[straight]))
        assert (
            np.isclose(x_m[~straight], 0, atol=1e-6).sum() + np.isclose(x_m[~straight], 1000).sum() == (~straight).sum()
        )
    assert found >= 3


def test_speeds_change_by_no_more_than_the_acceleration_unless_held_back(tmp_path: Path) -> None:
    map = map_file(tmp_path, *ONE_ROAD)
    there = drive(Freeway(map=map, speed_min_mps=10, speed_max_mps=60, acceleration_mps2=2.0), 1, 900.0)
    speed = np.array([np.hypot(*(there.velocity(0, slot + 0.5) or (0, 0))) for slot in range(900)])
    change = np.diff(speed)
    assert np.abs(change).max() <= 2 + 1e-9
    # Uniform in [-2, 2] away from the bounds.
    free = change[(speed[:-1] > 12) & (speed[:-1] < 58)]
    assert free.mean() == pytest.approx(0, abs=4 * 1.155 / len(free) ** 0.5)
    assert free.std() == pytest.approx(2 / 3**0.5, rel=0.15)


def test_without_an_acceleration_a_tenth_of_the_highest_speed_per_second_is_taken(tmp_path: Path) -> None:
    assert Freeway(map="highway", speed_min_mps=1, speed_max_mps=50).change_mps() == 5.0
    assert Freeway(map="highway", speed_min_mps=1, speed_max_mps=50, slot_s=0.5).change_mps() == 2.5


def test_a_speed_limit_of_a_road_holds_for_its_vehicles(tmp_path: Path) -> None:
    nodes, roads = ONE_ROAD
    map = map_file(tmp_path, nodes, [roads[0] + "\nspeed_limit_mps = 15"])
    assert_speeds_within(drive(Freeway(map=map, speed_min_mps=10, speed_max_mps=60), 5), 10, 15)
    with pytest.raises(UserError, match=r"limit of road 'r0' \(15 m/s\) is below speed_min_mps \(20\)"):
        drive(Freeway(map=map, speed_min_mps=20, speed_max_mps=60), 5)


@pytest.mark.parametrize("one_way", ["true", "false"])
def test_a_road_that_ends_where_it_began_is_driven_round(tmp_path: Path, one_way: str) -> None:
    nodes: dict[str, tuple[float, float]] = {"a": (100, 100), "b": (900, 100), "c": (900, 900), "d": (100, 900)}
    map = map_file(tmp_path, nodes, [f"nodes = ['a', 'b', 'c', 'd', 'a']\nlanes = 2\none_way = {one_way}"])
    model = Freeway(map=map, speed_min_mps=20, speed_max_mps=30)
    there = drive(model, 20, 300.0)
    assert_legs_join(there, 300.0)
    assert_on_roads(there, model.road_map())
    turns = {
        int(np.sign(there.vx_mps[row] * there.vy_mps[row + 1] - there.vy_mps[row] * there.vx_mps[row + 1]).round())
        for node in range(20)
        for row in range(there.first[node], there.first[node + 1] - 1)
        if abs(there.vx_mps[row] * there.vy_mps[row + 1] - there.vy_mps[row] * there.vx_mps[row + 1]) > 1e-6
    }
    # One way is to the left all around; the other way back is to the right.
    assert turns == ({1} if one_way == "true" else {1, -1})


def test_the_same_seed_gives_the_same_movement_and_another_one_another() -> None:
    one, same, other = (drive(HIGHWAY, 60, 100.0, seed) for seed in (7, 7, 8))
    assert np.array_equal(one.x_m, same.x_m)
    assert np.array_equal(one.end_s, same.end_s)
    assert not np.array_equal(one.positions(0.0), other.positions(0.0))


def test_a_shorter_run_is_the_start_of_a_longer_one() -> None:
    short, long = drive(HIGHWAY, 20, 50.0), drive(HIGHWAY, 20, 100.0)
    assert np.allclose(short.positions(49.9), long.positions(49.9), rtol=0, atol=1e-9)


def test_vehicles_nearby_move_alike() -> None:
    """Spatial dependence: followers within the safety distance have nearly their leader's speed."""
    there = drive(HIGHWAY, 60, 300.0)
    place, speed = there.positions(250.0), np.array([there.velocity(node, 250.0) or (0, 0) for node in range(60)])
    apart_m = np.hypot(*(place[:, None] - place[None]).T)
    alike = (speed[:, None] * speed[None]).sum(axis=2) / np.hypot(*speed.T)[:, None] / np.hypot(*speed.T)[None]
    same_way = alike > 0.999
    near, far = (apart_m < 60) & (apart_m > 0) & same_way, (apart_m > 300) & same_way
    differs = np.abs(np.hypot(*speed.T)[:, None] - np.hypot(*speed.T)[None])
    assert differs[near].mean() < differs[far].mean()


@pytest.mark.parametrize(
    ("duration_s", "slot_s"), [(0.3, 0.1), (0.25, 1.0), (7.0, 0.7), (1e-6, 1.0), (10, 1e6), (0.9, 0.3), (4.35, 0.01)]
)
def test_runs_and_slots_of_any_length_fit(duration_s: float, slot_s: float) -> None:
    model = Freeway(map="highway", speed_min_mps=10, speed_max_mps=60, slot_s=slot_s)
    assert_legs_join(drive(model, 10, duration_s), duration_s)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"speed_min_mps": 5, "speed_max_mps": 1}, "must not exceed speed_max_mps"),
        ({"speed_min_mps": -1, "speed_max_mps": 1}, "speed_min_mps"),
        ({"speed_min_mps": 0, "speed_max_mps": 0}, "speed_max_mps"),
        ({"speed_min_mps": 1, "speed_max_mps": float("inf")}, "speed_max_mps"),
        ({"speed_min_mps": float("nan"), "speed_max_mps": 1}, "speed_min_mps"),
        ({"speed_min_mps": 1, "speed_max_mps": 2, "slot_s": 0}, "slot_s"),
        ({"speed_min_mps": 1, "speed_max_mps": 2, "safety_m": -1}, "safety_m"),
        ({"speed_min_mps": 1, "speed_max_mps": 2, "acceleration_mps2": -1}, "acceleration_mps2"),
        ({"speed_min_mps": 1, "speed_max_mps": 2, "safety_rule": "never"}, "never"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, object], complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=complaint):
        msgspec.convert({"map": "highway", **settings}, Freeway)


def test_what_a_map_cannot_hold_is_refused(tmp_path: Path) -> None:
    map = map_file(tmp_path, *ONE_ROAD)
    model = Freeway(map=map, speed_min_mps=10, speed_max_mps=20)
    drive(model, 39, 5.0)
    with pytest.raises(UserError, match="freeway: the lanes hold 39 vehicles 50 m apart, not 40"):
        drive(model, 40, 5.0)
    with pytest.raises(UserError, match="does not fit the area of 500 m x 500 m"):
        model.trajectories(5, Area(500, 500), 5.0, np.random.default_rng(1))
    with pytest.raises(UserError, match="use a longer slot_s"):
        drive(Freeway(map=map, speed_min_mps=10, speed_max_mps=20, slot_s=1e-6), 39, 5.0)
    nodes, roads = ONE_ROAD
    ends = map_file(tmp_path, nodes, [roads[0] + "\none_way = true"])
    with pytest.raises(UserError, match="road 'r0' of the map test leads nowhere"):
        drive(Freeway(map=ends, speed_min_mps=10, speed_max_mps=20), 5)


def test_a_map_is_looked_up_from_the_scenarios_folder(tmp_path: Path) -> None:
    map_file(tmp_path, *ONE_ROAD)
    model = Freeway(map="map.toml", speed_min_mps=10, speed_max_mps=20, safety_m=30).resolved(tmp_path)
    assert (model.road_map().name, model.road_map().safety_m) == ("test", 30)
    assert HIGHWAY.resolved(tmp_path) == HIGHWAY


def test_sixty_vehicles_for_a_quarter_of_an_hour_take_a_moment() -> None:
    started_s = time.process_time()
    HIGHWAY.trajectories(60, SQUARE, 900.0, np.random.default_rng(1))
    assert time.process_time() - started_s < 2.0
