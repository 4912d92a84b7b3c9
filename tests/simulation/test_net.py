"""The test kit itself: its layouts, and what it tells."""

import networkx as nx
import pytest

from carrycast.errors import UserError
from carrycast.sim.testing import Net


def links(net: Net) -> set[tuple[int, int]]:
    network = net.simulation.network
    return {
        (node.id, other)
        for node in network.nodes
        for other in network.medium.topology.reach(node.id).nodes
        if node.id < other
    }


def edges(graph: "nx.Graph[int]") -> set[tuple[int, int]]:
    return {(min(a, b), max(a, b)) for a, b in nx.convert_node_labels_to_integers(graph, ordering="sorted").edges}


@pytest.mark.parametrize("nodes", [3, 4, 5, 12])
def test_a_ring_is_a_ring_and_a_line_a_line(nodes: int) -> None:
    assert links(Net.ring(nodes)) == edges(nx.cycle_graph(nodes))
    assert links(Net.line(nodes)) == edges(nx.path_graph(nodes))


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 2), (4, 4)])
def test_a_grid_is_a_grid(width: int, height: int) -> None:
    assert links(Net.grid(width, height)) == edges(nx.grid_2d_graph(height, width))


def test_a_graph_has_the_edges_that_it_was_given() -> None:
    assert links(Net.graph([(2, 0), (1, 3)])) == {(0, 2), (1, 3)}


def test_contacts_come_and_go() -> None:
    net = Net.contacts([(0, 1, 1.0, 3.0), (1, 2, 2.0, 4.0)])
    seen = []
    for _ in range(5):
        seen.append(links(net))
        net.run(1)
    assert seen == [set(), {(0, 1)}, {(0, 1), (1, 2)}, {(1, 2)}, set()]


def test_contacts_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="contacts of a pair overlap"):
        Net.contacts([(0, 1, 1.0, 3.0), (1, 0, 2.0, 4.0)])


def test_wrong_settings_are_told_as_in_a_scenario() -> None:
    with pytest.raises(UserError, match=r"net: protocol: unknown key 'q'"):
        Net.line(2, "gossip", q=1)


def test_a_story() -> None:
    net = Net.line(4)
    hot = net.subscribe(2, "celsius > 30")
    every = net.subscribe(2)
    net.subscribe(3, "celsius > 50")
    mild, heat = net.publish(0, {"celsius": 20}), net.publish(0, {"celsius": 40}, b"!")
    assert net.list_delivered(2) == []
    net.run(5)
    assert net.list_delivered(2, hot) == [heat]
    assert net.list_delivered(2, every) == [mild, heat]
    assert net.list_delivered(2) == [mild, heat, heat]
    assert net.list_delivered(3) == []
    assert (net.count_sent("FloodedEvent"), net.count_sent(node=1), net.count_dropped()) == (8, 2, 0)
    assert net.now == 5.0
    net.unsubscribe(hot)
    net.cut(0, 1)
    net.publish(0, {"celsius": 40})
    net.run(5)
    net.heal(0, 1)
    last = net.publish(0, {"celsius": 60})
    net.run(5)
    assert net.list_delivered(2) == [mild, heat, heat, last]
    assert net.list_delivered(3) == [last]
    assert net.stop().metrics["published"] == 4
