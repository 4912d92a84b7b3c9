"""Replication acknowledgement: the neighbors known to hold an event whose publisher waits for replicas."""

from collections.abc import Collection

from carrycast.core.model import EventId, NodeId


class KnownReplicas:
    """The known holders of each event whose publisher waits, until there are enough."""

    def __init__(self) -> None:
        self._known: dict[EventId, dict[NodeId, None]] = {}
        self._copies: dict[EventId, int] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, id: EventId) -> bool:
        return id in self._known

    def count(self, id: EventId, copies: int) -> None:
        """A publisher waits for `copies` replicas of an event."""
        self._known[id] = {}
        self._copies[id] = copies

    def forget(self, id: EventId) -> None:
        """Stop counting the replicas of an event."""
        self._known.pop(id, None)
        self._copies.pop(id, None)

    def add(self, id: EventId, neighbor: NodeId) -> bool:
        """A neighbor holds an event; True if that is a new replica of a counted event."""
        known = self._known.get(id)
        if known is None or neighbor in known:
            return False
        known[neighbor] = None
        if len(known) >= self._copies[id]:
            self.forget(id)
        return True

    def find_holders(self, id: EventId) -> Collection[NodeId]:
        """The known holders of a counted event."""
        return self._known[id]

    def count_missing(self, id: EventId) -> int:
        """The number of replicas still missing of a counted event."""
        return self._copies[id] - len(self._known[id])

    def find_unconfirmed(self, neighbor: NodeId) -> list[EventId]:
        """The counted events that a neighbor is not known to hold."""
        return [id for id, known in self._known.items() if neighbor not in known]
