"""On static random graphs with processors, ASP finds the same shortest paths as networkx, in any order in which
messages arrive, and one active path leads to each subscriber."""

from collections.abc import Mapping
from itertools import pairwise
from random import Random

import networkx as nx
import pytest

from carrycast.core.functions import UserFunction
from carrycast.core.model import Event, NodeId, Processor, Scalar
from carrycast.protocols.asp.messages import Publication
from carrycast.protocols.asp.rules import derive_subscriber
from carrycast.protocols.asp.settings import AspSettings
from carrycast.protocols.asp.tests.web import Web

SEEDS = range(25)


def random_graph(rng: Random, nodes: int = 12) -> nx.Graph:
    """Make a connected graph with a few cycles and random costs."""
    graph = nx.gnp_random_graph(nodes, 0.25, seed=rng.randrange(1 << 30))
    for node in range(1, nodes):
        if not nx.has_path(graph, 0, node):
            graph.add_edge(rng.randrange(node), node)
    for a, b in graph.edges:
        graph.edges[a, b]["cost_s"] = rng.uniform(0.001, 0.1)
    return graph


def find_active_path(web: Web, source: NodeId, sink: NodeId, id: int) -> list[NodeId]:
    """Return the nodes on the active path to a sink, by each broker's own table."""
    subscriber = web.brokers[sink].broker.subscriber
    path = [source]
    while path[-1] != sink:
        entry = web.brokers[path[-1]].broker.table.get(id)
        assert entry is not None
        path.append(entry.path.active[subscriber].neighbor)
    return path


def find_brokers_with_path(web: Web, subscriber: int, id: int) -> set[NodeId]:
    """Return every broker with an active path for a subscriber, whether or not publications reach it."""
    found = set()
    for node, broker in web.brokers.items():
        entry = broker.broker.table.get(id)
        if entry is not None and subscriber in entry.path.active:
            found.add(node)
            requested, active = set(entry.path.list_requested_paths()), set(entry.path.active.values())
            assert requested <= active, "no path is on standby in a stable network"
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_metrics_and_active_paths_are_the_shortest(seed: int) -> None:
    rng = Random(seed)
    graph = random_graph(rng)
    web = Web(graph, AspSettings(), rng)
    sinks = rng.sample(range(1, 12), 3)
    for sink in sinks:
        web.subscribe(sink, "unit = 'C'")
    web.publish(0, topic="t", unit="C", value=20.5)
    id = web.find_announcement(0, unit="C").id
    lengths = nx.single_source_dijkstra_path_length(graph, 0, weight="cost_s")
    for node in graph:
        assert web.find_announcement(node, unit="C").path.metric_s == pytest.approx(lengths[node])
    for sink in sinks:
        path = find_active_path(web, 0, sink, id)
        assert path == nx.dijkstra_path(graph, 0, sink, weight="cost_s")
        # Paths that were made before better announcements came are removed.
        assert find_brokers_with_path(web, web.brokers[sink].broker.subscriber, id) == set(path)
    second = web.publish(0, topic="t", unit="C", value=21.0)
    assert all(web.delivered[sink].count(second) == 1 for sink in sinks)


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_that_arrive_at_the_second_attempt_make_the_same_paths(seed: int) -> None:
    """A retransmission arrives after later messages, and a message whose acknowledgment was lost arrives twice."""
    rng = Random(4000 + seed)
    graph = random_graph(rng)
    web = Web(graph, AspSettings(), rng, failing=0.4)
    sinks = rng.sample(range(1, 12), 3)
    for sink in sinks:
        web.subscribe(sink, "unit = 'C'")
    web.publish(0, topic="t", unit="C", value=20.5)
    id = web.find_announcement(0, unit="C").id
    for sink in sinks:
        path = find_active_path(web, 0, sink, id)
        assert path == nx.dijkstra_path(graph, 0, sink, weight="cost_s")
        assert find_brokers_with_path(web, web.brokers[sink].broker.subscriber, id) == set(path)
    second = web.publish(0, topic="t", unit="C", value=21.0)
    assert all(web.delivered[sink].count(second) == 1 for sink in sinks)


def make_converter(unit: str, offset: float) -> UserFunction:
    def convert(event: Event) -> Mapping[str, Scalar]:
        return {"topic": "t", "unit": unit, "value": float(event.attributes["value"]) + offset}

    return convert


def build_state_graph(graph: nx.Graph, stages: list[dict[NodeId, float]]) -> nx.DiGraph:
    """Build a graph of (broker, stage): links within a stage, and at each processor an edge to the next stage."""
    states = nx.DiGraph()
    for stage in range(len(stages) + 1):
        for a, b, data in graph.edges(data=True):
            states.add_edge((a, stage), (b, stage), weight=data["cost_s"])
            states.add_edge((b, stage), (a, stage), weight=data["cost_s"])
    for stage, costs_s in enumerate(stages):
        for node, cost_s in costs_s.items():
            states.add_edge((node, stage), (node, stage + 1), weight=cost_s)
    return states


