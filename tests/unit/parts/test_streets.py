"""Shortest paths along streets, against networkx on random grids."""

from itertools import pairwise
from random import Random

import networkx as nx
import pytest

from carrycast.core.model import Position, Road, RoadMap
from carrycast.core.parts import StreetGraph, distance_m


def road(*nodes: tuple[str, float, float]) -> Road:
    return Road(
        id="-".join(name for name, _, _ in nodes),
        nodes=tuple(name for name, _, _ in nodes),
        places=tuple(Position(x_m, y_m) for _, x_m, y_m in nodes),
        lanes=1,
    )


def town(*roads: Road) -> RoadMap:
    return RoadMap(name="town", width_m=1000.0, height_m=1000.0, lane_m=4.0, safety_m=10.0, roads=roads)


# a - b - c
# |       |
# d ----- e
BLOCK = town(
    road(("a", 0, 100), ("b", 100, 100), ("c", 200, 100)),
    road(("a", 0, 100), ("d", 0, 0)),
    road(("c", 200, 100), ("e", 200, 0)),
    road(("d", 0, 0), ("e", 200, 0)),
)


def test_the_crossings_of_a_path_are_those_between_its_ends() -> None:
    streets = StreetGraph(BLOCK)
    assert streets.shortest_path(Position(10, 101), Position(90, 99)) == ()
    assert streets.shortest_path(Position(10, 100), Position(200, 50)) == (Position(100, 100), Position(200, 100))
    assert streets.shortest_path(Position(0, 30), Position(150, 0)) == (Position(0, 0),)


def test_closed_pieces_are_avoided() -> None:
    streets = StreetGraph(BLOCK)
    piece = streets.piece_before(Position(60, 100), Position(100, 100))
    assert piece == ("a", "b")
    around = streets.shortest_path(Position(0, 100), Position(200, 50), frozenset({piece}), Position(100, 100))
    assert around == (Position(0, 100), Position(0, 0), Position(200, 0))
    both = frozenset({("a", "b"), ("d", "e")})
    assert streets.shortest_path(Position(0, 50), Position(200, 50), both) is None


def test_a_place_is_on_its_nearest_street() -> None:
    streets = StreetGraph(BLOCK)
    found = streets.locate(Position(150, 70))
    assert (found.segment, found.position) == (("b", "c"), Position(150, 100))
    assert streets.piece_before(Position(0, 0), Position(5, 5)) is None


@pytest.mark.parametrize("seed", range(8))
def test_paths_are_as_short_as_those_of_networkx(seed: int) -> None:
    rng = Random(seed)
    grid = nx.grid_2d_graph(5, 5)
    grid.remove_edges_from(rng.sample(list(grid.edges), 8))
    places = {
        node: Position(100 * node[0] + rng.uniform(-30, 30), 100 * node[1] + rng.uniform(-30, 30)) for node in grid
    }
    roads = [road((str(one), *places[one]), (str(other), *places[other])) for one, other in grid.edges]
    for one, other in grid.edges:
        grid.edges[one, other]["length"] = distance_m(places[one], places[other])
    streets = StreetGraph(town(*roads))
    nodes = [node for node in grid if grid.degree(node)]
    for _ in range(30):
        start, end = rng.sample(nodes, 2)
        found = streets.shortest_path(places[start], places[end])
        if not nx.has_path(grid, start, end):
            assert found is None
            continue
        assert found is not None
        points = [places[start], *found, places[end]]
        length_m = sum(distance_m(one, other) for one, other in pairwise(points))
        assert length_m == pytest.approx(nx.shortest_path_length(grid, start, end, weight="length"))
