"""Errands: what a neighbor lacks and this node has let go of, it asks others for, now or when it meets them."""

from collections.abc import Callable
from random import Random

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Port
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.limits import PerMinute
from carrycast.protocols.drift.messages import Want
from carrycast.protocols.drift.rules import short_name
from carrycast.protocols.drift.runs import pack_ids
from carrycast.protocols.drift.settings import DriftSettings

ERRAND = "errand"
ERRAND_S = 1.0
"""So long who holds the event, and who else has let go of it, are given time to speak first."""
MAX_ERRANDS = 256
"""More are not taken on: what is lacked is said again."""


class Errands:
    """For whom this node looks for what."""

    def __init__(self, node: NodeId, port: Port, rng: Random, settings: DriftSettings, around: Around) -> None:
        self._name = int.from_bytes(short_name(node), "big")
        self._port = port
        self._rng = rng
        self.settings = settings
        self._around = around
        self.for_whom: dict[EventId, dict[NodeId, None]] = {}
        """To be read only."""
        self._due: dict[EventId, None] = {}
        self._asked = PerMinute()

    def take(self, node: NodeId, id: EventId) -> None:
        """A neighbor lacks what was here once."""
        known = self.for_whom.get(id)
        if known is not None:
            # Somebody else has asked meanwhile: that may do.
            known[node] = None
            self._due.pop(id, None)
        elif len(self.for_whom) < min(MAX_ERRANDS, max(1, self.settings.buffer // 2)):
            self.for_whom[id] = {node: None}
            self._ask_soon(id)

    def contact(self) -> None:
        """Somebody has come who may hold it."""
        for id in self.for_whom:
            self._ask_soon(id)

    def done(self, id: EventId) -> list[NodeId]:
        """The event is here: for whom, of those around. If none of them is, it stays an errand until one comes."""
        here = [node for node in self.for_whom.get(id, ()) if node in self._around]
        if here:
            self.forget(id)
        return here

    def forget(self, id: EventId) -> None:
        """Nobody need look for it any more."""
        self.for_whom.pop(id, None)
        self._due.pop(id, None)

    def forget_unless(self, lives: Callable[[EventId], bool]) -> None:
        """What lives no longer is over."""
        if self.for_whom:
            for id in [id for id in self.for_whom if not lives(id)]:
                self.forget(id)

    def on_timer(self, now: float) -> None:
        """Ask whoever holds it."""
        ids = [id for id in self._due if self._asked.allows(now, id, self.settings.asks)]
        self._due.clear()
        if ids:
            self._around.say(Want(pack_ids(ids), self._name))

    def stop(self) -> None:
        """Look for nothing more."""
        self._port.cancel_timer(ERRAND)

    def _ask_soon(self, id: EventId) -> None:
        if not self._due:
            self._port.set_timer(ERRAND, ERRAND_S * (0.5 + 0.5 * self._rng.random()))
        self._due[id] = None
