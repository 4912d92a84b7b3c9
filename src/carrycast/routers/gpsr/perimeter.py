"""Perimeter mode [GPSR00 §2.3]: around a void along the faces of the planar graph, by the right-hand rule.

The faces are those that the line from where the mode was entered (Lp) to the target (D) cuts through. A packet walks
around a face until the next edge would cross that line nearer to D than the face was entered; there it goes on along
the next face. When it has come around a face without such an edge, the target is in that face or cannot be reached.
"""

from collections.abc import Sequence

from carrycast.core.model import NodeId, Position
from carrycast.routers.gpsr.geometry import Progress, crossing, first_met
from carrycast.routers.gpsr.messages import Tour
from carrycast.routers.gpsr.planar import Edge

START: Progress = (0.0, 0.0)


def next_edge(here: Position, edges: Sequence[Edge], toward: Position, straight_first: bool) -> Edge:
    """[GPSR00 §2.2] The first edge of this node counterclockwise from a direction."""
    return edges[first_met(here, toward, [where for _, where in edges], straight_first)]


def enter(node: NodeId, here: Position, edges: Sequence[Edge], goal: Position) -> tuple[NodeId, Tour]:
    """[GPSR00 §2.3] Lp = Lf = here; the first edge counterclockwise from the line to D, which is e0."""
    onward, _ = next_edge(here, edges, goal, straight_first=True)
    return onward, Tour(node, here, START, (node, onward))


def walk(
    node: NodeId, here: Position, edges: Sequence[Edge], came_from: Position, goal: Position, tour: Tour
) -> tuple[NodeId, Tour] | None:
    """[GPSR00 §2.3] The next edge of the face, or of the next face; None if the tour of this one is over."""
    onward, where = next_edge(here, edges, came_from, straight_first=False)
    progress = tour.progress
    for _ in edges:
        # The line begins at the entry, so none of its edges crosses it; it may seem so where somebody has moved.
        crossed = None if tour.entry in (node, onward) else crossing(tour.entered, goal, here, where)
        if crossed is None or crossed <= progress:
            break
        # The face changes: Lf, and past the edge that would have crossed.
        progress = crossed
        onward, where = next_edge(here, edges, where, straight_first=False)
    if progress != tour.progress:
        return onward, Tour(tour.entry, tour.entered, progress, (node, onward))
    if (node, onward) == tour.first:
        return None
    if tour.first[0] == node and all(other != tour.first[1] for other, _ in edges):
        # The first edge is gone, so nobody would notice the end of the tour.
        return onward, tour._replace(first=(node, onward))
    return onward, tour
