"""Publishers are as fast as neighbors take what they publish, where the protocol can tell.

Neighbors ask for events when they have time for them, so no queue of a link shows that a publisher is faster: what has
not been asked for waits in the protocol's buffer, and is gone when that is full. So one event of many is counted, as
those are whose publishers wait for copies, and while several of these are held by nobody else, the node is busy. Who
has no neighbors, or none that takes anything, need not wait for them.
"""

import asyncio

from driftcast.live.host.runtime import Runtime
from driftcast.model import EventId
from driftcast.protocol import CountsHolders

MARK_EVERY = 128
"""One of so many is counted: that costs a question and an answer."""
MARKS = 8
"""So many of them may be under way: a thousand events, more than links and nodes take in the time that an answer needs,
and less than a buffer."""
PATIENCE_S = 5.0
"""Neighbors that have taken nothing for so long, and yet answer, are not waited for until they do. Those that do not
answer are given up by their link before."""


class Pacing:
    """Of one node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._counts = isinstance(runtime.protocol, CountsHolders)
        self._unmarked = 0
        self._marks: dict[EventId, None] = {}
        """Counted and not known to be held by others, the oldest first."""
        self._taken_s: float | None = None
        """When a neighbor last took one; None if that is too long ago."""

    def published(self, event: EventId) -> None:
        """An event has gone to the protocol."""
        self._unmarked += 1
        if self._unmarked >= MARK_EVERY and self._counts:
            self._unmarked = 0
            if self._runtime.links:
                if len(self._marks) >= MARKS:
                    del self._marks[next(iter(self._marks))]
                self._marks[event] = None
                self._runtime.on_count(self._runtime.now, event, 1)

    def held(self, event: EventId) -> None:
        """A neighbor has it, and has had the time for those before it."""
        if event in self._marks:
            self._taken_s = self._loop.time()
            while next(iter(self._marks)) != event:
                del self._marks[next(iter(self._marks))]
            del self._marks[event]

    @property
    def behind(self) -> bool:
        """Whether neighbors take what is published, and more slowly than it is."""
        if len(self._marks) < MARKS or self._taken_s is None:
            return False
        if self._loop.time() - self._taken_s > PATIENCE_S or not self._runtime.links:
            self._taken_s = None
            self._marks.clear()
            return False
        return True
