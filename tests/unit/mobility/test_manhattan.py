"""Manhattan: turning by chance, streets that end, following into a lane, and maps with gaps."""

import functools
import time
from collections import Counter
from math import atan2, degrees
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.maps import Lane, lanes_of, read_map
from carrycast.errors import UserError
from carrycast.sim.mobility.manhattan import Manhattan, Streets, turn_between
from carrycast.sim.mobility.trajectory import Trajectories
from tests.unit.mobility.road_worlds import (
    SQUARE,
    assert_legs_join,
    assert_on_roads,
    assert_speeds_within,
    drive,
    map_file,
)

CITY = Manhattan(map="city", speed_min_mps=1, speed_max_mps=20)
# A crossing of four arms.
PLUS = (
    {"w": (100.0, 500.0), "m": (500.0, 500.0), "e": (900.0, 500.0), "s": (500.0, 100.0), "n": (500.0, 900.0)},
    ["nodes = ['w', 'm', 'e']", "nodes = ['s', 'm', 'n']"],
)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), low=st.floats(0, 10), high=st.floats(10, 40), nodes=st.integers(1, 80))
def test_vehicles_stay_on_the_map_within_their_speeds_and_never_leap(
    seed: int, low: float, high: float, nodes: int
) -> None:
    model = Manhattan(map="city", speed_min_mps=low, speed_max_mps=high)
    there = drive(model, nodes, 60.0, seed)
    assert_legs_join(there, 60.0)
    assert_on_roads(there, model.road_map())
    assert_speeds_within(there, low, high)


def on_lanes(there: Trajectories, lanes: list[Lane], time_s: float) -> dict[int, tuple[int, float]]:
    """The lane of each vehicle that drives along one, and its place on the lane."""
    start = np.array([lane.start for lane in lanes])
    ahead = np.array([lane.end for lane in lanes]) - start
    length_m = np.hypot(*ahead.T)
    ahead /= length_m[:, None]
    found = {}
    for node, place in enumerate(there.positions(time_s)):
        along_m = ((place - start) * ahead).sum(axis=1)
        across_m = np.abs((place - start)[:, 0] * ahead[:, 1] - (place - start)[:, 1] * ahead[:, 0])
        heading = np.array(there.velocity(node, time_s)) @ ahead.T
        for lane in np.flatnonzero((across_m < 1e-6) & (along_m >= 0) & (along_m <= length_m) & (heading > 0)):
            found[node] = (int(lane), float(along_m[lane]))
    return found


@pytest.mark.parametrize("seed", range(2))
def test_in_a_lane_nobody_comes_within_the_safety_distance_or_overtakes(seed: int) -> None:
    """Only vehicles from different streets are closer than the safety distance, and then the gap does not shrink."""
    there = drive(CITY, 150, 60.0, seed)
    lanes = lanes_of(read_map("city"))
    close = 0
    before: dict[int, tuple[int, float]] = {}
    for slot in range(60 * 3 + 1):
        now = on_lanes(there, lanes, slot / 3)
        for back in now:
            for ahead in now:
                stays = back in before and ahead in before and before[back][0] == before[ahead][0] == now[back][0]
                if stays and now[ahead][0] == now[back][0] and before[ahead][1] > before[back][1]:
                    gap_m, was_m = now[ahead][1] - now[back][1], before[ahead][1] - before[back][1]
                    assert gap_m >= min(was_m, 50.0) - 1e-6
                    close += was_m < 60
        before = now
    assert close > 100


def test_turns_have_the_chances_of_the_model() -> None:
    """At the four inner crossings of the city all ways are open: one half, one quarter, one quarter."""
    turns = Counter(turns_at({(340, 340), (340, 660), (660, 340), (660, 660)}))
    total = turns.total()
    assert total > 800
    for angle, chance in ((0, 0.5), (90, 0.25), (-90, 0.25)):
        assert turns[angle] / total == pytest.approx(chance, abs=4 * (chance * (1 - chance) / total) ** 0.5)
    assert sum(turns[angle] for angle in (0, 90, -90)) == total


def test_at_the_border_the_ways_that_are_left_share_by_weight() -> None:
    turns = Counter(turns_at({(340, 20), (660, 20)}, heading=(0, -1)))
    # Coming from the north there is only left (to the east) and right, of equal weight.
    assert set(turns) == {90, -90}
    assert turns[90] / turns.total() == pytest.approx(0.5, abs=4 * 0.5 / turns.total() ** 0.5)
    along = Counter(turns_at({(340, 20), (660, 20)}, heading=(1, 0)))
    # Going east along the southern border: straight 0.5 and left 0.25.
    assert set(along) == {0, 90}
    assert along[0] / along.total() == pytest.approx(2 / 3, abs=4 * 0.48 / along.total() ** 0.5)
    # At a corner there is one way only.
    assert set(turns_at({(980, 20)}, heading=(1, 0))) == {90}


