"""Which neighbors are known to hold an event that somebody waits for to be held by several."""

from collections.abc import Collection

from carrycast.core.model import EventId, NodeId


class KnownReplicas:
    """Of each event that is counted, who holds it, until enough do."""

    def __init__(self) -> None:
        self._known: dict[EventId, dict[NodeId, None]] = {}
        self._copies: dict[EventId, int] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def __contains__(self, id: EventId) -> bool:
        return id in self._known

    def count(self, id: EventId, copies: int) -> None:
        """From now on."""
        self._known[id] = {}
        self._copies[id] = copies

    def forget(self, id: EventId) -> None:
        """No longer."""
        self._known.pop(id, None)
        self._copies.pop(id, None)

    def add(self, id: EventId, neighbor: NodeId) -> bool:
        """A neighbor holds it; whether that is worth telling."""
        known = self._known.get(id)
        if known is None or neighbor in known:
            return False
        known[neighbor] = None
        if len(known) >= self._copies[id]:
            self.forget(id)
        return True

    def known(self, id: EventId) -> Collection[NodeId]:
        """Who is known to hold it, while it is counted."""
        return self._known[id]

    def missing(self, id: EventId) -> int:
        """How many more are to be found, while it is counted."""
        return self._copies[id] - len(self._known[id])

    def unknown(self, neighbor: NodeId) -> list[EventId]:
        """What a neighbor may hold and has not said so."""
        return [id for id, known in self._known.items() if neighbor not in known]
