"""Events that a node has asked for and does not have yet: of whom, until when, and who else has offered them."""

from collections.abc import Iterable

from carrycast.core.model import EventId, NodeId


class Asks:
    """Of one node."""

    def __init__(self, again_s: float) -> None:
        self._again_s = again_s
        self._asked: dict[EventId, tuple[float, dict[NodeId, None]]] = {}
        """What is asked for: until when, of whom (the first), and who else has offered it."""
        self._unheard: dict[tuple[NodeId, EventId], None] = {}
        """Asks that failed: who has offered it is asked again, after all others."""

    def __bool__(self) -> bool:
        return bool(self._asked)

    def note_offer(self, neighbor: NodeId, id: EventId) -> bool:
        """A neighbor has an event: whether it was asked of another, so that it need not be asked for now."""
        if id not in self._asked or next(iter(self._asked[id][1])) == neighbor:
            return False
        self._asked[id][1][neighbor] = None
        return True

    def add(self, now: float, neighbor: NodeId, ids: Iterable[EventId]) -> None:
        """These are asked of a neighbor."""
        for id in ids:
            others = self._asked[id][1] if id in self._asked else {}
            self._asked[id] = (now + self._again_s, {neighbor: None, **others})

    def fail(self, neighbor: NodeId, ids: Iterable[EventId]) -> None:
        """The neighbor did not get the message that asks for these."""
        self._unheard.update(dict.fromkeys((neighbor, id) for id in ids if id in self._asked))

    def arrive(self, id: EventId) -> None:
        """It need not be asked for any more."""
        asked = self._asked.pop(id, None)
        for offerer in () if asked is None else asked[1]:
            self._unheard.pop((offerer, id), None)

    def overdue(self, now: float) -> list[EventId]:
        """What should have come by now."""
        return [id for id, (due, _) in self._asked.items() if due <= now]

    def offered_by(self, neighbor: NodeId) -> list[EventId]:
        """What was asked of a neighbor or may be."""
        return [id for id, (_, offerers) in self._asked.items() if neighbor in offerers]

    def others(self, ids: Iterable[EventId], gone: NodeId | None) -> dict[NodeId, dict[EventId, None]]:
        """Who was asked has gone or has not answered: who is to be asked instead, of those that have offered it too."""
        of: dict[NodeId, dict[EventId, None]] = {}
        for id in ids:
            _, offerers = self._asked[id]
            asked = next(iter(offerers))
            offerers.pop(asked if gone is None else gone, None)
            if gone is not None and gone != asked:
                continue
            if self._unheard.pop((asked, id), False) is None and gone is None:
                offerers[asked] = None
            if offerers:
                of.setdefault(next(iter(offerers)), {})[id] = None
            else:
                del self._asked[id]
        return of
