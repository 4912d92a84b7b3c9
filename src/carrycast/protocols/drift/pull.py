"""Pull: requests for events that neighbors hold and this node is missing, and for events that this node has evicted and
a neighbor is missing (proxied pull)."""

from collections.abc import Callable, Iterable
from random import Random

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact, Port
from carrycast.protocols.drift.messages import PullRequest, split_ids
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable
from carrycast.protocols.drift.rate_limits import FixedWindowLimiter
from carrycast.protocols.drift.rules import response_backoff_s, short_address
from carrycast.protocols.drift.runs import pack_ids
from carrycast.protocols.drift.settings import DriftSettings

PULL = "pull"
MAX_PENDING = 4096
"""Events that wait to be requested; those beyond are learned of again by reconciliation."""

PROXIED_PULL = "proxied_pull"
PROXIED_BACKOFF_S = 1.0
"""The time in which a holder of the event, or another node that has evicted it, may act first."""
MAX_PROXIED = 256
"""Proxied pulls at a time. Those beyond are not started; the neighbor that is missing the event asks again."""


class EventPull:
    """The events that this node is about to request. It waits a short backoff, in which another neighbor may request
    the same event; the answer is broadcast, so one request serves all."""

    def __init__(self, port: Port, rng: Random, settings: DriftSettings, neighbors: DriftNeighborTable) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._neighbors = neighbors
        self._pending: dict[EventId, NodeId] = {}
        """The holder of each event to request."""
        self._limiter = FixedWindowLimiter()

    def add(self, id: EventId, holder: NodeId) -> None:
        """Schedule the request of an event that a neighbor holds."""
        if id in self._pending:
            return
        if len(self._pending) >= MAX_PENDING:
            self._port.note(Fact("drop", id, holder, "too_many_wanted"))
            return
        if not self._pending:
            longest_s = response_backoff_s(self.settings.reply_s, len(self._neighbors))
            self._port.set_timer(PULL, longest_s * self._rng.random())
        self._pending[id] = holder

    def cancel(self, id: EventId) -> None:
        """The event has arrived, or need not be requested."""
        if self._pending.pop(id, None) is not None and not self._pending:
            self._port.cancel_timer(PULL)

    def suppress(self, ids: Iterable[EventId]) -> None:
        """Another neighbor requests the same events, and this node may receive the answer too; if not, reconciliation
        finds what is missing."""
        for id in ids:
            self.cancel(id)

    def on_timer(self, now: float) -> None:
        """Request all events that have not arrived meanwhile."""
        by_holder: dict[NodeId, list[EventId]] = {}
        for id, holder in self._pending.items():
            if holder not in self._neighbors:
                continue
            if self._limiter.allow(now, id, self.settings.asks):
                by_holder.setdefault(holder, []).append(id)
            else:
                self._port.note(Fact("drop", id, holder, "asked_too_often"))
        self._pending.clear()
        for holder, ids in by_holder.items():
            address = int.from_bytes(short_address(holder), "big")
            for runs in split_ids(ids):
                self._neighbors.broadcast(PullRequest(runs, address), [holder])

    def stop(self) -> None:
        """Cancel the timer and all requests."""
        self._pending.clear()
        self._port.cancel_timer(PULL)


class ProxiedPull:
    """Requests on behalf of neighbors: a neighbor is missing an event that this node has evicted, so this node requests
    it from others, now or when it meets them."""

    def __init__(
        self, node: NodeId, port: Port, rng: Random, settings: DriftSettings, neighbors: DriftNeighborTable
    ) -> None:
        self._address = int.from_bytes(short_address(node), "big")
        self._port = port
        self._rng = rng
        self.settings = settings
        self._neighbors = neighbors
        self.requesters: dict[EventId, dict[NodeId, None]] = {}
        """The neighbors that are missing each event; to be read only."""
        self._pending: dict[EventId, None] = {}
        self._limiter = FixedWindowLimiter()

    def add(self, node: NodeId, id: EventId) -> None:
        """A neighbor is missing an event that this node has evicted."""
        known = self.requesters.get(id)
        if known is not None:
            # Another neighbor has requested it meanwhile, which may suffice.
            known[node] = None
            self._pending.pop(id, None)
        elif len(self.requesters) < min(MAX_PROXIED, max(1, self.settings.buffer // 2)):
            self.requesters[id] = {node: None}
            self._schedule(id)

    def on_contact(self) -> None:
        """A neighbor has come that may hold some of the events."""
        for id in self.requesters:
            self._schedule(id)

    def complete(self, id: EventId) -> list[NodeId]:
        """The event has arrived. Returns the present neighbors that are missing it. If none of them is present, the
        pull stays open until one comes."""
        present = [node for node in self.requesters.get(id, ()) if node in self._neighbors]
        if present:
            self.cancel(id)
        return present

    def cancel(self, id: EventId) -> None:
        """The event need not be requested any more."""
        self.requesters.pop(id, None)
        self._pending.pop(id, None)

    def cancel_expired(self, is_live: Callable[[EventId], bool]) -> None:
        """Cancel the pulls of events whose lease has expired."""
        if self.requesters:
            for id in [id for id in self.requesters if not is_live(id)]:
                self.cancel(id)

    def on_timer(self, now: float) -> None:
        """Request the events from any holder."""
        ids = [id for id in self._pending if self._limiter.allow(now, id, self.settings.asks)]
        self._pending.clear()
        if ids:
            self._neighbors.broadcast(PullRequest(pack_ids(ids), self._address))

    def stop(self) -> None:
        """Cancel the timer."""
        self._port.cancel_timer(PROXIED_PULL)

    def _schedule(self, id: EventId) -> None:
        if not self._pending:
            self._port.set_timer(PROXIED_PULL, PROXIED_BACKOFF_S * (0.5 + 0.5 * self._rng.random()))
        self._pending[id] = None
