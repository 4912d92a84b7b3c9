"""Waypoints, nearest waypoints and distances of road maps, compared with exact arithmetic."""

from fractions import Fraction
from math import sqrt
from random import Random

import pytest
from hypothesis import given, strategies as st

from carrycast.core.maps import read_map, share_beyond
from carrycast.core.model import Position
from carrycast.core.model.roads import Road, RoadMap, nearest, squared_m

# A road with a bend, and one that meets it there.
BEND = RoadMap(
    name="bend",
    width_m=100,
    height_m=100,
    lane_m=3.5,
    safety_m=10,
    roads=(
        Road(id="l", nodes=("a", "b", "c"), places=(Position(10, 10), Position(40, 10), Position(40, 50)), lanes=1),
        Road(id="s", nodes=("b", "d"), places=(Position(40, 10), Position(65, 10)), lanes=2),
    ),
)
COORDINATES = st.floats(-50, 150)


def test_waypoints_go_along_the_roads_with_every_node_once() -> None:
    points = BEND.waypoints(10.0)
    east = [(10, 10), (20, 10), (30, 10), (40, 10)]
    north = [(40, 20), (40, 30), (40, 40), (40, 50)]
    # 25 m are three parts of no more than ten meters.
    side = [(40 + 25 / 3, 10), (40 + 50 / 3, 10), (65, 10)]
    assert points[:8] == tuple(east + north)
    assert points[8:] == tuple(pytest.approx(place) for place in side)


def test_a_spacing_longer_than_a_road_leaves_its_nodes() -> None:
    assert BEND.waypoints(1000.0) == ((10, 10), (40, 10), (40, 50), (65, 10))


@pytest.mark.parametrize("spacing_m", [0.0, -1.0, float("nan"), float("inf"), 1e-9])
def test_a_spacing_that_makes_no_waypoints_is_refused(spacing_m: float) -> None:
    with pytest.raises(ValueError, match="waypoints"):
        BEND.waypoints(spacing_m)


def test_of_equally_near_waypoints_the_first_in_the_map_counts() -> None:
    points = BEND.waypoints(10.0)
    assert nearest(points, Position(35, 15)) == (30, 10)
    assert nearest(points, Position(15, 10)) == (10, 10)
    assert nearest(points[::-1], Position(15, 10)) == (20, 10)


@given(x=COORDINATES, y=COORDINATES)
def test_the_nearest_waypoint_is_as_near_as_exact_arithmetic_finds(x: float, y: float) -> None:
    points = BEND.waypoints(10.0)
    exact = [(Fraction(x) - Fraction(px)) ** 2 + (Fraction(y) - Fraction(py)) ** 2 for px, py in points]
    found = exact[points.index(nearest(points, Position(x, y)))]
    assert found - min(exact) <= min(exact) * Fraction(1, 10**14)


def test_distances_by_hand() -> None:
    assert BEND.distance_m(Position(25, 10)) == 0
    assert BEND.distance_m(Position(25, 22)) == 12
    assert BEND.distance_m(Position(7, 6)) == 5
    assert BEND.distance_m(Position(68, 14)) == 5


@given(x=COORDINATES, y=COORDINATES)
def test_the_distance_from_roads_is_that_of_close_waypoints(x: float, y: float) -> None:
    place = Position(x, y)
    points = BEND.waypoints(0.5)
    by_points_m = sqrt(squared_m(nearest(points, place), place))
    assert BEND.distance_m(place) - 1e-9 <= by_points_m <= BEND.distance_m(place) + 0.25 + 1e-9


def test_the_share_of_a_map_beyond_a_distance() -> None:
    # One road along the middle of a square: beyond a quarter of its height lies half of it.
    road = Road(id="r", nodes=("a", "b"), places=(Position(0, 50), Position(100, 50)), lanes=1)
    map = RoadMap(name="m", width_m=100, height_m=100, lane_m=3.5, safety_m=0, roads=(road,))
    assert share_beyond(map, 25.0) == 0.5
    assert (share_beyond(map, 50.0), share_beyond(map, 0.0)) == (0.0, 1.0)


def test_the_maps_that_come_with_carrycast_leave_the_shares_that_their_page_states() -> None:
    # Half a range of 250 m: what the topic-holder paper sets K to.
    rng, highway = Random(1), read_map("highway")
    drawn = [highway.distance_m(Position(rng.uniform(0, 1000), rng.uniform(0, 1000))) > 125 for _ in range(10_000)]
    # Four standard errors of a share among 10,000.
    assert share_beyond(highway, 125.0) == pytest.approx(sum(drawn) / 10_000, abs=0.02)
    assert share_beyond(highway, 125.0) == pytest.approx(0.417, abs=5e-4)
    # Nine blocks of 320 m, each with a square of 70 m in it.
    assert share_beyond(read_map("city"), 125.0) == pytest.approx(9 * 70**2 / 1000**2, abs=1e-3)


def test_maps_are_values() -> None:
    assert read_map("city") == read_map("city")
    assert len({read_map("city"), read_map("city"), read_map("highway")}) == 2