@pytest.mark.parametrize("seed", SEEDS)
def test_paths_through_processors_are_the_shortest_of_the_state_graph(seed: int) -> None:
    """Three brokers convert Celsius to Kelvin, two Kelvin to Rankine; the sink is a random broker."""
    rng = Random(1000 + seed)
    graph = random_graph(rng)
    web = Web(graph, AspSettings(), rng)
    stages = [{node: rng.uniform(0.01, 0.05) for node in rng.sample(range(12), count)} for count in (3, 2)]
    for node, cost_s in stages[0].items():
        web.install(node, Processor("kelvin", "unit = 'C'", cost_s=cost_s), make_converter("K", 273.15))
    for node, cost_s in stages[1].items():
        web.install(node, Processor("rankine", "unit = 'K'", cost_s=cost_s), make_converter("R", 0.25))
    sink = rng.randrange(1, 12)
    web.subscribe(sink, "unit = 'R'")
    web.publish(0, topic="t", unit="C", value=20.5)

    states = build_state_graph(graph, stages)
    lengths = nx.single_source_dijkstra_path_length(states, (0, 0))
    for node in graph:
        for stage, unit in enumerate("CKR"):
            assert web.find_announcement(node, unit=unit).path.metric_s == pytest.approx(lengths[node, stage])
    assert len(web.delivered[sink]) == 1, "five processors, but equal results are one announcement"

    # The active paths by the brokers' own tables, stage by stage.
    expected = nx.dijkstra_path(states, (0, 0), (sink, 2))
    ids = [web.find_announcement(0, unit=unit).id for unit in "CKR"]
    subscribers = [web.brokers[sink].broker.subscriber]
    for id in (ids[2], ids[1]):
        subscribers.insert(0, derive_subscriber(subscribers[0], id))
    for stage in range(3):
        on_path = {node for node, at in expected if at == stage}
        assert find_brokers_with_path(web, subscribers[stage], ids[stage]) == on_path

    web.sent.clear()
    web.publish(0, topic="t", unit="C", value=30.5)
    [_, last] = web.delivered[sink]
    assert last.attributes["value"] == pytest.approx(30.5 + 273.15 + 0.25)
    hops = [(a, b) for a, b, message in web.sent if isinstance(message, Publication)]
    assert len(hops) == len(web.sent) == sum(one[1] == two[1] for one, two in pairwise(expected))


def compute_mean(events: list[Event]) -> Mapping[str, Scalar]:
    values = [float(event.attributes["value"]) for event in events]
    return {"topic": "mean", "value": sum(values) / len(values)}


@pytest.mark.parametrize("how", ["sum", "max"])
@pytest.mark.parametrize("seed", range(8))
def test_an_aggregate_is_computed_where_its_total_metric_is_lowest(seed: int, how: str) -> None:
    rng = Random(2000 + seed)
    graph = random_graph(rng)
    web = Web(graph, AspSettings(aggregate_metric="sum" if how == "sum" else "max"), rng)
    places = sorted(rng.sample(range(12), 3))
    for node in places:
        web.install(node, Processor("mean", "topic in ('a', 'b')", inputs=2, cost_s=0.01), compute_mean)
    sink = rng.randrange(2, 12)
    web.subscribe(sink, "topic = 'mean'")
    web.publish(0, topic="a", value=10.0)
    web.publish(1, topic="b", value=20.0)

    lengths = dict(nx.all_pairs_dijkstra_path_length(graph, weight="cost_s"))
    combine = sum if how == "sum" else max
    for node in graph:
        nearest = min(combine((lengths[0][at], lengths[1][at])) + 0.01 + lengths[at][node] for at in places)
        assert web.find_announcement(node, topic="mean").path.metric_s == pytest.approx(nearest)
    assert [event.attributes["value"] for event in web.delivered[sink]] == [15.0]

    # One mean for each pair of new inputs, computed at one broker only.
    web.publish(0, topic="a", value=30.0)
    assert len(web.delivered[sink]) == 1
    web.publish(1, topic="b", value=40.0)
    assert [event.attributes["value"] for event in web.delivered[sink]] == [15.0, 35.0]


@pytest.mark.parametrize("seed", SEEDS)
def test_repairs_make_no_loops_and_keep_subscribers_with_feasible_announcers(seed: int) -> None:
    rng = Random(3000 + seed)
    graph = random_graph(rng, 14)
    web = Web(graph, AspSettings(repair=True, announcement_cache=True, publication_cache=8), rng)
    sinks = rng.sample(range(1, 14), 4)
    for sink in sinks:
        web.subscribe(sink, "unit = 'C'")
    published = [web.publish(0, topic="t", unit="C", value=0.5)]
    for value in range(1, 6):
        bridges = set(nx.bridges(graph))
        spare = sorted(edge for edge in graph.edges if edge not in bridges)
        if not spare:
            break
        a, b = rng.choice(spare)
        web.lose(a, b)
        graph.remove_edge(a, b)
        for broker in web.brokers.values():
            for entry in broker.broker.table.entries():
                assert leads_to_source(web, entry.id, broker.node)
        web.now += 1
        published.append(web.publish(0, topic="t", unit="C", value=value + 0.5))
    for sink in sinks:
        assert sorted(event.id for event in web.delivered[sink]) == [event.id for event in published]


def leads_to_source(web: Web, id: int, node: NodeId) -> bool:
    """Whether the chain of announcers ends at the source, or at a broker that has lost its path, without a loop."""
    passed: set[NodeId] = set()
    while node not in passed:
        passed.add(node)
        entry = web.brokers[node].broker.table.get(id)
        assert entry is not None
        if entry.path.announcer is None or entry.path.announcer == node:
            return True
        node = entry.path.announcer
    return False
