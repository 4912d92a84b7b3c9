"""Perimeter mode [GPSR00 §2.2, 2.3]: around a void along the faces of a planar graph, by the right-hand rule.

`router.py` decides when a packet switches to perimeter mode, and back to greedy mode.

Planarization by the Gabriel graph (GG) or the relative neighborhood graph (RNG) removes an edge if there is a witness:
a third node over which the path consists of two shorter edges. So the graph stays connected.

The packet traverses the faces that the line from Lp, where it entered perimeter mode, to the destination D intersects.
It follows a face until the next edge would cross that line nearer to D than Lf, where it entered the face; there it
changes to the next face. When it has toured a face without finding such an edge, D is in that face or unreachable.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from carrycast.core.model import NodeId, Position
from carrycast.routers.gpsr.geometry import (
    ERROR_BOUND,
    UNDERFLOW_BOUND,
    LinePoint,
    dot_sign,
    find_crossing,
    first_counterclockwise,
    is_shorter,
    squared_distance_m2,
)
from carrycast.routers.gpsr.messages import PerimeterHeader

Planarization = Literal["gabriel", "rng"]

Edge = tuple[NodeId, Position]
"""An edge from this node to a neighbor: the neighbor and its position."""

LINE_START: LinePoint = (0.0, 0.0)
_ROUNDING_MARGIN = 1 + 1e-9


def planarize(node: NodeId, here: Position, neighbors: Mapping[NodeId, Position], rule: Planarization) -> list[Edge]:
    """[GPSR00 §2.2] The edges of one node in the planar graph, ordered by the neighbors' ids.

    Of several nodes at one place the one with the lowest id represents all; the others have an edge only to it.
    """
    by_place: dict[Position, NodeId] = {here: node}
    for other, where in neighbors.items():
        if where not in by_place or other < by_place[where]:
            by_place[where] = other
    if by_place[here] != node:
        return [(by_place[here], here)]
    del by_place[here]
    ranked = sorted((squared_distance_m2(here, where), other, where) for where, other in by_place.items())
    is_rng = rule == "rng"
    return sorted(
        (other, where)
        for length_m2, other, where in ranked
        if not _must_remove_edge(here, where, length_m2, ranked, is_rng)
    )


def _must_remove_edge(
    u: Position, v: Position, length_m2: float, ranked: list[tuple[float, NodeId, Position]], is_rng: bool
) -> bool:
    """Whether the edge uv has a witness [GPSR00 §2.2] among the neighbors of u, which are ranked by distance."""
    (ux, uy), (vx, vy) = u, v
    # By either rule a witness is nearer to u than v. The margin is far above the rounding errors of squares.
    max_m2 = length_m2 * _ROUNDING_MARGIN
    for near_m2, _, w in ranked:
        if near_m2 > max_m2:
            break
        if w is v:
            continue
        # GG: |uw|^2 + |wv|^2 <= |uv|^2, so w is in the circle with the diameter uv. A witness on the circle removes the
        # edge too; otherwise both diagonals of a square would remain, and cross.
        wx, wy = w
        # `dot_sign`, inlined for the frequent case that rounding cannot matter.
        found = (one := (ux - wx) * (vx - wx)) + (other := (uy - wy) * (vy - wy))
        error = ERROR_BOUND * (abs(one) + abs(other)) + UNDERFLOW_BOUND
        if found <= error and (found < -error or dot_sign(w, u, v) <= 0):
            return True
        # RNG: max(|uw|, |wv|) < |uv|.
        if is_rng and is_shorter(u, w, u, v) and is_shorter(w, v, u, v):
            return True
    return False


def find_next_edge(here: Position, edges: Sequence[Edge], toward: Position, straight_first: bool) -> Edge:
    """[GPSR00 §2.2] The right-hand rule: the first edge of this node counterclockwise from a direction."""
    return edges[first_counterclockwise(here, toward, [where for _, where in edges], straight_first)]


def enter_perimeter(
    node: NodeId, here: Position, edges: Sequence[Edge], destination: Position
) -> tuple[NodeId, PerimeterHeader]:
    """[GPSR00 §2.3] Lp and Lf are here; e0 is the first edge counterclockwise from the line to D."""
    next_hop, _ = find_next_edge(here, edges, destination, straight_first=True)
    return next_hop, PerimeterHeader(node, here, LINE_START, (node, next_hop))


def follow_face(
    node: NodeId,
    here: Position,
    edges: Sequence[Edge],
    previous_hop: Position,
    destination: Position,
    header: PerimeterHeader,
) -> tuple[NodeId, PerimeterHeader] | None:
    """[GPSR00 §2.3] The next edge of the face, or of the next face; None if the packet has toured this face."""
    next_hop, where = find_next_edge(here, edges, previous_hop, straight_first=False)
    lf = header.lf
    for _ in edges:
        # The line begins at the entry node, so none of that node's edges crosses it, except if a node has moved.
        at_entry = header.entry_node in (node, next_hop)
        crossing = None if at_entry else find_crossing(header.lp, destination, here, where)
        if crossing is None or crossing <= lf:
            break
        # Change to the next face: set Lf, and skip the edge that crosses the line.
        lf = crossing
        next_hop, where = find_next_edge(here, edges, where, straight_first=False)
    if lf != header.lf:
        return next_hop, PerimeterHeader(header.entry_node, header.lp, lf, (node, next_hop))
    if (node, next_hop) == header.e0:
        return None
    if header.e0[0] == node and all(other != header.e0[1] for other, _ in edges):
        # e0 no longer exists, so the end of the tour would not be recognized.
        return next_hop, header._replace(e0=(node, next_hop))
    return next_hop, header
