"""Expanding ring search for near brokers [002 §2.3 and its reference 13]."""

from collections.abc import Callable
from typing import TypeAlias

from carrycast.core.model import NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.protocols.overlay.messages import RingAnswer, RingQuery, SequenceNumber
from carrycast.protocols.overlay.rules import FoundBroker
from carrycast.protocols.overlay.settings import OverlaySettings

MAX_SEARCHES = 4096
"""Searches of other nodes that are remembered; the oldest makes room."""

QUEUE_DELAY_S = 1.0
"""A copy of a query may arrive this long after the time of the widest ring, because it waited in a queue."""

SearchDone: TypeAlias = Callable[[float, list[FoundBroker]], None]
"""The callback with the brokers that were found."""


class RingSearch:
    """The searches of one node, one at a time, and its part in the searches of others."""

    def __init__(
        self, node: NodeId, settings: OverlaySettings, port: Port, incarnation: int, on_done: SearchDone
    ) -> None:
        self._node = node
        self._settings = settings
        self._port = port
        self._on_done = on_done
        self._search = SequenceNumber(incarnation, 0)
        self._hops = 0
        """The radius of the current ring; 0 if no search is in progress."""
        self._enough = 0
        self.found: dict[NodeId, tuple[int, float]] = {}
        self._seen: dict[tuple[NodeId, SequenceNumber], float] = {}
        """Searches of others, the oldest first, and until when copies of their queries may still arrive."""
        self._second_start = 0.0
        self._forwarded = 0

    def begin(self, now: float, enough: int) -> None:
        """Search until `enough` brokers are found; a search in progress goes on."""
        if self._hops == 0:
            self._enough = enough
            self._start_ring(1)

    def stop(self) -> None:
        """Cancel the search in progress."""
        self._hops = 0
        self._port.cancel_timer("ring")

    def on_timer(self, now: float) -> None:
        """The time of a ring is over: search a wider ring, or finish."""
        settings = self._settings
        if len(self.found) < self._enough and self._hops < settings.ring_max:
            self._start_ring(min(2 * self._hops, settings.ring_max))
            return
        self._hops = 0
        self._on_done(now, [(float(hops), broker) for broker, (hops, _) in self.found.items()])

    def on_query(self, now: float, sender: NodeId, query: RingQuery, load: float | None) -> None:
        """A query of another node: a broker, which passes its load, answers; the query is forwarded while it has hops
        left."""
        search = (query.origin, query.search)
        while self._seen and next(iter(self._seen.values())) <= now:
            del self._seen[next(iter(self._seen))]
        if query.origin == self._node or search in self._seen:
            return
        if now - self._second_start >= 1.0:
            self._second_start, self._forwarded = now, 0
        self._forwarded += 1
        if self._forwarded > self._settings.search_rate:
            self._port.note(Fact("drop", peer=sender, reason="search_rate"))
            return
        if len(self._seen) >= MAX_SEARCHES:
            del self._seen[next(iter(self._seen))]
        self._seen[search] = now + 2 * self._settings.ring_max * self._settings.ring_hop_s + QUEUE_DELAY_S
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

    def _start_ring(self, hops: int) -> None:
        self._hops = hops
        self._search = self._search.next()
        self.found = {}
        self._port.broadcast(RingQuery(self._node, self._search, hops, 1))
        self._port.set_timer("ring", 2 * hops * self._settings.ring_hop_s)
