"""Expanding ring search for near brokers [002 §2.3, 13]."""

from collections.abc import Callable
from typing import TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.protocols.overlay.messages import RingAnswer, RingQuery, Round
from carrycast.protocols.overlay.rules import Found
from carrycast.protocols.overlay.settings import OverlaySettings

MAX_SEARCHES = 4096
"""Searches of others remembered; the oldest makes room."""

COPY_S = 1.0
"""After the time of the widest ring no copy comes by but what waited longer than this in a queue."""

Done: TypeAlias = Callable[[float, list[Found]], None]


class RingSearch:
    """One node's searches, one at a time, and its part in those of others."""

    def __init__(self, node: NodeId, settings: OverlaySettings, port: Port, incarnation: int, done: Done) -> None:
        self._node = node
        self._settings = settings
        self._port = port
        self._done = done
        self._search = Round(incarnation, 0)
        self._hops = 0
        """Of the ring that is searched; 0 while none is."""
        self._enough = 0
        self.found: dict[NodeId, tuple[int, float]] = {}
        self._seen: dict[tuple[NodeId, Round], float] = {}
        """Searches of others, and until when a copy of them may still come by, the oldest first."""
        self._second = 0.0
        self._relayed = 0

    def begin(self, now: float, enough: int) -> None:
        """Search until so many are found; one that is under way goes on."""
        if self._hops == 0:
            self._enough = enough
            self._ring(1)

    def stop(self) -> None:
        """End what is under way."""
        self._hops = 0
        self._port.cancel_timer("ring")

    def on_timer(self, now: float) -> None:
        """The ring has had its time: the next one, or the end."""
        settings = self._settings
        if len(self.found) < self._enough and self._hops < settings.ring_max:
            self._ring(min(2 * self._hops, settings.ring_max))
            return
        self._hops = 0
        self._done(now, [(float(hops), broker) for broker, (hops, _) in self.found.items()])

    def on_query(self, now: float, sender: NodeId, query: RingQuery, load: float | None) -> None:
        """Somebody searches: a broker, which knows its load, answers; who has hops left passes it on."""
        search = (query.origin, query.search)
        while self._seen and next(iter(self._seen.values())) <= now:
            del self._seen[next(iter(self._seen))]
        if query.origin == self._node or search in self._seen:
            return
        if now - self._second >= 1.0:
            self._second, self._relayed = now, 0
        self._relayed += 1
        if self._relayed > self._settings.search_rate:
            self._port.note(Fact("drop", peer=sender, reason="search_rate"))
            return
        if len(self._seen) >= MAX_SEARCHES:
            del self._seen[next(iter(self._seen))]
        self._seen[search] = now + 2 * self._settings.ring_max * self._settings.ring_hop_s + COPY_S
        if load is not None:
            self._port.route(query.origin, RingAnswer(query.search, query.hops, load))
        if query.hops_left > 1 and query.hops < 255:
            self._port.broadcast(RingQuery(*search, query.hops_left - 1, query.hops + 1))

    def on_answer(self, now: float, origin: NodeId, answer: RingAnswer, is_broker: bool) -> None:
        """A broker has answered."""
        if not is_broker:
            self._port.note(Fact("drop", peer=origin, reason="not_a_broker"))
        elif self._hops == 0 or answer.search != self._search:
            self._port.note(Fact("drop", peer=origin, reason="search_over"))
        elif origin not in self.found or answer.hops < self.found[origin][0]:
            self.found[origin] = (answer.hops, answer.load)

    def _ring(self, hops: int) -> None:
        self._hops = hops
        self._search = self._search.next()
        self.found = {}
        self._port.broadcast(RingQuery(self._node, self._search, hops, 1))
        self._port.set_timer("ring", 2 * hops * self._settings.ring_hop_s)
