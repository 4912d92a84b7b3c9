"""The rules of the broker topology, as pure functions [002 §2.3]."""

import heapq
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from carrycast.core.model import NodeId

Found = tuple[float, NodeId]
"""A broker that was found: its distance, then who it is, so that sorting puts the nearest first."""


class Row(NamedTuple):
    """What a broker last said of itself, with the time at which it said so on this node's clock."""

    made: float
    links: Mapping[NodeId, float]
    price: float = 0.0
    """What links to it cost besides their length."""


Rows = Mapping[NodeId, Row]

Graph = dict[NodeId, dict[NodeId, float]]


# [002 §2.3 step 1] "If a neighbor broker moves too far away ..., the original overlay link ... is removed. If a broker
# moves into the vicinity of another broker, a new broker link is created." How far vicinity goes is a setting.
def in_vicinity(found: Iterable[Found], vicinity: str, degree: int, within: float) -> dict[NodeId, float]:
    """The overlay neighbors among the brokers that were found, the nearest first."""
    nearest = sorted(found)
    if vicinity == "within":
        nearest = [one for one in nearest if one[0] <= within]
    elif vicinity == "ring" and len(nearest) > degree:
        nearest = [one for one in nearest if one[0] <= nearest[degree - 1][0]]
    else:
        nearest = nearest[:degree]
    return {broker: distance for distance, broker in nearest[:64]}


def link_length(rows: Rows, a: NodeId, b: NodeId, rule: str) -> float | None:
    """How long the overlay link between two brokers is; None if there is none.

    [002 §2.3, Figure 3] C adds D, and all that hear of it use C-D though D has not said so; B drops D, and B-D is gone
    though D still lists B: of the two ends' words the younger holds.
    """
    one, other = rows.get(a), rows.get(b)
    there = None if one is None else one.links.get(b)
    back = None if other is None else other.links.get(a)
    # Equally young ends, as at a start, add up: one that lists the link is enough.
    if rule == "younger" and one is not None and other is not None and one.made != other.made:
        return there if one.made > other.made else back
    if there is None or back is None:
        return back if there is None else there
    return min(there, back)


# [002 §6] "optimize performance metrics other than end-to-end latency", "multi-dimensional performance metrics".
def overlay_graph(rows: Rows, rule: str, weight_hops: float = 1.0) -> Graph:
    """Every link of the overlay in both directions, its hops weighed, and priced for the end it leads to."""
    graph: Graph = {broker: {} for broker in rows}
    for broker, row in rows.items():
        for other in row.links:
            if other in graph[broker]:
                # The other end has listed it too, and has been asked.
                continue
            length = link_length(rows, broker, other, rule)
            if length is not None:
                there = rows.get(other)
                cost = weight_hops * length
                graph[broker][other] = cost + (0.0 if there is None else there.price)
                graph.setdefault(other, {})[broker] = cost + row.price
    return graph


class Reached(NamedTuple):
    """A broker that can be reached: at what cost, and over which brokers, itself the last."""

    cost: float
    path: tuple[NodeId, ...]


# [002 §2.3 step 4] "recalculating its shortest path to other brokers".
def shortest_paths(graph: Graph, source: NodeId) -> dict[NodeId, Reached]:
    """Dijkstra; of equally short paths the one over fewer brokers, then over lower ids."""
    reached: dict[NodeId, Reached] = {}
    waiting: list[tuple[float, int, tuple[NodeId, ...]]] = [(0.0, 0, ())]
    while waiting:
        cost, brokers, path = heapq.heappop(waiting)
        at = path[-1] if path else source
        if at in reached:
            continue
        reached[at] = Reached(cost, path)
        for other, length in graph.get(at, {}).items():
            if other not in reached:
                heapq.heappush(waiting, (cost + length, brokers + 1, (*path, other)))
    return reached
