"""The rules of the broker topology, by examples worked by hand."""

import networkx as nx
import pytest

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.home_broker import mean_path_length, should_change_home
from carrycast.protocols.overlay.rules import (
    BrokerPath,
    FoundBroker,
    TopologyRow,
    build_graph,
    find_shortest_paths,
    link_length,
    select_vicinity,
)

FOUND: list[FoundBroker] = [(3.0, 7), (1.0, 5), (2.0, 9), (2.0, 4), (4.0, 1)]


@pytest.mark.parametrize(
    ("vicinity", "degree", "within", "near"),
    [
        ("nearest", 2, 9, [5, 4]),
        ("nearest", 9, 9, [5, 4, 9, 7, 1]),
        ("ring", 2, 9, [5, 4, 9]),
        ("ring", 9, 9, [5, 4, 9, 7, 1]),
        ("within", 1, 2, [5, 4, 9]),
        ("within", 1, 0, []),
    ],
)
def test_vicinity(vicinity: str, degree: int, within: float, near: list[NodeId]) -> None:
    assert list(select_vicinity(FOUND, vicinity, degree, within)) == near


@pytest.mark.parametrize(
    ("one", "other", "younger", "either"),
    [
        # For both ends: when the row was made, and whether it lists the other end; then the link under both rules.
        ((1.0, True), (2.0, True), True, True),
        ((1.0, True), (2.0, False), False, True),
        ((1.0, False), (2.0, True), True, True),
        ((1.0, False), (2.0, False), False, False),
        ((1.0, True), (1.0, False), True, True),
        ((1.0, True), None, True, True),
        (None, None, False, False),
    ],
)
def test_of_two_rows_about_a_link_the_younger_is_valid(
    one: tuple[float, bool] | None, other: tuple[float, bool] | None, younger: bool, either: bool
) -> None:
    rows = {
        node: TopologyRow(row[0], {end: 2.0} if row[1] else {})
        for node, row, end in ((0, one, 1), (1, other, 0))
        if row is not None
    }
    for rule, exists in (("younger", younger), ("either", either)):
        assert (link_length(rows, 0, 1, rule) is not None) == exists
        assert (link_length(rows, 1, 0, rule) is not None) == exists


def test_the_cost_of_a_link_includes_the_extra_cost_of_its_end() -> None:
    rows = {0: TopologyRow(0.0, {1: 2.0}), 1: TopologyRow(0.0, {}, extra_cost=5.0)}
    assert build_graph(rows, "either") == {0: {1: 7.0}, 1: {0: 2.0}}
    assert build_graph(rows, "either", 0.5) == {0: {1: 6.0}, 1: {0: 1.0}}


@pytest.mark.parametrize("seed", range(5))
def test_shortest_paths_equal_those_of_networkx(seed: int) -> None:
    graph = nx.gnp_random_graph(20, 0.2, seed=seed)
    lengths = {edge: float(1 + (edge[0] * 7 + edge[1]) % 5) for edge in graph.edges}
    nx.set_edge_attributes(graph, lengths, "weight")
    mine: dict[NodeId, dict[NodeId, float]] = {
        node: {other: graph.edges[node, other]["weight"] for other in graph.neighbors(node)} for node in graph
    }
    truth = nx.single_source_dijkstra_path_length(graph, 0)
    found = find_shortest_paths(mine, 0)
    assert {node: one.cost for node, one in found.items()} == truth
    for node, one in found.items():
        assert (one.path[-1] if one.path else 0) == node
        assert nx.path_weight(graph, [0, *one.path], "weight") == one.cost


def test_the_mean_path_leaves_out_unreachable_brokers() -> None:
    reached = {3: BrokerPath(2.0, (3,)), 4: BrokerPath(5.0, (3, 4))}
    assert mean_path_length([3, 4, 9], reached, 1.0) == 1.0 + 3.5
    assert mean_path_length([], reached, 2.0) == 2.0


@pytest.mark.parametrize(
    ("here", "there", "load_here", "load_there", "moves"),
    [
        (4.0, 3.0, 0.0, 0.0, True),
        (3.0, 3.0, 0.0, 0.0, False),
        (3.0, 4.0, 0.0, 0.0, False),
        (4.0, 3.0, 0.0, 0.9, True),
        (4.0, 3.0, 0.0, 0.91, False),
        (3.0, 4.0, 0.95, 0.5, True),
        (3.0, 4.0, 0.9, 0.5, False),
        (3.0, 4.0, 0.95, 0.95, False),
    ],
)
def test_a_client_changes_to_a_shorter_path_unless_that_broker_is_overloaded(
    here: float, there: float, load_here: float, load_there: float, moves: bool
) -> None:
    assert should_change_home(here, there, load_here, load_there, 0.9) is moves
