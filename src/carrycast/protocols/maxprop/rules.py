"""The formulas of MaxProp [Burgess, Gallagher, Jensen, Levine, "MaxProp: Routing for Vehicle-Based Disruption-Tolerant
Networks", INFOCOM 2006]. [ONE] is the implementation in the simulator ONE, `MaxPropRouter`.
"""

import heapq
from collections.abc import Mapping, Sequence
from math import inf

from carrycast.core.model import NodeId


def update_likelihoods(likelihoods: Mapping[NodeId, float], met: NodeId, alpha: float) -> dict[NodeId, float]:
    """Incremental averaging: the likelihood of the node that was met grows by 1, then all are divided by their sum.

    With an `alpha` other than 1 it grows by that (Karvo and Ott, "Time Scales and Delay-Tolerant Routing Protocols",
    CHANTS 2008).
    """
    grown = {**likelihoods, met: likelihoods.get(met, 0.0) + alpha}
    total = sum(grown.values())
    return {node: value / total for node, value in grown.items()}


def find_path_costs(vectors: Mapping[NodeId, Mapping[NodeId, float]], start: NodeId) -> dict[NodeId, float]:
    """The cost of the cheapest path from a node to each other: the sum of 1 - f over its links, where f is the
    likelihood that the one end of the link meets the other next."""
    costs: dict[NodeId, float] = {}
    queue = [(0.0, start)]
    while queue:
        cost, node = heapq.heappop(queue)
        if node in costs:
            continue
        costs[node] = cost
        for other, likelihood in vectors.get(node, {}).items():
            if other not in costs:
                heapq.heappush(queue, (cost + 1.0 - likelihood, other))
    return costs


def count_prioritized(transferred: float, capacity: int) -> float:
    """The part p of a buffer b that is ordered by hop counts, by the average x that is transferred at a contact:
    x if x < b / 2, min(x, b - x) if b / 2 <= x < b, and nothing if x >= b."""
    if transferred < capacity / 2:
        return transferred
    return min(transferred, capacity - transferred) if transferred < capacity else 0.0


def find_threshold(hops: Sequence[int], prioritized: float) -> int:
    """The hop count below which events are ordered by their hop counts. [ONE] It is one more than that of the event
    with which the part is full; 0 if the part is empty."""
    if not hops or prioritized <= 0.0:
        return 0
    ordered = sorted(hops)
    filled = min(len(ordered), max(1, -int(-prioritized // 1)))
    return ordered[filled - 1] + 1


def rank(hops: int, cost: float, threshold: int) -> tuple[int, float, int]:
    """The place of an event in the order of transmission; events are dropped in the opposite order. Events below the
    threshold come first, by their hop counts, then the others, by their costs."""
    return (0, float(hops), 0) if hops < threshold else (1, min(cost, inf), hops)
