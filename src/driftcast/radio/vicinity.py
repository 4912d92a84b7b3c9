"""Who is within some distance of whom, each node with itself, as sets that change with the movement."""

from driftcast.model import NodeId


class Vicinity:
    """The surroundings of all nodes, fed by a contact plan of their range."""

    __slots__ = ("_around", "_others")

    def __init__(self, nodes: int) -> None:
        self._others: list[set[NodeId]] = [set() for _ in range(nodes)]
        self._around: list[frozenset[NodeId] | None] = [None] * nodes

    def around(self, node: NodeId) -> frozenset[NodeId]:
        """The node and everybody near it. Made once per change."""
        around = self._around[node]
        if around is None:
            around = self._around[node] = frozenset(self._others[node] | {node})
        return around

    def set_contact(self, a: NodeId, b: NodeId, up: bool) -> None:
        """Two nodes come close or part."""
        if up:
            self._others[a].add(b)
            self._others[b].add(a)
        else:
            self._others[a].discard(b)
            self._others[b].discard(a)
        self._around[a] = self._around[b] = None
