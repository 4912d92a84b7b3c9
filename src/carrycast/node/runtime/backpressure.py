"""Backpressure: publishers are slowed down to the rate at which neighbors take their events.

Neighbors request events when they have time for them, so the send queues of links do not grow when a publisher is too
fast: its events fill the protocol's buffer and evict each other. So every few events one is a probe, of which the
protocol acknowledges replicas, as for publishers that wait for copies. While no neighbor holds any of MAX_PROBES
probes, the node is busy. The distance between probes is a fraction of the buffer, in events and in bytes, so that
backpressure begins before events are evicted. The first probes are closer together, so that backpressure also begins
before neighbors have taken the first event.

There is no backpressure on a node without neighbors, or whose neighbors have no interest in its events.
"""

import asyncio

from carrycast.core.model import EventId
from carrycast.core.protocol import AcknowledgesReplicas, KeepsEvents
from carrycast.node.runtime.runtime import Runtime

MAX_PROBES = 8
"""The most probes that no neighbor holds yet."""
FIRST_DISTANCE = 16
"""The events up to the first probe, if the buffer is large enough: a few events need no backpressure."""
MAX_DISTANCE = 128
"""The most events between two probes. MAX_PROBES of them, a thousand events, are more than neighbors take in one round
trip."""
BUFFER_SHARE = 4
"""The events up to the last probe take at most this fraction (1/4) of the buffer for events without a guarantee."""
PATIENCE_S = 5.0
"""How long publishers wait while neighbors take no events and no message is in flight: then the neighbors have
requested all events that they want. Links to neighbors that do not respond are lost before."""
MAX_STALL_S = 15.0
"""How long publishers wait for neighbors that take no events at all. Publishers are refused after 20 s, and must not be
refused repeatedly because neighbors do not want their events."""


class Backpressure:
    """The backpressure of one node on its publishers."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        protocol = runtime.protocol
        self._keeps = (
            protocol if isinstance(protocol, AcknowledgesReplicas) and isinstance(protocol, KeepsEvents) else None
        )
        self._events = self._bytes = 0
        """The events and bytes published since the last probe."""
        self._distance = FIRST_DISTANCE
        """Events up to the next probe, if the buffer is large enough."""
        self._probes: dict[EventId, None] = {}
        """Probes that no neighbor is known to hold, the oldest first."""
        self._taken_s = self._busy_s = self._loop.time()
        """When a neighbor last acknowledged a probe, and when a message was last in flight."""

    @property
    def _max_probes(self) -> int:
        """MAX_PROBES, or fewer if the buffer is very small."""
        assert self._keeps is not None
        return min(MAX_PROBES, max(1, self._keeps.room.events // BUFFER_SHARE))

    @property
    def _step(self) -> int:
        """The events up to the next probe."""
        assert self._keeps is not None
        return min(self._distance, max(1, self._keeps.room.events // (MAX_PROBES * BUFFER_SHARE)))

    def on_published(self, event: EventId, length_bytes: int) -> None:
        """The protocol has accepted an event."""
        if self._keeps is None:
            return
        self._events += 1
        self._bytes += length_bytes
        if self._events < self._step and self._bytes < self._keeps.room.length_bytes / (MAX_PROBES * BUFFER_SHARE):
            return
        self._events = self._bytes = 0
        if not self._has_links:
            self._distance = FIRST_DISTANCE
            return
        self._distance = min(2 * self._distance, MAX_DISTANCE)
        if not self._probes:
            self._taken_s = self._loop.time()
        if len(self._probes) >= self._max_probes:
            # Publishers no longer wait for the oldest probe; a newer one shows whether neighbors take events again.
            del self._probes[next(iter(self._probes))]
        self._probes[event] = None
        self._runtime.on_await_replicas(self._runtime.now, event, 1)

    def on_held(self, event: EventId) -> None:
        """A neighbor holds a probe, and so has had time for the events before it."""
        if event in self._probes:
            self._taken_s = self._loop.time()
            while next(iter(self._probes)) != event:
                del self._probes[next(iter(self._probes))]
            del self._probes[event]

    def is_behind(self, more: int = 0) -> bool:
        """Whether neighbors take events more slowly than they are published, or would with `more` events."""
        if self._keeps is None or not (self._probes or more):
            return False
        left = self._max_probes - len(self._probes)
        if left > 0 and (not more or self._events + more < left * self._step):
            return False
        if not self._has_links:
            self._probes.clear()
            return False
        if left > 0:
            # A batch must not use up the whole rest of the window.
            return True
        now_s = self._loop.time()
        if any(interface.pending for interface in self._runtime.interfaces.values()):
            self._busy_s = now_s
        return now_s - max(self._taken_s, self._busy_s) <= PATIENCE_S and now_s - self._taken_s <= MAX_STALL_S

    @property
    def _has_links(self) -> bool:
        return any(interface.neighbors for interface in self._runtime.interfaces.values())
