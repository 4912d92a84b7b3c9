"""Self-pruning broadcast with neighbor elimination (the scalable broadcast algorithm, SBA: Peng and Lu, MobiHoc 2000).
The literature also calls it broadcast suppression: a node suppresses a rebroadcast that would reach nobody new.

Every frame with an event lists the sender's neighbors, so a receiver knows which of its own neighbors the frame covers.
It schedules a rebroadcast for the uncovered ones after a backoff that is the shorter, the more there are. Further
copies received during the backoff cover more neighbors; when none is left, the node prunes itself and stays silent.

SBA learns the neighbors of neighbors from beacons. Deviation: here each data frame lists them, and an event that only
few neighbors may be missing is first offered by its id; an event that a neighbor is known to be missing is sent.

A node that has very many events to send, for example to a newcomer, sends them through a window, so that neither the
queue of a link nor the receive buffers of its neighbors overflow.
"""

from collections.abc import Collection, Iterable
from math import inf
from random import Random

from carrycast.core.model import EventId, Failure, NodeId
from carrycast.core.parts import BufferedEvent
from carrycast.core.protocol import Fact, Port, Token
from carrycast.core.wire import LEASE_EXPIRED, hops_after
from carrycast.protocols.drift.known_events import KnownEvents
from carrycast.protocols.drift.messages import Data, Offer
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable, select_uncovered
from carrycast.protocols.drift.rules import payload_backoff_s, rebroadcast_backoff_s
from carrycast.protocols.drift.runs import pack_id
from carrycast.protocols.drift.settings import DriftSettings

REBROADCAST = "rebroadcast"
WINDOW = "window"
WINDOW_S = 0.1
"""The time for which a broadcast, which is not acknowledged, counts as in flight."""
MAX_WINDOW = 512
"""Frames in flight: the frames of a few such nodes fit the queue of a live link, and the default receive buffer of a
socket."""


class PendingRebroadcast:
    """An event that is scheduled to be sent or offered."""

    __slots__ = ("draw", "payload_s", "requested_by", "since", "sole_target", "uncovered")

    def __init__(self, since: float, draw: float, payload_s: float, uncovered: Iterable[NodeId] = ()) -> None:
        self.since = since
        self.payload_s = payload_s
        self.draw = draw
        self.uncovered: dict[NodeId, None] = dict.fromkeys(uncovered)
        self.requested_by: set[NodeId] = set()
        """The neighbors that are known to be missing the event."""
        self.sole_target = False
        """Whether all other neighbors are known to hold the event, and the missing one has requested it here."""