@functools.cache
def turns_of_an_hour() -> list[tuple[tuple[int, int], tuple[int, int], int]]:
    """The crossings where vehicles of the city turned, their headings before, and the angles to the left in degrees."""
    there = drive(CITY, 60, 3600.0)
    speed_mps = np.hypot(there.vx_mps, there.vy_mps)
    streets = np.array([20, 340, 660, 980])
    at_x = streets[np.abs(there.x_m[:, None] - streets).argmin(axis=1)]
    at_y = streets[np.abs(there.y_m[:, None] - streets).argmin(axis=1)]
    off_m = np.maximum(np.abs(there.x_m - at_x), np.abs(there.y_m - at_y))
    # Legs along a street; those within a crossing, 7 m from its middle, may be slanted.
    along = (off_m > 6.999) & (np.abs(np.abs(there.vx_mps) + np.abs(there.vy_mps) - speed_mps) < 1e-9)
    leaving = (off_m < 7.001) & ((there.x_m - at_x) * there.vx_mps + (there.y_m - at_y) * there.vy_mps > 0)
    way_x, way_y = np.round(there.vx_mps / speed_mps).astype(int), np.round(there.vy_mps / speed_mps).astype(int)
    found = []
    for node in range(there.nodes):
        rows = np.flatnonzero(along[there.first[node] : there.first[node + 1]]) + there.first[node]
        for before, after in zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True):
            if leaving[after]:
                heading, onto = (way_x[before], way_y[before]), (way_x[after], way_y[after])
                left = heading[0] * onto[1] - heading[1] * onto[0]
                angle = round(degrees(atan2(left, heading[0] * onto[0] + heading[1] * onto[1])))
                found.append(((int(at_x[after]), int(at_y[after])), heading, angle))
    return found


def turns_at(crossings: set[tuple[int, int]], heading: tuple[int, int] | None = None) -> list[int]:
    """The angles in degrees by which vehicles turned there, positive to the left."""
    return [
        angle for at, before, angle in turns_of_an_hour() if at in crossings and (heading is None or heading == before)
    ]


def test_where_a_street_ends_vehicles_turn_back(tmp_path: Path) -> None:
    map = map_file(tmp_path, *PLUS)
    model = Manhattan(map=map, speed_min_mps=10, speed_max_mps=20)
    there = drive(model, 20, 600.0)
    assert_legs_join(there, 600.0)
    assert_on_roads(there, model.road_map())
    speed_mps = np.hypot(there.vx_mps, there.vy_mps)
    # Everybody has been at an end, where it goes across the street, 3.5 m from lane to lane.
    at_end = np.zeros(there.legs, dtype=np.bool_)
    for along, across_mps, ends in ((there.x_m, there.vy_mps, (100, 900)), (there.y_m, there.vx_mps, (100, 900))):
        for end_m in ends:
            at_end |= np.isclose(along, end_m) & np.isclose(np.abs(across_mps), speed_mps)
    for node in range(20):
        assert at_end[there.first[node] : there.first[node + 1]].any()


def test_a_speed_limit_holds_from_the_first_meter(tmp_path: Path) -> None:
    nodes, roads = PLUS
    map = map_file(tmp_path, nodes, [roads[0] + "\nspeed_limit_mps = 8", roads[1]])
    there = drive(Manhattan(map=map, speed_min_mps=2, speed_max_mps=20), 20, 600.0)
    on_street = (np.abs(there.y_m - 500) < 3) & (np.abs(there.vy_mps) < 1e-9)
    away = np.abs(there.x_m - 500) > 10
    assert np.hypot(there.vx_mps, there.vy_mps)[on_street & away].max() <= 8 + 1e-9
    assert np.hypot(there.vx_mps, there.vy_mps).max() > 12


def test_one_way_streets_are_driven_one_way(tmp_path: Path) -> None:
    corners: dict[str, tuple[float, float]] = {"a": (100, 100), "b": (900, 100), "c": (900, 900), "d": (100, 900)}
    map = map_file(tmp_path, corners, ["nodes = ['a', 'b', 'c', 'd', 'a']\none_way = true", "nodes = ['a', 'c']"])
    there = drive(Manhattan(map=map, speed_min_mps=10, speed_max_mps=20), 20, 300.0)
    south = (np.abs(there.y_m - 100) < 1e-6) & (np.abs(there.vy_mps) < 1e-9)
    assert south.any()
    assert (there.vx_mps[south] > 0).all()


@pytest.mark.parametrize(
    ("before", "after", "turn"),
    [
        ((1, 0), (1, 0), "straight"),
        ((1, 0), (1, 0.99), "straight"),
        ((1, 0), (1, 1), "left"),
        ((1, 0), (0, 1), "left"),
        ((1, 0), (0, -1), "right"),
        ((0, -1), (1, 0), "left"),
        ((0, -1), (-1, 0), "right"),
        ((1, 0), (-1, 0.1), "left"),
        ((1, 0), (-1, -0.1), "right"),
    ],
)
def test_sides_by_hand(before: tuple[float, float], after: tuple[float, float], turn: str) -> None:
    assert turn_between(before, after) == turn


