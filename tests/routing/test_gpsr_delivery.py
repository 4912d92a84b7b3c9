"""GPSR in the simulator on static disks: everything reachable is reached, and what is not is recognized."""

from collections import Counter
from itertools import combinations
from random import Random

import networkx as nx
import pytest

from carrycast.sim.testing import Net
from tests.routing.networks import arrived, courier, placed

Place = tuple[float, float]
RANGE_M = 250.0
SETTLED_S = 4.0


def linked(positions: list[Place], range_m: float = RANGE_M) -> nx.Graph:
    graph = nx.Graph()
    graph.add_nodes_from(range(len(positions)))
    for a, b in combinations(range(len(positions)), 2):
        (ax, ay), (bx, by) = positions[a], positions[b]
        if (ax - bx) ** 2 + (ay - by) ** 2 <= range_m**2:
            graph.add_edge(a, b)
    return graph


def random_layout(seed: int, nodes: int) -> list[Place]:
    rng = Random(seed)
    # Sparse: about five neighbors each, so that there are voids and islands.
    side_m = (nodes * 3.14 * RANGE_M**2 / 5.5) ** 0.5
    return [(rng.uniform(0, side_m), rng.uniform(0, side_m)) for _ in range(nodes)]


def coarse_layout(seed: int, nodes: int) -> list[Place]:
    """On a grid with gaps, some at the same place: lines, squares and twins everywhere."""
    rng = Random(seed)
    return [(150.0 * rng.randrange(9), 150.0 * rng.randrange(9)) for _ in range(nodes)]


def ring_layout() -> list[Place]:
    """A comb: long walls that lead away from the target."""
    walls = [(100.0 * x, 0.0) for x in range(12)]
    for tooth in (3, 6, 9):
        walls += [(100.0 * tooth, 100.0 * y) for y in range(1, 8)]
    walls += [(1100.0, 100.0 * y) for y in range(1, 10)]
    walls += [(100.0 * x, 900.0) for x in range(4, 11)]
    return walls


LAYOUTS: dict[str, tuple[list[Place], float]] = {
    **{f"random {seed}": (random_layout(seed, 60), RANGE_M) for seed in range(4)},
    **{f"coarse {seed}": (coarse_layout(seed, 50), 225.0) for seed in range(4)},
    "comb": (ring_layout(), 120.0),
}


def network(positions: list[Place], range_m: float, **settings: object) -> Net:
    net = placed("gpsr", positions, range_m, 1, {}, max_hops=5000, **settings)
    net.run(SETTLED_S)
    return net


def ask(net: Net, origin: int, target: int, at: Place) -> int:
    return net.publish(origin, {"to": target, "x": at[0], "y": at[1]}).id.sequence


@pytest.mark.parametrize("rule", ["gabriel", "rng"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_node_of_the_component_is_reached_and_no_other(layout: str, rule: str) -> None:
    positions, range_m = LAYOUTS[layout]
    graph = linked(positions, range_m)
    # Without the shortcut to neighbors, which would hide mistakes.
    net = network(positions, range_m, planarization=rule, direct=False)
    rng = Random(layout)
    sent: dict[tuple[int, int], int] = {}
    for origin in graph:
        for target in rng.sample(sorted(graph), 8):
            if origin != target:
                sent[origin, target] = ask(net, origin, target, positions[target])
    net.run(30)
    for (origin, target), number in sent.items():
        came = [letter for letter in arrived(net, target) if (letter.origin, letter.number) == (origin, number)]
        reachable = nx.has_path(graph, origin, target)
        assert len(came) == int(reachable), (origin, target, reachable)
        if reachable:
            assert came[0].hops >= nx.shortest_path_length(graph, origin, target)
    lost = sum(not nx.has_path(graph, *pair) for pair in sent)
    assert Counter(row["reason"] in ("face_toured", "no_neighbor") for row in net.rows("drop")) == Counter({True: lost})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_place_is_given_to_the_nearest_node_of_the_component(layout: str) -> None:
    positions, range_m = LAYOUTS[layout]
    graph = linked(positions, range_m)
    net = network(positions, range_m)
    rng = Random(layout)
    width, height = (max(axis) for axis in zip(*positions, strict=True))
    for origin in sorted(graph):
        # Within the area and outside it.
        x, y = rng.uniform(-200, width + 200), rng.uniform(-200, height + 200)
        number = net.publish(origin, {"x": x, "y": y}).id.sequence
        net.run(3)
        takers = [
            node
            for node in graph
            for letter in arrived(net, node)
            if (letter.origin, letter.number) == (origin, number)
        ]

        def away(node: int, x: float = x, y: float = y) -> float:
            return (positions[node][0] - x) ** 2 + (positions[node][1] - y) ** 2

        best = min(map(away, nx.node_connected_component(graph, origin)))
        assert len(takers) == 1
        assert away(takers[0]) == pytest.approx(best)


def test_a_target_on_another_island_is_recognized_within_one_tour_of_the_face() -> None:
    # A ring of ten, and far away an eleventh node.
    net = placed(
        "gpsr", [(100.0 * x, 0.0) for x in range(5)] + [(100.0 * x, 100.0) for x in range(5)] + [(3000.0, 50.0)]
    )
    net.run(SETTLED_S)
    before = net.count_sent("GeoPacket")
    ask(net, 0, 10, (3000.0, 50.0))
    net.run(5)
    assert arrived(net, 10) == []
    assert net.count_dropped("face_toured") == 1
    # Greedy to the end of the ladder, and once around it: ten edges.
    assert net.count_sent("GeoPacket") - before <= 4 + 10 + 1
    assert courier(net, 0).refused == [], "only the node where it ended knows"
    ask(net, 4, 10, (3000.0, 50.0))
    net.run(5)
    assert courier(net, 4).refused, "the tour ended where it had begun, at the origin itself"


def test_a_place_within_the_radius_is_captured_by_the_first_node_there() -> None:
    net = placed("gpsr", [(100.0 * x, 0.0) for x in range(6)])
    net.run(SETTLED_S)
    net.publish(0, {"x": 500.0, "y": 0.0, "radius": 150.0})
    net.run(2)
    assert [letter.hops for letter in arrived(net, 4)] == [4]
    net.publish(4, {"x": 500.0, "y": 0.0, "radius": 150.0})
    net.run(2)
    assert [letter.hops for letter in arrived(net, 4)] == [4, 0], "who is there keeps it"


@pytest.mark.parametrize(("direct", "hops"), [(True, 2), (False, 4)])
def test_a_target_that_has_moved_is_found_among_the_neighbors_or_on_a_tour(direct: bool, hops: int) -> None:
    # Node 3 was last heard of beyond node 2; it is beside node 1.
    net = placed("gpsr", [(0.0, 0.0), (100.0, 0.0), (200.0, 0.0), (100.0, 110.0)], direct=direct)
    net.run(SETTLED_S)
    ask(net, 0, 3, (210.0, 0.0))
    net.run(3)
    assert [letter.hops for letter in arrived(net, 3)] == [hops], "0 - 1 - 3, or 0 - 1 - 2 and around from there"


def test_greedy_alone_ends_at_a_void() -> None:
    positions, range_m = LAYOUTS["comb"]
    net = network(positions, range_m, recovery="none")
    ask(net, 0, len(positions) - 1, positions[-1])
    net.run(5)
    assert net.count_dropped("local_minimum") == 1
