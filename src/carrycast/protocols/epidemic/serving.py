"""Answers to those who ask: many events go a batch at a time, each when the one before has arrived.

So a neighbor that lacks ten thousand events neither fills the queue of the link nor keeps others from theirs.
"""

from collections.abc import Iterable

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Token

BATCH = 256
"""Events under way to one neighbor. Three neighbors that catch up at the same time fit the queue of a live link, and a
batch is much longer than the moment until the next one begins."""
MOST = 4096
"""Ids that wait for one neighbor: several windows of one that asks for no more than it takes."""


class Serving:
    """Who waits for what."""

    def __init__(self) -> None:
        self._waiting: dict[NodeId, dict[EventId, None]] = {}
        """Of each neighbor that is being served: what comes after the batch under way."""
        self._batches: dict[Token, NodeId] = {}

    def asked(self, neighbor: NodeId, ids: Iterable[EventId]) -> tuple[list[EventId], bool]:
        """A neighbor asks: what to send at once, and whether to tell (`sent`) when the last of it has arrived. What is
        asked for again while it waits comes once."""
        waiting = self._waiting.get(neighbor)
        if waiting is not None:
            waiting.update(dict.fromkeys(list(ids)[: MOST - len(waiting)]))
            return [], False
        wanted = list(ids)
        if len(wanted) > BATCH:
            self._waiting[neighbor] = dict.fromkeys(wanted[BATCH:])
        return wanted[:BATCH], len(wanted) > BATCH

    def under_way(self, neighbor: NodeId, token: Token) -> None:
        """The last of a batch has this token."""
        self._batches[token] = neighbor

    def stop(self, neighbor: NodeId) -> None:
        """It does not get the rest; it asks again if it wants."""
        self._waiting.pop(neighbor, None)

    def sent(self, token: Token) -> tuple[NodeId, list[EventId], bool] | None:
        """A batch is over: to whom, what to send next, and whether more follows; None if it was no batch."""
        neighbor = self._batches.pop(token, None)
        if neighbor is None:
            return None
        waiting = self._waiting.get(neighbor)
        if waiting is None:
            return neighbor, [], False
        ids = list(waiting)[:BATCH]
        for id in ids:
            del waiting[id]
        if not waiting:
            del self._waiting[neighbor]
        return neighbor, ids, bool(waiting)
