"""The tree links of one node: its eager and its lazy neighbors, and the announcements of events that it is missing."""

from collections.abc import Iterator

from carrycast.core.model import EventId, NodeId

MAX_MISSING = 65_536
"""Events of which a node remembers announcements. It bounds the memory that forged announcements can use."""


class TreeLinks:
    """The eager and the lazy neighbors [Alg. 1], in order of appearance."""

    __slots__ = ("_eager",)

    def __init__(self) -> None:
        self._eager: dict[NodeId, bool] = {}
        """Whether each neighbor is eager."""

    def __contains__(self, neighbor: NodeId) -> bool:
        return neighbor in self._eager

    def add(self, neighbor: NodeId) -> None:
        """[Alg. 3] NeighborUp: new neighbors are eager."""
        self._eager[neighbor] = True

    def remove(self, neighbor: NodeId) -> None:
        """[Alg. 3] NeighborDown."""
        self._eager.pop(neighbor, None)

    def set_eager(self, neighbor: NodeId) -> None:
        """The link belongs to the tree."""
        if neighbor in self._eager:
            self._eager[neighbor] = True

    def set_lazy(self, neighbor: NodeId) -> None:
        """The link does not belong to the tree."""
        if neighbor in self._eager:
            self._eager[neighbor] = False

    def eager(self, without: NodeId | None = None) -> list[NodeId]:
        """The eager neighbors."""
        return [neighbor for neighbor, eager in self._eager.items() if eager and neighbor != without]

    def lazy(self, without: NodeId | None = None) -> list[NodeId]:
        """The lazy neighbors."""
        return [neighbor for neighbor, eager in self._eager.items() if not eager and neighbor != without]


class MissingEvents:
    """The announcements of events that have not arrived [Alg. 2, "missing"], the oldest first."""

    __slots__ = ("_announcements",)

    def __init__(self) -> None:
        self._announcements: dict[EventId, dict[NodeId, int]] = {}

    def __contains__(self, event: EventId) -> bool:
        return event in self._announcements

    def __iter__(self) -> Iterator[EventId]:
        return iter(self._announcements)

    def add(self, event: EventId, neighbor: NodeId, round: int) -> bool:
        """A neighbor announces an event; False if there are too many."""
        if event not in self._announcements and len(self._announcements) >= MAX_MISSING:
            return False
        self._announcements.setdefault(event, {})[neighbor] = round
        return True

    def take_first(self, event: EventId) -> NodeId | None:
        """[Alg. 2] removeFirstAnnouncement: the neighbor that announced an event first. None if there is no other, and
        the event is forgotten."""
        of = self._announcements[event]
        if not of:
            del self._announcements[event]
            return None
        neighbor = next(iter(of))
        del of[neighbor]
        return neighbor

    def find_shortest(self, event: EventId) -> tuple[NodeId, int] | None:
        """The announcement with the lowest round."""
        of = self._announcements.get(event)
        return min(of.items(), key=lambda one: one[1]) if of else None

    def remove(self, event: EventId) -> bool:
        """The event has arrived; False if it was not announced."""
        return self._announcements.pop(event, None) is not None

    def remove_neighbor(self, neighbor: NodeId) -> None:
        """[Alg. 3] NeighborDown: its announcements are void."""
        for of in self._announcements.values():
            of.pop(neighbor, None)
