"""The neighbor table [GPSR00 §2.1]: who was heard, where, and until when that is good."""

from collections.abc import Iterator

from carrycast.core.model import NodeId, Position, Velocity


class Neighbor:
    """One that was heard."""

    __slots__ = ("heard", "position", "until", "velocity")

    def __init__(self, position: Position, velocity: Velocity | None, heard: float, until: float) -> None:
        self.position = position
        self.velocity = velocity
        self.heard = heard
        self.until = until


class NeighborTable:
    """Neighbors by id, in the order in which they came. `version` grows with each change."""

    def __init__(self, expiry_s: float, most: int) -> None:
        self.version = 0
        self._expiry_s = expiry_s
        self._most = most
        self._neighbors: dict[NodeId, Neighbor] = {}
        self._next_end = float("inf")
        """No neighbor expires before that."""

    def __len__(self) -> int:
        return len(self._neighbors)

    def __iter__(self) -> Iterator[NodeId]:
        return iter(self._neighbors)

    def __contains__(self, node: object) -> bool:
        return node in self._neighbors

    def learn(self, now: float, node: NodeId, position: Position, velocity: Velocity | None) -> bool | None:
        """A neighbor has said where it is. True if it is a new one, None if there is no room."""
        known = self._neighbors.get(node)
        until = now + self._expiry_s
        if known is not None:
            if velocity is not None or known.velocity is not None or known.position != position:
                self.version += 1
            # Its end was not before `_next_end`, and is later now.
            known.position, known.velocity, known.heard, known.until = position, velocity, now, until
            return False
        if len(self._neighbors) >= self._most:
            return None
        self._neighbors[node] = Neighbor(position, velocity, now, until)
        self.version += 1
        self._next_end = min(self._next_end, until)
        return True

    def known_velocity(self, node: NodeId) -> Velocity | None:
        """What a neighbor last said of its velocity."""
        known = self._neighbors.get(node)
        return None if known is None else known.velocity

    def forget(self, node: NodeId) -> bool:
        """A neighbor cannot be reached; False if it was none."""
        if self._neighbors.pop(node, None) is None:
            return False
        self.version += 1
        return True

    def expire(self, now: float) -> None:
        """Forget who was silent for too long."""
        if now < self._next_end:
            return
        for node in [node for node, known in self._neighbors.items() if known.until <= now]:
            del self._neighbors[node]
            self.version += 1
        self._next_end = min((known.until for known in self._neighbors.values()), default=float("inf"))

    def position(self, now: float, node: NodeId) -> Position:
        """Where a neighbor is now: where it was, moved on with the velocity that it told, if it did."""
        return _now_at(self._neighbors[node], now)

    def positions(self, now: float) -> dict[NodeId, Position]:
        """Where all of them are."""
        return {node: _now_at(known, now) for node, known in self._neighbors.items()}

    def nearest(self, now: float, goal: Position) -> tuple[float, NodeId] | None:
        """The neighbor nearest to a position, and the square of its distance; of equals the lowest id."""
        best: tuple[float, NodeId] | None = None
        goal_x, goal_y = goal
        for node, known in self._neighbors.items():
            where_x, where_y = known.position if known.velocity is None else _now_at(known, now)
            x, y = where_x - goal_x, where_y - goal_y
            away_m2 = x * x + y * y
            if best is None or away_m2 < best[0] or (away_m2 == best[0] and node < best[1]):
                best = (away_m2, node)
        return best

    def hops_to(self, now: float, target: NodeId) -> int | None:
        """1 for a neighbor; of others a geographic router knows nothing. It changes nothing."""
        known = self._neighbors.get(target)
        return 1 if known is not None and known.until > now else None


def _now_at(known: Neighbor, now: float) -> Position:
    return known.position if known.velocity is None else moved(known.position, known.velocity, now - known.heard)


def moved(position: Position, velocity: Velocity, time_s: float) -> Position:
    """Dead reckoning: straight on."""
    return Position(position.x_m + velocity.x_mps * time_s, position.y_m + velocity.y_mps * time_s)
