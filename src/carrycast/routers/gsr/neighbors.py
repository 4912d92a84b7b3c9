"""The neighbors of a node and their last known positions, until they expire."""

from carrycast.core.model import NodeId, Position
from carrycast.core.parts import distance_m


class StreetNeighbors:
    """Positions by neighbor, in the order of their arrival."""

    def __init__(self, expiry_s: float, max_neighbors: int) -> None:
        self._expiry_s = expiry_s
        self._max_neighbors = max_neighbors
        self._entries: dict[NodeId, tuple[Position, float]] = {}

    def __contains__(self, node: object) -> bool:
        return node in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def update(self, now: float, node: NodeId, position: Position) -> bool:
        """Store a position. False if the table is full."""
        if node not in self._entries:
            self.remove_expired(now)
            if len(self._entries) >= self._max_neighbors:
                return False
        self._entries[node] = (position, now + self._expiry_s)
        return True

    def remove(self, node: NodeId) -> None:
        """Remove a neighbor that cannot be reached."""
        self._entries.pop(node, None)

    def remove_expired(self, now: float) -> None:
        """Remove the neighbors that were not heard for too long."""
        for node in [node for node, (_, expires_at) in self._entries.items() if expires_at <= now]:
            del self._entries[node]

    def position(self, node: NodeId) -> Position:
        """The last known position of a neighbor."""
        return self._entries[node][0]

    def positions(self) -> list[Position]:
        """The last known positions of all neighbors."""
        return [position for position, _ in self._entries.values()]

    def find_nearest(self, point: Position) -> tuple[float, NodeId] | None:
        """The distance and id of the neighbor nearest to a point; of equals the lowest id."""
        return min(((distance_m(position, point), node) for node, (position, _) in self._entries.items()), default=None)
