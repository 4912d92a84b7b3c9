"""On static random graphs, processors included, ASP finds the shortest paths that networkx finds, whatever the order in
which its messages arrive, and one active path leads to each subscriber."""

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
    """Connected, with a few loops, and costs that no two sums share."""
    graph = nx.gnp_random_graph(nodes, 0.25, seed=rng.randrange(1 << 30))
    for node in range(1, nodes):
        if not nx.has_path(graph, 0, node):
            graph.add_edge(rng.randrange(node), node)
    for a, b in graph.edges:
        graph.edges[a, b]["cost_s"] = rng.uniform(0.001, 0.1)
    return graph


def active_path(web: Web, source: NodeId, sink: NodeId, id: int) -> list[NodeId]:
    """The nodes that a publication passes on its way to a sink, by each broker's own table."""
    subscriber = web.brokers[sink].broker.subscriber
    path = [source]
    while path[-1] != sink:
        entry = web.brokers[path[-1]].broker.table.get(id)
        assert entry is not None
        path.append(entry.path.active[subscriber].neighbor)
    return path


def brokers_with_path(web: Web, subscriber: int, id: int) -> set[NodeId]:
    """Every broker that would pass a publication on to a subscriber, whether or not one could come to it."""
    found = set()
    for node, broker in web.brokers.items():
        entry = broker.broker.table.get(id)
        if entry is not None and subscriber in entry.path.active:
            found.add(node)
            requested, active = set(entry.path.list_requested_paths()), set(entry.path.active.values())
            assert requested <= active, "nobody waits once all is quiet"
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
    id = web.known(0, unit="C").id
    lengths = nx.single_source_dijkstra_path_length(graph, 0, weight="cost_s")
    for node in graph:
        assert web.known(node, unit="C").path.metric_s == pytest.approx(lengths[node])
    for sink in sinks:
        path = active_path(web, 0, sink, id)
        assert path == nx.dijkstra_path(graph, 0, sink, weight="cost_s")
        # Whatever better announcements came after the first subscription: nothing is left of the paths before.
        assert brokers_with_path(web, web.brokers[sink].broker.subscriber, id) == set(path)
    second = web.publish(0, topic="t", unit="C", value=21.0)
    assert all(web.delivered[sink].count(second) == 1 for sink in sinks)


@pytest.mark.parametrize("seed", SEEDS)
def test_messages_that_arrive_at_the_second_try_only_make_the_same_paths(seed: int) -> None:
    """A retry comes after what was sent meanwhile, and a message whose acknowledgment was lost comes twice."""
    rng = Random(4000 + seed)
    graph = random_graph(rng)
    web = Web(graph, AspSettings(), rng, failing=0.4)
    sinks = rng.sample(range(1, 12), 3)
    for sink in sinks:
        web.subscribe(sink, "unit = 'C'")
    web.publish(0, topic="t", unit="C", value=20.5)
    id = web.known(0, unit="C").id
    for sink in sinks:
        path = active_path(web, 0, sink, id)
        assert path == nx.dijkstra_path(graph, 0, sink, weight="cost_s")
        assert brokers_with_path(web, web.brokers[sink].broker.subscriber, id) == set(path)
    second = web.publish(0, topic="t", unit="C", value=21.0)
    assert all(web.delivered[sink].count(second) == 1 for sink in sinks)


def to_unit(unit: str, offset: float) -> UserFunction:
    def convert(event: Event) -> Mapping[str, Scalar]:
        return {"topic": "t", "unit": unit, "value": float(event.attributes["value"]) + offset}

    return convert


