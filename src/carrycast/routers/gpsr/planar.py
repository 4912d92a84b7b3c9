"""The planar graph [GPSR00 §2.2]: which neighbors remain when no two edges may cross, as one node sees it.

Both rules leave out an edge if there is a third node, a witness, through which the way is made of two shorter edges; so
what is connected stays connected.
"""

from collections.abc import Mapping
from typing import Literal

from carrycast.core.model import NodeId, Position
from carrycast.routers.gpsr.geometry import CLEARLY, TINY, facing, is_shorter, square_m2

Rule = Literal["gabriel", "rng"]


Edge = tuple[NodeId, Position]
"""To a neighbor, and where that is."""
_ABOUT = 1 + 1e-9


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
    ranked = sorted((square_m2(here, where), other, where) for where, other in by_place.items())
    is_rng = rule == "rng"
    return sorted((other, where) for away_m2, other, where in ranked if _is_kept(here, where, away_m2, ranked, is_rng))


def _is_kept(u: Position, v: Position, away_m2: float, ranked: list[tuple[float, NodeId, Position]], rng: bool) -> bool:
    (ux, uy), (vx, vy) = u, v
    # By either rule a witness is nearer than v; what rounding may have done to squares is far less than this.
    most_m2 = away_m2 * _ABOUT
    for near_m2, _, w in ranked:
        if near_m2 > most_m2:
            break
        if w is v:
            continue
        # Gabriel: |uw|^2 + |wv|^2 <= |uv|^2, w in the circle over uv. With a witness on the circle the edge goes too,
        # or both diagonals of a square would stay, and cross.
        wx, wy = w
        # What is clear, as it mostly is, is seen without a call.
        found = (one := (ux - wx) * (vx - wx)) + (other := (uy - wy) * (vy - wy))
        unclear = CLEARLY * (abs(one) + abs(other)) + TINY
        if found <= unclear and (found < -unclear or facing(w, u, v) <= 0):
            return False
        # RNG: max(|uw|, |wv|) < |uv|.
        if rng and is_shorter(u, w, u, v) and is_shorter(w, v, u, v):
            return False
    return True
