"""OLSR and DSDV over networks: shortest paths where nothing moves, and no loops where the protocol excludes them."""

from random import Random

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from carrycast.core.model import NodeId
from carrycast.routers.dsdv.router import Dsdv
from carrycast.sim.testing import Net
from tests.routing.networks import arrived, loop, over
from tests.routing.test_aodv_loops import disturb

NODES = 9
OLSR: dict[str, dict[str, object]] = {
    "rfc3626": {},
    "ns3": {"variant": "ns3"},
    "link_layer": {"detection": "link_layer"},
    "mprs too": {"tc_redundancy": 1},
    "all links": {"tc_redundancy": 2},
}
DSDV: dict[str, dict[str, object]] = {
    "paper": {"update_interval_s": 0.5, "min_trigger_s": 0.05, "settling_s": 0.2},
    "sequence": {"variant": "sequence", "update_interval_s": 0.5, "min_trigger_s": 0.01, "settling_s": 0.0},
    "ns3": {"variant": "ns3", "update_interval_s": 0.3, "settling_s": 0.1},
    # Everything is soon forgotten, so that expiry and deletion play their part.
    "short": {"update_interval_s": 0.1, "hold_intervals": 1.0, "min_trigger_s": 0.02},
}
QUIET = {"discovery": {"mode": "none"}}


def route_of(net: Net, node: NodeId, target: NodeId) -> tuple[NodeId | None, int | None]:
    """The next hop and the hop count of a node to another."""
    machine = net.machine(node)
    router = machine.stack.router
    assert router is not None
    now = machine.now()
    return router.find_next_hop(now, target), router.hops_to(now, target)  # type: ignore[attr-defined]


def next_hops(net: Net, target: NodeId, nodes: int) -> dict[NodeId, NodeId]:
    up = (node for node in range(nodes) if net.machine(node).up and node != target)
    return {node: hop for node in up if (hop := route_of(net, node, target)[0]) is not None}


def check_shortest(net: Net, graph: "nx.Graph[NodeId]") -> None:
    distances = dict(nx.all_pairs_shortest_path_length(graph))
    for node in graph:
        for target in graph:
            hop, hops = route_of(net, node, target)
            expected = distances[node].get(target)
            if node == target:
                assert hops == 0
                continue
            assert hops == expected, f"from {node} to {target}"
            if expected is not None:
                assert hop is not None
                assert distances[hop][target] == expected - 1, f"from {node} to {target} over {hop}"
            else:
                assert hop is None


@st.composite
def graphs(draw: st.DrawFn) -> "nx.Graph[NodeId]":
    size = draw(st.integers(2, 12))
    edges = draw(st.lists(st.tuples(st.integers(0, size - 1), st.integers(0, size - 1)), min_size=1, max_size=3 * size))
    graph: nx.Graph[NodeId] = nx.Graph()
    graph.add_nodes_from(range(size))
    graph.add_edges_from((a, b) for a, b in edges if a != b)
    return graph if graph.edges else nx.path_graph(size)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(), variant=st.sampled_from(list(OLSR)), seed=st.integers(0, 9))
def test_olsr_finds_the_shortest_paths_of_any_static_graph(graph: "nx.Graph[NodeId]", variant: str, seed: int) -> None:
    nodes = nx.relabel_nodes(graph, {node: index for index, node in enumerate(sorted(graph))})
    net = over("olsr", list(nodes.edges), seed, QUIET, **OLSR[variant])
    net.run(30)
    check_shortest(net, _heard_graph(net, nodes))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(graph=graphs(), seed=st.integers(0, 9))
def test_dsdv_finds_the_shortest_paths_of_any_static_graph(graph: "nx.Graph[NodeId]", seed: int) -> None:
    """With one full dump of each node, and so one sequence number of each. With a newer number the first copy may come
    over a longer path, until a better one follows [DSDV94, Damping Fluctuations]."""
    nodes = nx.relabel_nodes(graph, {node: index for index, node in enumerate(sorted(graph))})
    net = over("dsdv", list(nodes.edges), seed, QUIET, update_interval_s=3600.0, settling_s=0.0, min_trigger_s=0.1)
    net.run(20)
    check_shortest(net, _heard_graph(net, nodes))


def _heard_graph(net: Net, graph: "nx.Graph[NodeId]") -> "nx.Graph[NodeId]":
    """The graph without nodes beyond the greatest that an edge names."""
    return graph.subgraph(range(max(max(edge) for edge in graph.edges) + 1))


