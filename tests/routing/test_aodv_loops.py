"""Loop freedom: whatever happens to links, nodes and frames, no packet could go round in a circle, at any moment."""

from random import Random

import networkx as nx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from carrycast.sim.testing import Net
from tests.routing.networks import aodv, loop, next_hops, over

NODES = 9
SETTINGS: dict[str, dict[str, object]] = {
    "rfc3561": {},
    "ns2": {"variant": "ns2"},
    "hello": {"detection": "hello"},
    # Everything is soon forgotten, so that expiry and deletion play their part.
    "short": {"active_route_timeout_s": 0.3, "my_route_timeout_s": 0.6, "hello_interval_s": 0.1},
    "target": {"destination_only": True},
    "chatty": {"gratuitous": True, "local_repair": "past_half", "forward_jitter_s": 0.2},
}
DISCOVERY = ["none", "oracle"]


def network(variant: str, discovery: str, seed: int, loss: float) -> tuple[Net, list[tuple[int, int]]]:
    graph = nx.connected_watts_strogatz_graph(NODES, 4, 0.4, seed=seed)
    faults = [{"kind": "loss", "probability": loss}] if loss else []
    tables = {"discovery": {"mode": discovery}, "faults": faults}
    return over("aodv", graph.edges, seed, tables, **SETTINGS[variant]), list(graph.edges)


def check(net: Net, said: str) -> None:
    for target in range(NODES):
        circle = loop(next_hops(net, target, NODES))
        assert circle is None, f"{said}: packets for {target} go round {circle}"


def disturb(net: Net, rng: Random, edges: list[tuple[int, int]], cut: set[tuple[int, int]], restarts: bool) -> None:
    edge = rng.choice(edges)
    if edge in cut:
        cut.discard(edge)
        net.heal(*edge)
    else:
        cut.add(edge)
        net.cut(*edge)
    if restarts and rng.random() < 0.1:
        node = rng.randrange(NODES)
        net.crash(node)
        net.restart(node)


@pytest.mark.parametrize("discovery", DISCOVERY)
@pytest.mark.parametrize("variant", SETTINGS)
def test_random_flaps_lost_frames_and_restarts_make_no_loop(variant: str, discovery: str) -> None:
    used = 0
    for seed in range(3):
        rng = Random(f"{variant} {discovery} {seed}")
        net, edges = network(variant, discovery, seed, loss=0.15)
        cut: set[tuple[int, int]] = set()
        for step in range(150):
            disturb(net, rng, edges, cut, restarts=variant != "ns2")
            origin, target = rng.sample(range(NODES), 2)
            net.publish(origin, {"to": target})
            for _ in range(3):
                net.run(rng.choice([0.003, 0.05, 0.4]))
                check(net, f"seed {seed}, step {step}")
        used += net.count_sent("Packet")
    assert used > 300, "routes were in use all the time"


Step = tuple[int, int, int, float]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 99), st.integers(0, NODES - 1), st.integers(1, NODES - 1), st.sampled_from([0.002, 0.05, 1.0])
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 50), variant=st.sampled_from(list(SETTINGS)), steps=STEPS)
def test_any_story_of_packets_and_flaps_makes_no_loop(seed: int, variant: str, steps: list[Step]) -> None:
    net, edges = network(variant, "none", seed, loss=0.0)
    cut: set[tuple[int, int]] = set()
    for number, origin, other, wait_s in steps:
        edge = edges[number % len(edges)]
        if number % 3 == 0:
            (net.heal if edge in cut else net.cut)(*edge)
            cut ^= {edge}
        net.publish(origin, {"to": (origin + other) % NODES})
        net.run(wait_s)
        check(net, "after a step")


def test_along_the_next_hops_numbers_grow_or_hops_fall() -> None:
    rng = Random(5)
    net, edges = network("rfc3561", "none", 5, loss=0.1)
    cut: set[tuple[int, int]] = set()
    compared = 0
    for _ in range(150):
        disturb(net, rng, edges, cut, restarts=False)
        origin, target = rng.sample(range(NODES), 2)
        net.publish(origin, {"to": target})
        net.run(0.1)
        for destination in range(NODES):
            for node, hop in next_hops(net, destination, NODES).items():
                own = aodv(net, node).table.find_valid(net.now, destination)
                next_own = aodv(net, hop).table.find(net.now, destination)
                if own is None or hop == destination or own.sequence == 0:
                    continue
                assert next_own is not None, "a lost route is remembered while somebody relies on it"
                counted = next_own.sequence if next_own.valid else next_own.sequence - 1
                assert (counted, -next_own.hop_count) > (own.sequence, -own.hop_count) or (
                    not next_own.valid and counted >= own.sequence
                )
                compared += 1
    assert compared > 500
