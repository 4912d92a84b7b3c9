"""Backpressure: publishers are as fast as neighbors take what they publish, where the protocol can tell.

Neighbors ask for events when they have time for them, so no queue of a link shows that a publisher is faster: what they
have not asked for waits in the protocol's buffer, and makes room there for what comes. So one event of several is
counted, as those are whose publishers wait for copies. While `MARKS` of these are held by nobody else the node is busy.
The events up to a mark are a part of what the buffer holds, in events and in bytes, so that publishers wait before
anything has to make room; the first marks are closer together, so that they wait from the first event on.

A node without neighbors, or whose neighbors have nothing to receive and take nothing, does not wait for them.
"""

import asyncio

from driftcast.live.host.runtime import Runtime
from driftcast.model import EventId
from driftcast.protocol import CountsHolders, KeepsEvents

MARKS = 8
"""So many counted events may be held by nobody else."""
MOST_EVENTS = 128
"""From mark to mark, at the most: a thousand events under way are more than links and nodes take in the time that an
answer needs."""
BUFFER_PART = 4
"""All events up to the last mark fit so many times into what the buffer holds of events that nobody was promised."""
PATIENCE_S = 5.0
"""For how long neighbors may take nothing while no message is under way to them: they have asked for all they want.
Those that do not answer are given up by their link before."""


class Pacing:
    """Of one node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        protocol = runtime.protocol
        self._keeps = protocol if isinstance(protocol, CountsHolders) and isinstance(protocol, KeepsEvents) else None
        self._events = self._bytes = 0
        """Published since the last mark."""
        self._spacing = 1
        """Events up to the next mark."""
        self._marks: dict[EventId, None] = {}
        """Counted and not known to be held by others, the oldest first."""
        self._progress_s = self._loop.time()
        """When a neighbor last took a counted event or a message was last under way."""

    def published(self, event: EventId, length_bytes: int) -> None:
        """An event has gone to the protocol."""
        if self._keeps is None:
            return
        self._events += 1
        self._bytes += length_bytes
        room = self._keeps.room
        parts = MARKS * BUFFER_PART
        if self._events < min(self._spacing, room.events // parts) and self._bytes < room.length_bytes / parts:
            return
        self._events = self._bytes = 0
        if not self._has_links:
            self._spacing = 1
            return
        self._spacing = min(2 * self._spacing, MOST_EVENTS)
        if not self._marks:
            self._progress_s = self._loop.time()
        if len(self._marks) >= MARKS:
            # Nobody waits for these any more; of newer ones it shows whether somebody takes events again.
            del self._marks[next(iter(self._marks))]
        self._marks[event] = None
        self._runtime.on_count(self._runtime.now, event, 1)

    def held(self, event: EventId) -> None:
        """A neighbor has it, and has had the time for those before it."""
        if event in self._marks:
            self._progress_s = self._loop.time()
            while next(iter(self._marks)) != event:
                del self._marks[next(iter(self._marks))]
            del self._marks[event]

    @property
    def behind(self) -> bool:
        """Whether neighbors take what is published, and more slowly than it is."""
        if len(self._marks) < MARKS:
            return False
        if not self._has_links:
            self._marks.clear()
            return False
        now_s = self._loop.time()
        if any(interface.waiting for interface in self._runtime.interfaces.values()):
            self._progress_s = now_s
        return now_s - self._progress_s <= PATIENCE_S

    @property
    def _has_links(self) -> bool:
        return any(interface.neighbors for interface in self._runtime.interfaces.values())