def test_two_streets_on_the_same_side_share_its_chance_and_lanes_keep_their_number(tmp_path: Path) -> None:
    nodes = {"w": (100.0, 500.0), "m": (500.0, 500.0), "e": (900.0, 500.0), "n": (500.0, 900.0), "x": (300.0, 900.0)}
    map = map_file(tmp_path, nodes, ["nodes = ['w', 'm', 'e']\nlanes = 2", "nodes = ['m', 'n']", "nodes = ['m', 'x']"])
    lanes = lanes_of(read_map(map))
    streets = Streets("test", lanes, 0.5, 0.25, 0.25)
    for lane in (0, 1):
        from_west = next(i for i, each in enumerate(lanes) if (each.origin, each.number) == ("w", lane))
        found = Counter((lanes[onto].target, lanes[onto].number) for onto in streets.onto[from_west])
        assert found == {("e", lane): 1, ("n", 0): 1, ("x", 0): 1}
        # Straight 0.5, and 0.25 to the left for two streets: of 0.75 in all.
        drawn = Counter(lanes[streets.turn(from_west, (k + 0.5) / 1200)].target for k in range(1200))
        assert drawn == {"e": 800, "n": 200, "x": 200}


def test_ways_without_a_chance_are_taken_where_there_is_no_other(tmp_path: Path) -> None:
    model = Manhattan(map="city", speed_min_mps=5, speed_max_mps=10, straight=1, left=0, right=0)
    there = drive(model, 10, 300.0)
    assert_legs_join(there, 300.0)


@pytest.mark.parametrize(
    ("nodes", "roads", "complaint"),
    [
        ({"a": (10, 10), "b": (500, 10), "c": (10, 500), "d": (500, 500)}, ["nodes = ['a', 'b']", "nodes = ['c', 'd']"],
         "has a gap: no way from road 'r0' to 'b' onto road 'r1' to 'd'; let roads that meet share a node"),
        ({"a": (10, 10), "b": (500, 10)}, ["nodes = ['a', 'b']\none_way = true"],
         "has a gap: road 'r0' leads to 'b' and nothing leads away from there"),
        ({"a": (10, 10), "b": (500, 10), "c": (900, 10), "d": (900, 400)},
         ["nodes = ['a', 'b']", "nodes = ['b', 'c']\none_way = true", "nodes = ['c', 'd']"],
         "has a gap: no way from road 'r0' to 'b' onto road 'r0' to 'a'"),
    ],
)  # fmt: skip
def test_a_map_with_a_gap_is_refused(
    tmp_path: Path, nodes: dict[str, tuple[float, float]], roads: list[str], complaint: str
) -> None:
    with pytest.raises(UserError, match=complaint):
        drive(Manhattan(map=map_file(tmp_path, nodes, roads), speed_min_mps=1, speed_max_mps=10), 2)


def test_freeways_without_crossings_are_no_city() -> None:
    with pytest.raises(UserError, match="the map highway has a gap"):
        drive(Manhattan(map="highway", speed_min_mps=1, speed_max_mps=10), 2)


def test_blocks_shorter_than_a_slot_are_refused() -> None:
    with pytest.raises(UserError, match=r"road 'a' has 306\.0 m from 'a1' to 'a2', less than a vehicle goes in a slot"):
        drive(Manhattan(map="city", speed_min_mps=1, speed_max_mps=20, slot_s=20.0), 2)
    with pytest.raises(UserError, match="the lanes hold 576 vehicles 50 m apart, not 577"):
        drive(CITY, 577)


def test_chances_that_do_not_add_up_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"must add up to 1, not 1\.25"):
        msgspec.convert({"map": "city", "speed_min_mps": 1, "speed_max_mps": 2, "straight": 0.75}, Manhattan)


def test_the_same_seed_gives_the_same_movement_and_another_one_another() -> None:
    one, same, other = (drive(CITY, 60, 100.0, seed) for seed in (7, 7, 8))
    assert np.array_equal(one.x_m, same.x_m)
    assert np.array_equal(one.end_s, same.end_s)
    assert not np.array_equal(one.positions(0.0), other.positions(0.0))


def test_a_shorter_run_is_the_start_of_a_longer_one() -> None:
    short, long = drive(CITY, 20, 50.5), drive(CITY, 20, 100.0)
    assert np.allclose(short.positions(50.4), long.positions(50.4), rtol=0, atol=1e-9)


def test_sixty_vehicles_for_a_quarter_of_an_hour_take_a_moment() -> None:
    started_s = time.process_time()
    CITY.trajectories(60, SQUARE, 900.0, np.random.default_rng(1))
    assert time.process_time() - started_s < 2.0