@pytest.mark.parametrize("variant", DSDV)
def test_dsdv_has_no_loop_whatever_happens_to_links_frames_and_nodes(variant: str) -> None:
    used = 0
    for seed in range(3):
        rng = Random(f"{variant} {seed}")
        graph = nx.connected_watts_strogatz_graph(NODES, 4, 0.4, seed=seed)
        tables = {**QUIET, "faults": [{"kind": "loss", "probability": 0.15}]}
        net = over("dsdv", graph.edges, seed, tables, **DSDV[variant])
        cut: set[tuple[int, int]] = set()
        for step in range(150):
            disturb(net, rng, list(graph.edges), cut, restarts=True)
            origin, target = rng.sample(range(NODES), 2)
            net.publish(origin, {"to": target})
            for _ in range(3):
                net.run(rng.choice([0.003, 0.05, 0.4]))
                for destination in range(NODES):
                    circle = loop(next_hops(net, destination, NODES))
                    assert circle is None, f"seed {seed}, step {step}: packets for {destination} go round {circle}"
        used += net.count_sent("DataPacket")
    assert used > 300, "routes were in use all the time"


def test_along_the_next_hops_of_dsdv_numbers_grow_or_metrics_fall() -> None:
    """The invariant behind the freedom of loops."""
    rng = Random(5)
    graph = nx.connected_watts_strogatz_graph(NODES, 4, 0.4, seed=5)
    net = over("dsdv", graph.edges, 5, QUIET, **DSDV["sequence"])
    cut: set[tuple[int, int]] = set()
    compared = 0
    for _ in range(150):
        disturb(net, rng, list(graph.edges), cut, restarts=False)
        net.run(0.1)
        for destination in range(NODES):
            for node, hop in next_hops(net, destination, NODES).items():
                if hop == destination:
                    continue
                own, onward = _dsdv(net, node).table.find(destination), _dsdv(net, hop).table.find(destination)
                assert own is not None
                assert onward is not None, "a lost route is remembered while another node relies on it"
                assert (onward.sequence, -onward.metric) > (own.sequence, -own.metric)
                compared += 1
    assert compared > 500


def _dsdv(net: Net, node: NodeId) -> Dsdv:
    router = net.machine(node).stack.router
    assert isinstance(router, Dsdv)
    return router


@pytest.mark.parametrize("variant", OLSR)
def test_olsr_returns_to_shortest_paths_after_links_and_nodes_have_changed(variant: str) -> None:
    for seed in range(3):
        rng = Random(f"{variant} {seed}")
        graph = nx.connected_watts_strogatz_graph(NODES, 4, 0.4, seed=seed)
        net = over("olsr", graph.edges, seed, QUIET, **OLSR[variant])
        cut: set[tuple[int, int]] = set()
        for _ in range(12):
            disturb(net, rng, list(graph.edges), cut, restarts=True)
            net.publish(0, {"to": 5})
            net.run(1.0)
        # The hold times of neighbors and of topology, and two intervals for what is sent after them.
        net.run(6 + 15 + 10)
        check_shortest(net, nx.Graph([edge for edge in graph.edges if edge not in cut]))


@pytest.mark.parametrize("router", ["olsr", "dsdv"])
def test_a_packet_takes_the_way_that_is_left(router: str) -> None:
    net = over(router, [(0, 1), (1, 2), (2, 3), (0, 4), (4, 5), (5, 3), (1, 4)], 1, QUIET, **FAST[router])
    net.run(20)
    net.publish(0, {"to": 3})
    net.run(1)
    assert [letter.hops for letter in arrived(net, 3)] == [3]
    net.cut(1, 2)
    net.run(20)
    net.publish(0, {"to": 3})
    net.run(1)
    assert [letter.hops for letter in arrived(net, 3)] == [3, 3]
    net.cut(5, 3)
    net.run(20)
    net.publish(0, {"to": 3})
    net.run(40)
    assert len(arrived(net, 3)) == 2
    net.heal(1, 2)
    net.run(30)
    net.publish(0, {"to": 3})
    net.run(1)
    assert len(arrived(net, 3)) == 3


FAST: dict[str, dict[str, object]] = {"olsr": {}, "dsdv": {"update_interval_s": 2.0, "settling_s": 0.5}}


def test_only_mprs_forward_tcs() -> None:
    """A clique around a relay: one TC of each relay is forwarded by few nodes, not by all."""
    graph = nx.compose(nx.complete_graph(8), nx.Graph([(0, 8), (8, 9)]))
    net = over("olsr", graph.edges, 1, QUIET)
    net.run(60)
    routers = {node: net.machine(node).stack.router for node in graph}
    relays = {node for node in graph if any(node in routers[other].neighborhood.mprs(60.0) for other in graph)}  # type: ignore[union-attr]
    assert relays == {0, 8}
    # A HELLO in two seconds of ten nodes, and TCs of two relays, which the two relays alone forward.
    hellos, tcs = 10 * 60 / 1.5, 2 * 60 / 4 * 2
    assert net.count_sent("ControlPacket") < hellos + tcs
