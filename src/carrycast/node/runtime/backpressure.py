"""Backpressure: publishers are as fast as neighbors take what they publish, where the protocol can tell.

Neighbors ask for events when they have time for them, so no queue of a link shows that a publisher is faster: what they
have not asked for waits in the protocol's buffer, and makes room there for what comes. So one event of several is
counted, as those are whose publishers wait for copies. While `MARKS` of these are held by nobody else the node is busy.
The events up to a mark are a part of what the buffer holds, in events and in bytes, so that publishers wait before
anything has to make room; the first marks are closer together, so that they wait before the first event is taken, too.

A node without neighbors, or whose neighbors have nothing to receive and take nothing, does not wait for them.
"""

import asyncio

from carrycast.core.model import EventId
from carrycast.core.protocol import AcknowledgesReplicas, KeepsEvents
from carrycast.node.runtime.runtime import Runtime

MARKS = 8
"""So many counted events may be held by nobody else."""
FIRST_EVENTS = 16
"""Up to the first mark, where the buffer holds enough: a few events now and then need no backpressure."""
MOST_EVENTS = 128
"""From mark to mark, at the most: a thousand events under way are more than links and nodes take in the time that an
answer needs."""
BUFFER_PART = 4
"""All events up to the last mark fit so many times into what the buffer holds of events that nobody was promised."""
PATIENCE_S = 5.0
"""For how long neighbors may take nothing while no message is under way to them: they have asked for all they want.
Those that do not answer are given up by their link before."""
LONGEST_S = 15.0
"""For how long they may take nothing at all, whatever is under way: publishers are refused after 20 s, and nobody is to
be refused again and again for neighbors that do not want its events."""


class Backpressure:
    """Of one node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        protocol = runtime.protocol
        self._keeps = (
            protocol if isinstance(protocol, AcknowledgesReplicas) and isinstance(protocol, KeepsEvents) else None
        )
        self._events = self._bytes = 0
        """Published since the last mark."""
        self._spacing = FIRST_EVENTS
        """Events up to the next mark, where the buffer holds many."""
        self._marks: dict[EventId, None] = {}
        """Counted and not known to be held by others, the oldest first."""
        self._taken_s = self._busy_s = self._loop.time()
        """When a neighbor last took a counted event, and when a message was last seen under way."""

    @property
    def _most_marks(self) -> int:
        """With a buffer of very few events, fewer."""
        assert self._keeps is not None
        return min(MARKS, max(1, self._keeps.room.events // BUFFER_PART))

    @property
    def _step(self) -> int:
        """Events up to the next mark."""
        assert self._keeps is not None
        return min(self._spacing, max(1, self._keeps.room.events // (MARKS * BUFFER_PART)))

    def on_published(self, event: EventId, length_bytes: int) -> None:
        """An event has gone to the protocol."""
        if self._keeps is None:
            return
        self._events += 1
        self._bytes += length_bytes
        if self._events < self._step and self._bytes < self._keeps.room.length_bytes / (MARKS * BUFFER_PART):
            return
        self._events = self._bytes = 0
        if not self._has_links:
            self._spacing = FIRST_EVENTS
            return
        self._spacing = min(2 * self._spacing, MOST_EVENTS)
        if not self._marks:
            self._taken_s = self._loop.time()
        if len(self._marks) >= self._most_marks:
            # Nobody waits for these any more; of newer ones it shows whether somebody takes events again.
            del self._marks[next(iter(self._marks))]
        self._marks[event] = None
        self._runtime.on_await_replicas(self._runtime.now, event, 1)

    def on_held(self, event: EventId) -> None:
        """A neighbor has it, and has had the time for those before it."""
        if event in self._marks:
            self._taken_s = self._loop.time()
            while next(iter(self._marks)) != event:
                del self._marks[next(iter(self._marks))]
            del self._marks[event]

    def is_behind(self, more: int = 0) -> bool:
        """Whether neighbors take what is published, and more slowly than it is, or would be with `more` events."""
        if self._keeps is None or not (self._marks or more):
            return False
        left = self._most_marks - len(self._marks)
        if left > 0 and (not more or self._events + more < left * self._step):
            return False
        if not self._has_links:
            self._marks.clear()
            return False
        if left > 0:
            # A batch is not published in one go over the whole of what is left.
            return True
        now_s = self._loop.time()
        if any(interface.waiting for interface in self._runtime.interfaces.values()):
            self._busy_s = now_s
        return now_s - max(self._taken_s, self._busy_s) <= PATIENCE_S and now_s - self._taken_s <= LONGEST_S

    @property
    def _has_links(self) -> bool:
        return any(interface.neighbors for interface in self._runtime.interfaces.values())
