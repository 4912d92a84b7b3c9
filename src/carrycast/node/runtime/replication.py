"""Publishers that wait until enough neighbors hold an event, or as long as they care to."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import AcknowledgesReplicas
from carrycast.errors import UserError, WorkError
from carrycast.node.runtime.runtime import Runtime

MAX_WAITING = 10_000
"""Events whose publishers wait, all together."""


class RequiredCopies(NamedTuple):
    """By how many neighbors an event is to be held, for how long that is waited for, and who is told by how many it is
    then."""

    number: int
    patience_s: float
    told: Callable[[int], None]


class _Wait(NamedTuple):
    copies: RequiredCopies
    holders: dict[NodeId, None]
    timer: asyncio.TimerHandle


class ReplicationAcknowledgements:
    """Those of one node."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._waits: dict[EventId, _Wait] = {}

    def check(self) -> None:
        """A UserError if nobody could tell who holds what, a WorkError if too many wait."""
        protocol = self._runtime.protocol
        if not isinstance(protocol, AcknowledgesReplicas):
            raise UserError(f"{protocol.name} does not know who holds an event; publish at level accepted or stored")
        if len(self._waits) >= MAX_WAITING:
            raise WorkError(f"{MAX_WAITING} publishers wait for copies already; try again")

    def wait(self, event: EventId, copies: RequiredCopies) -> None:
        """Tell when so many neighbors hold an event that was just published, or when patience is over."""
        timer = self._loop.call_later(copies.patience_s, self._end, event)
        self._waits[event] = _Wait(copies, {}, timer)
        self._runtime.on_await_replicas(self._runtime.now, event, copies.number)

    def on_held(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor has it."""
        wait = self._waits.get(event)
        if wait is not None:
            wait.holders[neighbor] = None
            if len(wait.holders) >= wait.copies.number:
                wait.timer.cancel()
                self._end(event)

    def close(self) -> None:
        """The node stops, and nobody is told any more."""
        for wait in self._waits.values():
            wait.timer.cancel()
        self._waits.clear()

    def _end(self, event: EventId) -> None:
        wait = self._waits.pop(event)
        wait.copies.told(len(wait.holders))