def state_graph(graph: nx.Graph, stages: list[dict[NodeId, float]]) -> nx.DiGraph:
    """Nodes are (broker, stage): links within a stage, and at each processor of a stage an edge to the next."""
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
    """Celsius to Kelvin at three places, Kelvin to Rankine at two, a sink that is anywhere."""
    rng = Random(1000 + seed)
    graph = random_graph(rng)
    web = Web(graph, AspSettings(), rng)
    stages = [{node: rng.uniform(0.01, 0.05) for node in rng.sample(range(12), count)} for count in (3, 2)]
    for node, cost_s in stages[0].items():
        web.install(node, Processor("kelvin", "unit = 'C'", cost_s=cost_s), to_unit("K", 273.15))
    for node, cost_s in stages[1].items():
        web.install(node, Processor("rankine", "unit = 'K'", cost_s=cost_s), to_unit("R", 0.25))
    sink = rng.randrange(1, 12)
    web.subscribe(sink, "unit = 'R'")
    web.publish(0, topic="t", unit="C", value=20.5)

    states = state_graph(graph, stages)
    lengths = nx.single_source_dijkstra_path_length(states, (0, 0))
    for node in graph:
        for stage, unit in enumerate("CKR"):
            assert web.known(node, unit=unit).path.metric_s == pytest.approx(lengths[node, stage])
    assert len(web.delivered[sink]) == 1, "five processors, but equal results are one announcement"

    # The path that a publication takes, by the brokers' own tables, state by state.
    expected = nx.dijkstra_path(states, (0, 0), (sink, 2))
    ids = [web.known(0, unit=unit).id for unit in "CKR"]
    subscribers = [web.brokers[sink].broker.subscriber]
    for id in (ids[2], ids[1]):
        subscribers.insert(0, derive_subscriber(subscribers[0], id))
    for stage in range(3):
        on_path = {node for node, at in expected if at == stage}
        assert brokers_with_path(web, subscribers[stage], ids[stage]) == on_path

    web.sent.clear()
    web.publish(0, topic="t", unit="C", value=30.5)
    [_, last] = web.delivered[sink]
    assert last.attributes["value"] == pytest.approx(30.5 + 273.15 + 0.25)
    hops = [(a, b) for a, b, message in web.sent if isinstance(message, Publication)]
    assert len(hops) == len(web.sent) == sum(one[1] == two[1] for one, two in pairwise(expected))


def mean(events: list[Event]) -> Mapping[str, Scalar]:
    values = [float(event.attributes["value"]) for event in events]
    return {"topic": "mean", "value": sum(values) / len(values)}


@pytest.mark.parametrize("how", ["sum", "max"])
@pytest.mark.parametrize("seed", range(8))
def test_an_aggregate_is_made_where_its_inputs_and_its_sink_are_nearest(seed: int, how: str) -> None:
    rng = Random(2000 + seed)
    graph = random_graph(rng)
    web = Web(graph, AspSettings(aggregate_metric="sum" if how == "sum" else "max"), rng)
    places = sorted(rng.sample(range(12), 3))
    for node in places:
        web.install(node, Processor("mean", "topic in ('a', 'b')", inputs=2, cost_s=0.01), mean)
    sink = rng.randrange(2, 12)
    web.subscribe(sink, "topic = 'mean'")
    web.publish(0, topic="a", value=10.0)
    web.publish(1, topic="b", value=20.0)

    lengths = dict(nx.all_pairs_dijkstra_path_length(graph, weight="cost_s"))
    combine = sum if how == "sum" else max
    for node in graph:
        nearest = min(combine((lengths[0][at], lengths[1][at])) + 0.01 + lengths[at][node] for at in places)
        assert web.known(node, topic="mean").path.metric_s == pytest.approx(nearest)
    assert [event.attributes["value"] for event in web.delivered[sink]] == [15.0]

    # One mean for each pair of new inputs, made at one place only.
    web.publish(0, topic="a", value=30.0)
    assert len(web.delivered[sink]) == 1
    web.publish(1, topic="b", value=40.0)
    assert [event.attributes["value"] for event in web.delivered[sink]] == [15.0, 35.0]


@pytest.mark.parametrize("seed", SEEDS)
def test_repairs_make_no_loop_and_lose_no_subscriber_that_has_a_feasible_announcer(seed: int) -> None:
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
                assert follows_to_source(web, entry.id, broker.node)
        web.now += 1
        published.append(web.publish(0, topic="t", unit="C", value=value + 0.5))
    for sink in sinks:
        assert sorted(event.id for event in web.delivered[sink]) == [event.id for event in published]


def follows_to_source(web: Web, id: int, node: NodeId) -> bool:
    """Whether announcers lead on to the source, or end at one that knows its path is lost; never in a circle."""
    passed: set[NodeId] = set()
    while node not in passed:
        passed.add(node)
        entry = web.brokers[node].broker.table.get(id)
        assert entry is not None
        if entry.path.announcer is None or entry.path.announcer == node:
            return True
        node = entry.path.announcer
    return False
