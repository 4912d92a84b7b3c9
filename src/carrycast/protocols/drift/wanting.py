"""Events that others hold and this node lacks: asked for after a short wait, in which somebody else may ask."""

from collections.abc import Iterable
from random import Random

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.protocols.drift.around import Around
from carrycast.protocols.drift.limits import PerMinute
from carrycast.protocols.drift.messages import Want, in_parts
from carrycast.protocols.drift.rules import crowd_wait_s, short_name
from carrycast.protocols.drift.settings import DriftSettings

WANT = "want"
MAX_WANTED = 4096
"""Events that wait to be asked for; what is told of beyond that is told of again."""


class Wanting:
    """What this node is about to ask for."""

    def __init__(self, port: Port, rng: Random, settings: DriftSettings, around: Around) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._around = around
        self._wanted: dict[EventId, NodeId] = {}
        """Of whom."""
        self._asked = PerMinute()

    def want(self, id: EventId, holder: NodeId) -> None:
        """Somebody holds what is lacked here."""
        if id in self._wanted:
            return
        if len(self._wanted) >= MAX_WANTED:
            self._port.note(Fact("drop", id, holder, "too_many_wanted"))
            return
        if not self._wanted:
            longest_s = crowd_wait_s(self.settings.reply_s, len(self._around))
            self._port.set_timer(WANT, longest_s * self._rng.random())
        self._wanted[id] = holder

    def got(self, id: EventId) -> None:
        """It has come."""
        if self._wanted.pop(id, None) is not None and not self._wanted:
            self._port.cancel_timer(WANT)

    def heard(self, ids: Iterable[EventId]) -> None:
        """Somebody else asks for the same, and the answer may be heard here too; if not, hashes will differ."""
        for id in ids:
            self.got(id)

    def on_timer(self, now: float) -> None:
        """Ask for all that has not come meanwhile."""
        of: dict[NodeId, list[EventId]] = {}
        for id, holder in self._wanted.items():
            if holder not in self._around:
                continue
            if self._asked.allows(now, id, self.settings.asks):
                of.setdefault(holder, []).append(id)
            else:
                self._port.note(Fact("drop", id, holder, "asked_too_often"))
        self._wanted.clear()
        for holder, ids in of.items():
            name = int.from_bytes(short_name(holder), "big")
            for runs in in_parts(ids):
                self._around.say(Want(runs, name), [holder])

    def stop(self) -> None:
        """Ask for nothing more."""
        self._wanted.clear()
        self._port.cancel_timer(WANT)
