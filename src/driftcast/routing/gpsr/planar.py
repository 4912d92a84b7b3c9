"""The planar graph [GPSR00 §2.2]: which neighbors remain when no two edges may cross, as one node sees it.

Both rules leave out an edge if there is a third node, a witness, through which the way is made of two shorter edges; so
what is connected stays connected.
"""

from collections.abc import Mapping
from typing import Literal

from driftcast.model import NodeId, Position
from driftcast.routing.gpsr.geometry import facing, is_shorter

Rule = Literal["gabriel", "rng"]


Edge = tuple[NodeId, Position]
"""To a neighbor, and where that is."""


def planar(node: NodeId, here: Position, neighbors: Mapping[NodeId, Position], rule: Rule) -> list[Edge]:
    """The edges of one node, ordered by the neighbors' ids.

    Of nodes at one place the one with the lowest id stands for all, and the others have an edge to it alone.
    """
    by_place: dict[Position, NodeId] = {here: node}
    for other, where in neighbors.items():
        if where not in by_place or other < by_place[where]:
            by_place[where] = other
    if by_place[here] != node:
        return [(by_place[here], here)]
    del by_place[here]
    kept = [(other, where) for where, other in by_place.items() if _is_kept(here, where, by_place, rule)]
    return sorted(kept)


def _is_kept(u: Position, v: Position, others: Mapping[Position, NodeId], rule: Rule) -> bool:
    for w in others:
        if w == v:
            continue
        # Gabriel: |uw|^2 + |wv|^2 <= |uv|^2, w in the circle over uv. With a witness on the circle the edge goes too,
        # or both diagonals of a square would stay, and cross.
        if facing(w, u, v) <= 0:
            return False
        # RNG: max(|uw|, |wv|) < |uv|.
        if rule == "rng" and is_shorter(u, w, u, v) and is_shorter(w, v, u, v):
            return False
    return True
