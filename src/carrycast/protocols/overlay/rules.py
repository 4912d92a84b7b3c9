"""The rules of the broker topology, as pure functions [002 §2.3]."""

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from carrycast.core.model import NodeId

FoundBroker = tuple[float, NodeId]
"""A broker that was found: its distance, then its id, so that sorting puts the nearest first."""


class TopologyRow(NamedTuple):
    """The links that a broker last reported, with the time of its report on this node's clock."""

    made: float
    links: Mapping[NodeId, float]
    extra_cost: float = 0.0
    """The cost of links to this broker besides their length."""


TopologyRows = Mapping[NodeId, TopologyRow]

OverlayGraph = dict[NodeId, dict[NodeId, float]]


# [002 §2.3 step 1] "If a neighbor broker moves too far away ..., the original overlay link ... is removed. If a broker
# moves into the vicinity of another broker, a new broker link is created." How far vicinity goes is a setting.
def select_vicinity(found: Iterable[FoundBroker], vicinity: str, degree: int, within: float) -> dict[NodeId, float]:
    """Select the overlay neighbors among the brokers that were found, the nearest first."""
    nearest = sorted(found)
    if vicinity == "within":
        nearest = [one for one in nearest if one[0] <= within]
    elif vicinity == "ring" and len(nearest) > degree:
        nearest = [one for one in nearest if one[0] <= nearest[degree - 1][0]]
    else:
        nearest = nearest[:degree]
    return {broker: distance for distance, broker in nearest[:64]}


def link_length(rows: TopologyRows, a: NodeId, b: NodeId, rule: str) -> float | None:
    """The length of the overlay link between two brokers; None if there is no link.

    [002 §2.3, Figure 3] C adds D, and all brokers that learn of it use C-D though D has not listed it; B drops D, and
    B-D is gone though D still lists B: of the rows of both ends the younger is valid.
    """
    row_a, row_b = rows.get(a), rows.get(b)
    there = None if row_a is None else row_a.links.get(b)
    back = None if row_b is None else row_b.links.get(a)
    # Of two rows of the same age, as at a start, one that lists the link is enough.
    if rule == "younger" and row_a is not None and row_b is not None and row_a.made != row_b.made:
        return there if row_a.made > row_b.made else back
    if there is None or back is None:
        return back if there is None else there
    return min(there, back)


# [002 §6] "optimize performance metrics other than end-to-end latency", "multi-dimensional performance metrics".
def build_graph(rows: TopologyRows, rule: str, weight_hops: float = 1.0) -> OverlayGraph:
    """All links of the overlay in both directions, with their weighted length and the extra cost of the end they lead
    to."""
    graph: OverlayGraph = {broker: {} for broker in rows}
    for broker, row in rows.items():
        for other in row.links:
            if other in graph[broker]:
                # Already added from the other end.
                continue
            length = link_length(rows, broker, other, rule)
            if length is not None:
                there = rows.get(other)
                cost = weight_hops * length
                graph[broker][other] = cost + (0.0 if there is None else there.extra_cost)
                graph.setdefault(other, {})[broker] = cost + row.extra_cost
    return graph


class BrokerPath(NamedTuple):
    """A path to a broker: its cost, and its brokers, of which the target is the last."""

    cost: float
    path: tuple[NodeId, ...]


# [002 §2.3 step 4] "recalculating its shortest path to other brokers".
def find_shortest_paths(graph: OverlayGraph, source: NodeId) -> dict[NodeId, BrokerPath]:
    """Dijkstra's algorithm. Of equally short paths the one over fewer brokers, then over lower ids."""
    found: dict[NodeId, BrokerPath] = {}
    queue: list[tuple[float, int, tuple[NodeId, ...]]] = [(0.0, 0, ())]
    while queue:
        cost, brokers, path = heapq.heappop(queue)
        at = path[-1] if path else source
        if at in found:
            continue
        found[at] = BrokerPath(cost, path)
        for other, length in graph.get(at, {}).items():
            if other not in found:
                heapq.heappush(queue, (cost + length, brokers + 1, (*path, other)))
    return found
