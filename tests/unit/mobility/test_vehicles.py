"""Rules of all vehicles: starting places, limits by the vehicle ahead, and legs along a path."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from carrycast.core.model import Position
from carrycast.sim.mobility.road_model import drive_legs, limit_speeds, merge_legs, place_vehicles, road_capacity


def test_a_slow_leader_holds_back_whoever_follows() -> None:
    speeds = [30.0, 20.0, 10.0]
    # 0 follows 1, which follows 2 and may be 4 m/s faster.
    limit_speeds(speeds, {1: [(0, 0.0)], 2: [(1, 4.0)]})
    assert speeds == [14.0, 14.0, 10.0]


def test_in_a_circle_the_slowest_sets_the_pace() -> None:
    speeds = [30.0, 12.0, 25.0]
    limit_speeds(speeds, {0: [(2, 0.0)], 1: [(0, 0.0)], 2: [(1, 0.0)]})
    assert speeds == [12.0, 12.0, 12.0]


@given(st.data())
def test_nobody_is_held_back_more_than_needed(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    wanted = data.draw(st.lists(st.floats(1, 60), min_size=count, max_size=count))
    rows = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1), st.floats(0, 50))
    follows = data.draw(st.lists(rows, max_size=12))
    behind: dict[int, list[tuple[int, float]]] = {}
    for leader, follower, faster in follows:
        behind.setdefault(leader, []).append((follower, faster))
    # The same by brute force: apply every rule until nothing changes.
    slowly = list(wanted)
    for _ in range(count + 1):
        for leader, follower, faster in follows:
            slowly[follower] = min(slowly[follower], slowly[leader] + faster)
    speeds = list(wanted)
    limit_speeds(speeds, behind)
    assert speeds == slowly
    assert min(speeds) == min(wanted)


@given(safety_m=st.sampled_from([0.0, 1.0, 50.0]), nodes=st.integers(0, 60), seed=st.integers(0, 1000))
def test_everybody_starts_on_a_lane_a_safety_distance_apart(safety_m: float, nodes: int, seed: int) -> None:
    length_m = np.array([1000.0, 49.0, 2000.0, 51.0])
    nodes = min(nodes, road_capacity(length_m, safety_m))
    placed = place_vehicles(length_m, safety_m, nodes, np.random.default_rng(seed))
    assert sorted(node for there in placed for _, node in there) == list(range(nodes))
    for lane, there in enumerate(placed):
        place_m = np.array([place for place, _ in there])
        if len(there):
            assert place_m[0] >= 0
            # Also around a lane that is closed.
            assert place_m[-1] + safety_m <= length_m[lane] + place_m[0] + 1e-9
            assert (np.diff(place_m) >= safety_m - 1e-9).all()


def test_lanes_that_are_full_take_as_many_as_they_hold() -> None:
    length_m = np.array([100.0, 149.0, 20.0])
    assert road_capacity(length_m, 50.0) == 4
    placed = place_vehicles(length_m, 50.0, 4, np.random.default_rng(1))
    assert [len(there) for there in placed] == [2, 2, 0]


def test_longer_lanes_have_more_vehicles() -> None:
    placed = place_vehicles(np.array([1000.0, 3000.0]), 0.0, 4000, np.random.default_rng(1))
    # Four standard errors of a quarter among 4000 are 110.
    assert len(placed[0]) == pytest.approx(1000, abs=110)
    assert np.mean([place for place, _ in placed[1]]) == pytest.approx(1500, abs=4 * 866 / 3000**0.5)


def test_a_leg_ends_with_a_slot_and_with_a_piece_of_the_way() -> None:
    # 10 m east, then north; 4 m/s, then 8 m/s from 2 s on. The corner comes at 2.25 s.
    way = [Position(0, 0), Position(10, 0), Position(10, 0), Position(10, 50)]
    legs = drive_legs(0, way, np.array([0.0, 2.0, 3.0]), np.array([0.0, 8.0, 16.0]))
    there = merge_legs(1, [legs])
    assert there.start_s.tolist() == [0, 2, 2.25]
    assert there.end_s.tolist() == [2, 2.25, 3]
    assert list(zip(there.x_m.tolist(), there.y_m.tolist(), strict=True)) == [(0, 0), (8, 0), (10, 0)]
    assert list(zip(there.vx_mps.tolist(), there.vy_mps.tolist(), strict=True)) == [(4, 0), (8, 0), (0, 8)]
    assert there.position(0, 3.0) == (10, 6)


def test_whoever_stands_stays() -> None:
    legs = drive_legs(
        0, [Position(0, 0), Position(10, 0)], np.array([0.0, 1.0, 2.0, 3.0]), np.array([4.0, 4.0, 5.0, 5.0])
    )
    there = merge_legs(1, [legs])
    assert [there.position(0, time_s) for time_s in (0.5, 1.0, 1.5, 2.5)] == [(4, 0), (4, 0), (4.5, 0), (5, 0)]


def test_no_part_of_a_lane_is_emptier_than_another() -> None:
    length_m, rng = np.array([200.0]), np.random.default_rng(2)
    places = np.array([place for _ in range(2000) for place, _ in place_vehicles(length_m, 50.0, 3, rng)[0]])
    share = np.histogram(places, bins=4, range=(0, 200))[0] / len(places)
    # Four standard errors of a quarter among 6000, which the distances only make smaller.
    assert share == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 6000) ** 0.5)
