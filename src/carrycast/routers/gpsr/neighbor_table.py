"""The neighbor table [GPSR00 §2.1]: the last known position of each neighbor, until its entry expires."""

from collections.abc import Iterator

from carrycast.core.model import NodeId, Position, Velocity


class NeighborEntry:
    """A neighbor, as of its last beacon or packet."""

    __slots__ = ("expires_at", "heard_at", "position", "velocity")

    def __init__(self, position: Position, velocity: Velocity | None, heard_at: float, expires_at: float) -> None:
        self.position = position
        self.velocity = velocity
        self.heard_at = heard_at
        self.expires_at = expires_at


class NeighborTable:
    """Neighbors by id, in the order of their arrival. `version` grows with each change."""

    def __init__(self, expiry_s: float, max_neighbors: int) -> None:
        self.version = 0
        self._expiry_s = expiry_s
        self._max_neighbors = max_neighbors
        self._entries: dict[NodeId, NeighborEntry] = {}
        self._next_expiry = float("inf")
        """No entry expires earlier than this."""

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._entries)

    def __contains__(self, node: object) -> bool:
        return node in self._entries

    def update(self, now: float, node: NodeId, position: Position, velocity: Velocity | None) -> bool | None:
        """Store the position that a neighbor has reported. True if the neighbor is new, None if the table is full."""
        entry = self._entries.get(node)
        expires_at = now + self._expiry_s
        if entry is not None:
            if velocity is not None or entry.velocity is not None or entry.position != position:
                self.version += 1
            # `_next_expiry` stays a lower bound, since this entry expires later than before.
            entry.position, entry.velocity, entry.heard_at, entry.expires_at = position, velocity, now, expires_at
            return False
        if len(self._entries) >= self._max_neighbors:
            return None
        self._entries[node] = NeighborEntry(position, velocity, now, expires_at)
        self.version += 1
        self._next_expiry = min(self._next_expiry, expires_at)
        return True

    def remove(self, node: NodeId) -> bool:
        """Remove a neighbor that cannot be reached; False if it is not in the table."""
        if self._entries.pop(node, None) is None:
            return False
        self.version += 1
        return True

    def remove_expired(self, now: float) -> None:
        """Remove the neighbors that were not heard for too long."""
        if now < self._next_expiry:
            return
        for node in [node for node, entry in self._entries.items() if entry.expires_at <= now]:
            del self._entries[node]
            self.version += 1
        self._next_expiry = min((entry.expires_at for entry in self._entries.values()), default=float("inf"))

    def velocity(self, node: NodeId) -> Velocity | None:
        """The last reported velocity of a neighbor."""
        entry = self._entries.get(node)
        return None if entry is None else entry.velocity

    def position(self, now: float, node: NodeId) -> Position:
        """The current position of a neighbor: the reported one, moved by dead reckoning if the velocity is known."""
        return _estimate_position(self._entries[node], now)

    def positions(self, now: float) -> dict[NodeId, Position]:
        """The current positions of all neighbors."""
        return {node: _estimate_position(entry, now) for node, entry in self._entries.items()}

    def find_nearest(self, now: float, destination: Position) -> tuple[float, NodeId] | None:
        """The neighbor nearest to a position, and its squared distance; of equals the lowest id."""
        best: tuple[float, NodeId] | None = None
        destination_x, destination_y = destination
        for node, entry in self._entries.items():
            node_x, node_y = entry.position if entry.velocity is None else _estimate_position(entry, now)
            x, y = node_x - destination_x, node_y - destination_y
            distance_m2 = x * x + y * y
            if best is None or distance_m2 < best[0] or (distance_m2 == best[0] and node < best[1]):
                best = (distance_m2, node)
        return best

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """1 for a neighbor; of other nodes a geographic router knows no distance. The table does not change."""
        entry = self._entries.get(target)
        return 1 if entry is not None and entry.expires_at > now else None


def _estimate_position(entry: NeighborEntry, now: float) -> Position:
    if entry.velocity is None:
        return entry.position
    return dead_reckon(entry.position, entry.velocity, now - entry.heard_at)


def dead_reckon(position: Position, velocity: Velocity, elapsed_s: float) -> Position:
    """The position after moving at constant velocity."""
    return Position(position.x_m + velocity.x_mps * elapsed_s, position.y_m + velocity.y_mps * elapsed_s)
