"""The planar graph: connected and without crossings, by oracles in exact fractions and by Qhull."""

from fractions import Fraction
from itertools import combinations
from random import Random

import networkx as nx
import numpy as np
import pytest
from scipy.spatial import Delaunay, KDTree

from carrycast.core.model import NodeId, Position
from carrycast.routers.gpsr.perimeter import Planarization, planarize

RANGE_M = 250.0


def near(a: Position, b: Position, range_m: float) -> bool:
    return (a.x_m - b.x_m) ** 2 + (a.y_m - b.y_m) ** 2 <= range_m**2


def disk_graph(positions: list[Position], range_m: float = RANGE_M) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(positions)))
    graph.add_edges_from(
        (a, b) for a, b in combinations(range(len(positions)), 2) if near(positions[a], positions[b], range_m)
    )
    return graph


def planar_graph(graph: nx.Graph, positions: list[Position], rule: Planarization) -> nx.DiGraph:
    """What every node computes of its own, from its neighbors alone."""
    found = nx.DiGraph()
    found.add_nodes_from(graph)
    for node in graph:
        neighbors = {other: positions[other] for other in graph[node]}
        found.add_edges_from((node, other) for other, _ in planarize(node, positions[node], neighbors, rule))
    return found


def crosses(a: Position, b: Position, c: Position, d: Position) -> bool:
    """Whether two segments meet anywhere but in a common end. Fractions, written independently."""

    def side(p: Position, q: Position, r: Position) -> int:
        px, py, qx, qy, rx, ry = map(Fraction, (*p, *q, *r))
        value = (qx - px) * (ry - py) - (rx - px) * (qy - py)
        return (value > 0) - (value < 0)

    def within(p: Position, q: Position, r: Position) -> bool:
        """r, on the line of p and q, is strictly between them."""
        return r not in (p, q) and min(p, q) <= r <= max(p, q)

    for axis in (0, 1):
        if max(a[axis], b[axis]) < min(c[axis], d[axis]) or max(c[axis], d[axis]) < min(a[axis], b[axis]):
            return False
    sides = side(a, b, c), side(a, b, d), side(c, d, a), side(c, d, b)
    if sides[0] * sides[1] < 0 and sides[2] * sides[3] < 0:
        return True
    touching = [(sides[0], a, b, c), (sides[1], a, b, d), (sides[2], c, d, a), (sides[3], c, d, b)]
    return any(found == 0 and within(p, q, r) for found, p, q, r in touching)


def layouts() -> dict[str, list[Position]]:
    rng = Random(4)
    found = {f"random {n}": [Position(rng.uniform(0, 1000), rng.uniform(0, 1000)) for _ in range(60)] for n in range(8)}
    # Squares, right angles and points on lines wherever one looks.
    found["grid"] = [Position(100.0 * x, 100.0 * y) for x in range(8) for y in range(8)]
    found["holes"] = [place for n, place in enumerate(found["grid"]) if n % 5 != 2]
    found["line"] = [Position(30.0 * x, 0.1 * x) for x in range(30)]
    found["coarse"] = [Position(float(rng.randrange(0, 900, 90)), float(rng.randrange(0, 900, 90))) for _ in range(60)]
    found["one place"] = [Position(5.0, 5.0)] * 6
    found["near"] = [Position(500 + rng.random() * 1e-9, 500 + rng.random() * 1e-9) for _ in range(30)]
    return found


LAYOUTS = layouts()


@pytest.mark.parametrize("rule", ["gabriel", "rng"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_it_is_symmetric_connected_and_free_of_crossings(layout: str, rule: Planarization) -> None:
    positions = LAYOUTS[layout]
    whole = disk_graph(positions)
    directed = planar_graph(whole, positions, rule)
    # A node that another one stands for has an edge to it; the other has none back, since packets need not go there.
    stand_in = {(a, b) for a, b in directed.edges if positions[a] == positions[b]}
    for a, b in set(directed.edges) - stand_in:
        assert directed.has_edge(b, a)
    found = directed.to_undirected()
    assert set(map(frozenset, found.edges)) <= set(map(frozenset, whole.edges))
    assert set(map(frozenset, nx.connected_components(found))) == set(map(frozenset, nx.connected_components(whole)))
    for (a, b), (c, d) in combinations(found.edges, 2):
        assert not crosses(positions[a], positions[b], positions[c], positions[d]), (a, b, c, d)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name.startswith("random")])
def test_it_is_the_part_of_the_delaunay_triangulation_that_has_empty_circles(layout: str) -> None:
    """By Qhull, which knows all nodes, while each of ours knows its neighbors. A triangulation has no crossings."""
    positions = LAYOUTS[layout]
    points = np.array(positions)
    tree = KDTree(points)
    expected = set()
    for triangle in Delaunay(points).simplices:
        for a, b in combinations(sorted(map(int, triangle)), 2):
            nearest_m, _ = tree.query((points[a] + points[b]) / 2)
            long_m = float(np.hypot(*(points[a] - points[b])))
            if nearest_m >= long_m / 2 - 1e-9 and long_m <= RANGE_M:
                expected.add((a, b))
    found = planar_graph(disk_graph(positions), positions, "gabriel")
    assert {(a, b) for a, b in found.edges if a < b} == expected


def test_every_relative_neighbor_is_a_gabriel_neighbor() -> None:
    positions = LAYOUTS["random 0"]
    whole = disk_graph(positions)
    gabriel, rng = (set(planar_graph(whole, positions, rule).edges) for rule in ("gabriel", "rng"))
    assert rng < gabriel


def test_the_rules_worked_by_hand() -> None:
    here, far = Position(0, 0), Position(10, 0)

    def kept(witness: Position, rule: Planarization) -> bool:
        neighbors: dict[NodeId, Position] = {1: far, 2: witness}
        return 1 in dict(planarize(0, here, neighbors, rule))

    assert not kept(Position(5, 4.9), "gabriel"), "in the circle"
    assert not kept(Position(5, 5), "gabriel"), "on it"
    assert kept(Position(5, 5.1), "gabriel")
    assert not kept(Position(5, 8.6), "rng"), "in the lune: 9.95 from both"
    assert kept(Position(5, 8.7), "rng"), "10.03 from both"
    assert not kept(Position(4, 0), "gabriel"), "between the two"
    assert kept(Position(12, 0), "gabriel"), "behind"


def test_of_nodes_at_one_place_the_lowest_id_represents_all() -> None:
    here, there = Position(0, 0), Position(9, 0)
    assert planarize(4, here, {5: here, 7: there, 6: there}, "gabriel") == [(6, there)]
    assert planarize(5, here, {4: here, 7: there, 6: there}, "gabriel") == [(4, here)]
