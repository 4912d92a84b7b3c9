"""Custody: a node lets go of an event that it promised to keep when another has confirmed that it keeps it now.

The event travels as `Entrusted`. Its receiver answers `Custody` if it keeps the event in its own retention log on the
same terms; what a node sends leaves it after its commit, so the event is on the receiver's disk by then. A node without
a log, or without room in it, confirms nothing, and the sender keeps the event. An event is entrusted to nobody who has
met it before, so two nodes never entrust it to each other.
"""

from math import inf

from carrycast.core.model import EventId, NodeId


class PendingCustody:
    """Events that were entrusted to neighbors, which have not confirmed their custody."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._open: dict[tuple[NodeId, EventId], tuple[float, int]] = {}
        """Until when each is waited for, and how many copies come back."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, neighbor: NodeId, id: EventId, copies: int) -> None:
        """It is on its way to a neighbor; what confirms it may come before the link says that it has arrived."""
        self._open[neighbor, id] = inf, copies

    def arrive(self, now: float, neighbor: NodeId, id: EventId) -> None:
        """The neighbor has received it, and has so long to confirm it."""
        if (neighbor, id) in self._open:
            self._open[neighbor, id] = now + self._wait_s, self._open[neighbor, id][1]

    def end(self, neighbor: NodeId, id: EventId) -> int | None:
        """The neighbor keeps it now, or did not receive it: how many copies that is about; None if it is not open."""
        found = self._open.pop((neighbor, id), None)
        return None if found is None else found[1]

    def give_up(self, now: float, gone: NodeId | None = None) -> list[tuple[NodeId, EventId, int]]:
        """What is not waited for any longer, all of a neighbor that has gone: of whom, what, and how many copies."""
        over = [key for key, (due, _) in self._open.items() if due <= now or key[0] == gone]
        return [(*key, self._open.pop(key)[1]) for key in over]

    def forget(self, id: EventId) -> None:
        """It is kept here no longer."""
        for key in [key for key in self._open if key[1] == id]:
            del self._open[key]
