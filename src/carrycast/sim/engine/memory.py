"""Memory: what is left of it after the events that nodes store and the calls of processors that wait on them.

What protocols keep besides, tables and buffers of a few bytes an entry, is not counted: nobody tells of it.
"""

import msgspec

from carrycast.core.model import Event, EventId, NodeId


class Memories:
    """What every node has in use. Only in runs whose scenario says how much there is."""

    def __init__(self, memory_bytes: int, nodes: int) -> None:
        self._memory_bytes = memory_bytes
        self._stored_bytes = [0] * nodes
        self._calls_bytes = [0] * nodes
        self._sizes_bytes: dict[EventId, int] = {}

    def on_event(self, event: Event) -> None:
        """There is a new event."""
        self._sizes_bytes[event.id] = len(msgspec.msgpack.encode(event))

    def on_lease_over(self, id: EventId) -> None:
        """Nobody has it any more."""
        self._sizes_bytes.pop(id, None)

    def on_stored(self, node: NodeId, id: EventId, copies: int) -> None:
        """A node keeps a copy more or less."""
        self._stored_bytes[node] += copies * self._sizes_bytes.get(id, 0)

    def on_call(self, node: NodeId, size_bytes: int) -> None:
        """A call of a processor waits with its events and state, or (below 0) is done."""
        self._calls_bytes[node] += size_bytes

    def on_crash(self, node: NodeId) -> None:
        """What was in memory is gone."""
        self._stored_bytes[node] = self._calls_bytes[node] = 0

    def free_bytes(self, node: NodeId) -> int:
        """What is left; 0 if more is in use than there is, since nothing is taken away for it."""
        return max(0, self._memory_bytes - self._stored_bytes[node] - self._calls_bytes[node])
