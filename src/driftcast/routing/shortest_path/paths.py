"""Distances over the links of the moment, found anew only when links have changed."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from driftcast.model import NodeId
from driftcast.protocol import GlobalView


class Hop(NamedTuple):
    """How far a node is, and the neighbor over which the way to it begins."""

    distance: int
    first: NodeId


def paths_from(node: NodeId, neighbors: "Links") -> dict[NodeId, Hop]:
    """Breadth first: the shortest way to each node that can be reached; of equal ones the one found first."""
    found = {node: Hop(0, node)}
    edge: list[NodeId] = [node]
    distance = 0
    while edge:
        distance += 1
        following: list[NodeId] = []
        for at in edge:
            first = found[at].first
            for other in neighbors[at]:
                if other not in found:
                    found[other] = Hop(distance, other if at == node else first)
                    following.append(other)
        edge = following
    return found


class Links:
    """The links of all nodes, as they were when somebody last looked."""

    def __init__(self, view: GlobalView, nodes: Sequence[NodeId]) -> None:
        self._view = view
        self._nodes = nodes
        self._now: dict[NodeId, tuple[NodeId, ...]] = {}

    def __getitem__(self, node: NodeId) -> tuple[NodeId, ...]:
        return self._now.get(node, ())

    def changed(self) -> bool:
        """Look again; whether anything is otherwise than before."""
        now = {node: tuple(self._view.neighbors(node)) for node in self._nodes}
        if now == self._now:
            return False
        self._now = now
        return True


class Distances:
    """What one or several nodes know of the ways to all others; computed for a node when it is first asked about."""

    def __init__(self, view: GlobalView, nodes: Sequence[NodeId]) -> None:
        self._links = Links(view, nodes)
        self._from: dict[NodeId, dict[NodeId, Hop]] = {}
        self.changes = 0
        """How often links were found changed."""

    def look(self) -> bool:
        """See whether links have changed; what was computed is forgotten if they have."""
        if not self._links.changed():
            return False
        self._from.clear()
        self.changes += 1
        return True

    def paths(self, node: NodeId) -> dict[NodeId, Hop]:
        """The ways from a node, as of the last look."""
        paths = self._from.get(node)
        if paths is None:
            paths = self._from[node] = paths_from(node, self._links)
        return paths

    def hops(self, node: NodeId, target: NodeId) -> int | None:
        """How far a node is from another; None if there is no way."""
        hop = self.paths(node).get(target)
        return None if hop is None else hop.distance

    def nearest(self, node: NodeId, targets: Iterable[NodeId]) -> list[tuple[int, NodeId]]:
        """Those of some nodes that can be reached, the nearest first, of equally near ones the lower id."""
        paths = self.paths(node)
        return sorted((paths[target].distance, target) for target in targets if target in paths and target != node)
