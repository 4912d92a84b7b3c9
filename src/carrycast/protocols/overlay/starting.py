"""A broker that starts knows of no subscription, and asks; until somebody has told it, what is published waits.

It cannot know whether it is the first or whether all others have long been there. So it asks a few, and is content with
one who is sure, or with none of them being.
"""

from collections import deque

from carrycast.core.model import NodeId
from carrycast.protocols.overlay.clients import InterestTable
from carrycast.protocols.overlay.messages import Ask, Known, Publish
from carrycast.protocols.overlay.station import Station

ASKED = 2
"""Brokers that are asked at a time."""
MAX_HELD = 1024
MAX_TOLD = 64


class Starting:
    """The beginning of one broker."""

    def __init__(self, station: Station, interests: InterestTable) -> None:
        self._station = station
        self._interests = interests
        at = station.brokers.index(station.node) if station.node in station.brokers else 0
        self._to_ask = deque([*station.brokers[at + 1 :], *station.brokers[:at]])
        self._since = 0.0
        self._asked: set[NodeId] = set()
        self._held: list[tuple[float, NodeId, Publish, int]] = []
        self.done = not self._to_ask

    def begin(self, now: float) -> None:
        """Ask the first ones."""
        self._since = now
        if not self.done:
            self._ask_some(now)

    def _ask_some(self, now: float) -> None:
        settings = self._station.settings
        self._station.arm("started", min(settings.resend_s, settings.seek_s))
        for _ in range(min(ASKED, len(self._to_ask))):
            self._ask(now)

    def _ask(self, now: float) -> None:
        other = self._to_ask[0]
        self._to_ask.rotate(-1)
        self._asked.add(other)
        self._station.send(now, other, Ask())

    def on_ask(self, now: float, origin: NodeId) -> None:
        """Another one starts."""
        known = list(self._interests)
        for begin in range(0, max(len(known), 1), MAX_TOLD):
            more = begin + MAX_TOLD < len(known)
            self._station.send(now, origin, Known(tuple(known[begin : begin + MAX_TOLD]), more, self.done))

    def on_known(self, now: float, origin: NodeId, message: Known) -> bool:
        """Somebody has told; whether that was what was waited for."""
        if origin not in self._asked:
            self._station.drop("not_asked", origin)
            return False
        for interest in message.interests:
            if self._station.is_broker(interest.place) and self._station.is_broker(interest.home):
                self._interests.put(interest, now + self._station.settings.lease_s)
        if not message.more:
            self._asked.discard(origin)
        return not message.more and (message.sure or not self._asked) and self._end()

    def on_timer(self, now: float) -> bool:
        """Some have not answered: others are asked, but nobody waits for ever; whether that ends it."""
        if now - self._since >= self._station.settings.seek_s:
            return self._end()
        self._ask_some(now)
        return False

    def _end(self) -> bool:
        ends, self.done = not self.done, True
        self._station.disarm("started")
        return ends

    def hold(self, now: float, origin: NodeId, message: Publish, hops: int) -> None:
        """What is published must wait until it is known for whom."""
        if len(self._held) < MAX_HELD:
            self._held.append((now, origin, message, hops))
        else:
            self._station.drop("starting", origin, message.event.id)

    def held(self, now: float) -> list[tuple[NodeId, Publish, int]]:
        """All that has waited, as old as it is."""
        held, self._held = self._held, []
        aged = [(origin, message.aged(now - since), hops) for since, origin, message, hops in held]
        return [(origin, message, hops) for origin, message, hops in aged if message is not None]
