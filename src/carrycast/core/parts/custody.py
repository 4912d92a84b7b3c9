"""Custody transfer (RFC 4838, 3.10): a node deletes a guaranteed event once another node has accepted custody of it.

The event travels as `CustodyTransfer`. The receiver answers with a `CustodySignal` if it keeps the event in its own
retention log with the same guarantee. Messages leave a node after its commit, so by then the event is on the receiver's
disk. A node without a log, or without room in it, does not answer, and the sender keeps the event. Custody is never
offered to a node that has received the event before, so two nodes cannot transfer it to each other.
"""

from math import inf

from carrycast.core.model import EventId, NodeId


class PendingCustody:
    """Custody transfers that neighbors have not yet accepted."""

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self._open: dict[tuple[NodeId, EventId], tuple[float, int]] = {}
        """The deadline of each transfer, and its number of copies."""

    def __bool__(self) -> bool:
        return bool(self._open)

    def add(self, neighbor: NodeId, id: EventId, copies: int) -> None:
        """A transfer starts. The custody signal may arrive before the link's acknowledgement."""
        self._open[neighbor, id] = inf, copies

    def arrive(self, now: float, neighbor: NodeId, id: EventId) -> None:
        """The neighbor has received the event; the time to accept custody starts."""
        if (neighbor, id) in self._open:
            self._open[neighbor, id] = now + self._wait_s, self._open[neighbor, id][1]

    def end(self, neighbor: NodeId, id: EventId) -> int | None:
        """End a transfer, accepted or failed: its number of copies; None if there is no such transfer."""
        found = self._open.pop((neighbor, id), None)
        return None if found is None else found[1]

    def give_up(self, now: float, gone: NodeId | None = None) -> list[tuple[NodeId, EventId, int]]:
        """End the expired transfers, and all to a neighbor that is gone: (neighbor, event, copies) of each."""
        over = [key for key, (due, _) in self._open.items() if due <= now or key[0] == gone]
        return [(*key, self._open.pop(key)[1]) for key in over]

    def forget(self, id: EventId) -> None:
        """The event is no longer carried here."""
        for key in [key for key in self._open if key[1] == id]:
            del self._open[key]
