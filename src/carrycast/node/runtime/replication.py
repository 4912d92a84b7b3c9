"""Replication acknowledgements: publishers that wait until enough neighbors hold their event, or their patience
ends."""

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
    """How many neighbors are to hold an event, how long the publisher waits, and a callback with how many do then."""

    number: int
    patience_s: float
    then: Callable[[int], None]


class _Wait(NamedTuple):
    copies: RequiredCopies
    holders: dict[NodeId, None]
    timer: asyncio.TimerHandle


class ReplicationAcknowledgements:
    """The events of one node whose publishers wait for copies."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._loop = asyncio.get_running_loop()
        self._waits: dict[EventId, _Wait] = {}

    def check(self) -> None:
        """A UserError if the protocol does not acknowledge replicas, a WorkError if too many publishers wait."""
        protocol = self._runtime.protocol
        if not isinstance(protocol, AcknowledgesReplicas):
            raise UserError(f"{protocol.name} does not know who holds an event; publish at level accepted or stored")
        if len(self._waits) >= MAX_WAITING:
            raise WorkError(f"{MAX_WAITING} publishers wait for copies already; try again")

    def wait(self, event: EventId, copies: RequiredCopies) -> None:
        """Wait for copies of an event that was just published."""
        timer = self._loop.call_later(copies.patience_s, self._end, event)
        self._waits[event] = _Wait(copies, {}, timer)
        self._runtime.on_await_replicas(self._runtime.now, event, copies.number)

    def on_held(self, event: EventId, neighbor: NodeId) -> None:
        """A neighbor holds an event."""
        wait = self._waits.get(event)
        if wait is not None:
            wait.holders[neighbor] = None
            if len(wait.holders) >= wait.copies.number:
                wait.timer.cancel()
                self._end(event)

    def close(self) -> None:
        """The node stops: no callback is called any more."""
        for wait in self._waits.values():
            wait.timer.cancel()
        self._waits.clear()

    def _end(self, event: EventId) -> None:
        wait = self._waits.pop(event)
        wait.copies.then(len(wait.holders))
