"""The global view of oracles: all distances at once, and computed again only when a link has changed."""

from random import Random

import networkx as nx
import numpy as np
import pytest

from carrycast.sim.engine.global_view import compute_all_hops
from carrycast.sim.testing import Net


@pytest.mark.parametrize(("nodes", "links"), [(1, 0), (2, 0), (5, 3), (64, 90), (65, 200), (130, 150), (130, 2000)])
def test_distances_are_those_of_an_independent_search(nodes: int, links: int) -> None:
    rng = Random(nodes * 10_000 + links)
    graph = nx.Graph()
    graph.add_nodes_from(range(nodes))
    while graph.number_of_edges() < links:
        graph.add_edge(*rng.sample(range(nodes), 2))
    found = compute_all_hops([list(graph[node]) for node in range(nodes)])
    paths = dict(nx.all_pairs_shortest_path_length(graph))
    assert found.tolist() == [[paths[a].get(b, -1) for b in range(nodes)] for a in range(nodes)]


def test_nobody_is_nowhere_near_anybody() -> None:
    assert compute_all_hops([]).shape == (0, 0)
    assert compute_all_hops([[], []]).tolist() == [[0, -1], [-1, 0]]


def test_distances_are_computed_once_for_each_change_of_links() -> None:
    net = Net.line(4)
    view = net.protocol(0).host.global_view
    before, version = view.hops(), view.version
    assert before.tolist()[0] == [0, 1, 2, 3]
    net.run(50)
    assert net.protocol(3).host.global_view.hops() is before
    assert view.version == version
    net.cut(1, 2)
    assert view.version != version
    assert view.hops().tolist()[0] == [0, 1, -1, -1]
    net.heal(1, 2)
    net.crash(1)
    assert view.hops().tolist()[0] == [0, -1, -1, -1]
    assert view.hops().tolist()[2] == [-1, -1, 0, 1]
    net.restart(1)
    assert np.array_equal(view.hops(), before)


def test_nobody_changes_what_others_read() -> None:
    with pytest.raises(ValueError, match="read-only"):
        Net.line(2).protocol(0).host.global_view.hops()[0, 1] = 7


def test_wires_are_links_too() -> None:
    wires = [{"interface": "ethernet", "between": [[0, 3]]}, {"interface": "fiber", "between": [[0, 1]]}]
    view = Net.line(4, scenario={"wires": wires}).protocol(0).host.global_view
    assert list(view.neighbors(0)) == [1, 3]
    assert view.hops().tolist()[0] == [0, 1, 2, 1]
