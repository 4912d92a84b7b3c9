"""Over which links an event goes on: those known to lead to subscribers first, then promising ones, then random ones.

The forwarding rule of semi-probabilistic routing and of its adaptive successor [004 §2.3.1].
"""

from collections.abc import Mapping, Set
from math import ceil
from random import Random

from carrycast.core.model import NodeId

ROUNDING = 1e-9
"""0.1 times 30 is a little more than 3 in floating point, and must not count as 4 links."""


def quota(tau: float, links: int) -> int:
    """[004 §2.3.1] f̄ = ⌈τ L⌉: how many of the links that an event may take it takes."""
    return ceil(tau * links - ROUNDING)


def allowed_links(links: list[NodeId], sender: NodeId | None, holders: Set[NodeId] | None) -> list[NodeId]:
    """[004 §2.3.1] The links that an event may take: not the one it came from, nor one to a known holder."""
    allowed = links.copy()
    if sender is not None and sender in allowed:
        allowed.remove(sender)
    return allowed if holders is None else [neighbor for neighbor in allowed if neighbor not in holders]


def by_distance(links: list[NodeId], nearest: Mapping[NodeId, int]) -> tuple[list[NodeId], list[NodeId], list[NodeId]]:
    """Links that are subscribers themselves, those that lead to some (nearest first), and the others.

    `nearest` has the hops to the nearest subscriber over a link. Links that lead equally near keep their order.
    """
    if not nearest:
        return [], [], links
    leading = [neighbor for neighbor in nearest if neighbor in links]
    if len(leading) > 1:
        leading.sort(key=links.index)
    adjacent = [neighbor for neighbor in leading if nearest[neighbor] == 1]
    nearby: list[NodeId] = []
    if len(adjacent) < len(leading):
        nearby = [neighbor for neighbor in leading if nearest[neighbor] > 1]
        nearby.sort(key=nearest.__getitem__)
    return adjacent, nearby, [neighbor for neighbor in links if neighbor not in nearest]


def chosen_links(
    wanted: int,
    adjacent: list[NodeId],
    nearby: list[NodeId],
    predicted: list[NodeId],
    others: list[NodeId],
    rng: Random,
) -> list[NodeId]:
    """[004 §2.3.1] The links to use, in the order of the rule; no link is in more than one of the four.

    Step 1a: all that are themselves subscribers (`adjacent`), whatever the quota. Step 1b: while fewer than `wanted`
    are in use, those that lead to subscribers within the horizon (`nearby`, nearest first). Step 2: those predicted to
    lead to them (`predicted`, best first). Step 3: random ones of the rest (`others`).
    """
    missing = wanted - len(adjacent)
    if missing <= 0:
        return adjacent
    chosen = adjacent + nearby[:missing]
    missing = wanted - len(chosen)
    if missing > 0:
        chosen += predicted[:missing]
        missing = wanted - len(chosen)
        if missing > 0:
            chosen += rng.sample(others, missing) if missing < len(others) else others
    return chosen