class SelfPruningBroadcast:
    """The events that this node may still have to send: at most one entry for each buffered event."""

    def __init__(
        self,
        port: Port,
        rng: Random,
        settings: DriftSettings,
        neighbors: DriftNeighborTable,
        known_events: KnownEvents,
    ) -> None:
        self._port = port
        self._rng = rng
        self.settings = settings
        self._neighbors = neighbors
        self._links = neighbors.links
        self._buffered = known_events.buffered
        self.pending: dict[EventId, PendingRebroadcast] = {}
        """Events in their backoff, or deferred by the window; to be read only."""
        self._offered: dict[EventId, NodeId] = {}
        """Events that were offered because of one neighbor alone: all other neighbors hold them."""
        self._unicasts: dict[Token, tuple[NodeId, EventId, bool]] = {}
        """Unacknowledged unicasts, and whether each counts in the window; own events do not."""
        self._tokens = 0
        self._deferred: dict[EventId, None] = {}
        """Events whose backoff has ended and that wait for room in the window."""
        self._window = MAX_WINDOW
        """Frames that may be in flight; fewer after a queue was full."""
        self._unicasts_in_flight = 0
        self._broadcasts_in_flight = 0
        """Broadcasts since `_since`."""
        self._since = -inf

    def publish(self, now: float, stored: BufferedEvent) -> None:
        """Send an event of this node at once, to all neighbors."""
        self._send(now, stored, self._neighbors.links)

    def schedule(self, now: float, id: EventId, sender: NodeId, covered: frozenset[int]) -> None:
        """Schedule the rebroadcast of a new event for the neighbors that its frame does not cover."""
        uncovered = self._neighbors.find_uncovered(covered, sender)
        if uncovered:
            self._start_backoff(now, id, self._add(now, id, uncovered))

    def on_duplicate(self, now: float, id: EventId, sender: NodeId, covered: frozenset[int]) -> None:
        """Another copy of the event was received: eliminate the neighbors that it covers."""
        pending = self.pending.get(id)
        if pending is not None:
            self._prune(now, id, pending, select_uncovered(pending.uncovered, covered, sender))

    def cover(self, now: float, node: NodeId, id: EventId) -> None:
        """A neighbor is known to hold an event."""
        pending = self.pending.get(id)
        if pending is not None and node in pending.uncovered:
            self._prune(now, id, pending, [other for other in pending.uncovered if other != node])

    def cover_all(self, now: float, node: NodeId) -> None:
        """A neighbor is known to hold all events of this node, or has gone."""
        if self.pending:
            for id in [id for id, pending in self.pending.items() if node in pending.uncovered]:
                self.cover(now, node, id)

    def on_missing(self, now: float, node: NodeId, id: EventId, requested_here: bool = False) -> None:
        """A neighbor is known to be missing a buffered event; `requested_here` if it has requested it from this
        node."""
        pending = self.pending.get(id)
        if pending is None:
            pending = self._add(now, id)
        if node in pending.requested_by:
            return
        pending.uncovered[node] = None
        pending.requested_by.add(node)
        if requested_here:
            pending.sole_target = self._offered.pop(id, None) == node
        if requested_here and id not in self._deferred:
            self._port.set_timer((REBROADCAST, id), self.settings.wait_s * pending.draw)
        elif not requested_here:
            pending.since = now
            self._start_backoff(now, id, pending)

    def on_timer(self, now: float, id: EventId) -> None:
        """A backoff has ended: send for the neighbors that are left, or wait for room in the window."""
        if self._deferred or not self._has_window(now):
            if not self._deferred:
                self._port.set_timer(WINDOW, WINDOW_S)
            self._deferred[id] = None
        else:
            self._transmit(now, id)

    def on_window_timer(self, now: float) -> None:
        """Broadcasts no longer count as in flight."""
        self._send_deferred(now)
        if self._deferred:
            self._port.set_timer(WINDOW, WINDOW_S)

    def on_sent(self, now: float, token: Token, failure: Failure | None) -> None:
        """The outcome of a unicast; after a failure the event is broadcast."""
        node, id, counts = self._unicasts.pop(token)
        self._unicasts_in_flight -= counts
        if failure is None:
            self._window = min(self._window + 1, MAX_WINDOW)
            self._send_deferred(now)
        elif failure is Failure.QUEUE_FULL:
            # The others wait until those in flight are acknowledged, or for WINDOW_S: retrying at once would do
            # nothing but fill the queue again.
            self._window = max(1, min(self._window, self._unicasts_in_flight))
        if failure is not None and node in self._links and id in self._buffered:
            self.on_missing(now, node, id)

    def cancel(self, id: EventId) -> None:
        """The event need not be sent any more."""
        self._offered.pop(id, None)
        if self.pending.pop(id, None) is not None and id not in self._deferred:
            self._port.cancel_timer((REBROADCAST, id))
        self._deferred.pop(id, None)

    def stop(self) -> None:
        """Cancel all timers."""
        for id in list(self.pending):
            self.cancel(id)
        self._port.cancel_timer(WINDOW)

    def _has_window(self, now: float) -> bool:
        """Whether one more frame may be sent now."""
        if not 0.0 <= now - self._since < WINDOW_S:
            self._since, self._broadcasts_in_flight = now, 0
        return self._unicasts_in_flight + self._broadcasts_in_flight < self._window

    def _send_deferred(self, now: float) -> None:
        while self._deferred and self._has_window(now):
            id = next(iter(self._deferred))
            del self._deferred[id]
            self._transmit(now, id)

    def _transmit(self, now: float, id: EventId) -> None:
        """Send or offer an event to the neighbors that are left."""
        pending = self.pending.pop(id)
        stored = self._buffered.get(id)
        if stored is None or stored.until <= now:
            return
        if not pending.requested_by and len(pending.uncovered) < self.settings.offer_below:
            if len(pending.uncovered) == 1:
                (self._offered[id],) = pending.uncovered
            self._broadcasts_in_flight += 1
            self._neighbors.broadcast(Offer(pack_id(id)), pending.uncovered)
        else:
            self._send(now, stored, pending.uncovered, pending.sole_target, counts=True)

    def _send(
        self,
        now: float,
        stored: BufferedEvent,
        nodes: Collection[NodeId],
        sole_target: bool = False,
        counts: bool = False,
    ) -> None:
        """Broadcast an event to nodes; unicast it to one node if no other neighbor needs to receive the frame.
        `counts`: whether the frame counts in the window."""
        if stored.until <= now:
            self._port.note(Fact("drop", stored.id, reason=LEASE_EXPIRED))
            return
        interfaces = self._neighbors.interfaces_to(nodes)
        addresses = self._neighbors.addresses_on(interfaces)
        data = Data(stored.event, hops_after(stored.hops), stored.until - now, addresses)
        if len(nodes) == 1 and (sole_target or len(self._links) == 1):
            (node,) = nodes
            self._tokens -= 1
            self._unicasts[self._tokens] = (node, stored.id, counts)
            self._unicasts_in_flight += counts
            self._port.send(node, data, via=interfaces[0], token=self._tokens)
            return
        self._broadcasts_in_flight += counts
        for interface in interfaces:
            self._port.broadcast(data, on=interface)

    def _add(self, now: float, id: EventId, uncovered: Iterable[NodeId] = ()) -> PendingRebroadcast:
        payload_s = payload_backoff_s(len(self._buffered[id].event.payload))
        pending = self.pending[id] = PendingRebroadcast(now, self._rng.random(), payload_s, uncovered)
        return pending

    def _prune(self, now: float, id: EventId, pending: PendingRebroadcast, left: list[NodeId]) -> None:
        if not left:
            self.cancel(id)
        elif len(left) < len(pending.uncovered):
            pending.uncovered = dict.fromkeys(left)
            pending.requested_by.intersection_update(left)
            self._start_backoff(now, id, pending)

    def _start_backoff(self, now: float, id: EventId, pending: PendingRebroadcast) -> None:
        if id in self._deferred:
            return
        unit_s = self.settings.wait_s + pending.payload_s
        wait_s = rebroadcast_backoff_s(unit_s, len(pending.uncovered), len(self._links), pending.draw)
        # No longer than the backoff itself, should the clock have been set back since.
        self._port.set_timer((REBROADCAST, id), min(wait_s, max(0.0, pending.since + wait_s - now)))
