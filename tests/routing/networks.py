"""Networks of couriers, and what tests ask of them."""

from collections.abc import Iterable, Mapping, Sequence

import networkx as nx

from carrycast.core.model import NodeId
from carrycast.routers.aodv.router import Aodv
from carrycast.sim.testing import Net
from tests.routing.courier import Arrival, Courier

Edge = tuple[NodeId, NodeId]


def over(
    router: str, edges: Iterable[Edge], seed: int = 1, tables: Mapping[str, object] = {}, **settings: object
) -> Net:
    """Links that stand from the start."""
    return Net.graph(edges, "courier", {**tables, "router": {"name": router, **settings}}, seed)


def placed(
    router: str,
    positions: Sequence[tuple[float, float]],
    range_m: float = 120.0,
    seed: int = 1,
    tables: Mapping[str, object] = {},
    **settings: object,
) -> Net:
    """Nodes at positions, linked up to a range."""
    radio = tables.get("radio", {})
    assert isinstance(radio, Mapping)
    scenario = {
        "discovery": {"mode": "none"},
        **tables,
        "router": {"name": router, **settings},
        "radio": {"range_m": range_m, **radio},
    }
    return Net(len(positions), "courier", {}, scenario, seed, positions)


def courier(net: Net, node: NodeId) -> Courier:
    protocol = net.protocol(node)
    assert isinstance(protocol, Courier)
    return protocol


def arrived(net: Net, node: NodeId) -> list[Arrival]:
    return courier(net, node).arrived


def aodv(net: Net, node: NodeId) -> Aodv:
    router = net.machine(node).stack.router
    assert isinstance(router, Aodv)
    return router


def next_hops(net: Net, target: NodeId, nodes: int) -> dict[NodeId, NodeId]:
    """Where each node would send a packet for a destination, right now."""
    found = {}
    for node in range(nodes):
        machine = net.machine(node)
        if machine.up and node != target:
            route = aodv(net, node).table.find_valid(machine.now(), target)
            if route is not None:
                found[node] = route.next_hop
    return found


def loop(hops: dict[NodeId, NodeId]) -> list[NodeId] | None:
    """A circle in which packets would go round, if there is one."""
    try:
        return [edge[0] for edge in nx.find_cycle(nx.DiGraph(list(hops.items())))]
    except nx.NetworkXNoCycle:
        return None
