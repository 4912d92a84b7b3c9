"""The exchange of events between neighbors: handles their hashes, digests, offers and pull requests. Events that a
neighbor is missing are sent, events missing here are pulled. It also counts the replicas of events that an application
waits for."""

import heapq
from collections.abc import Collection
from random import Random

from carrycast.core.model import EventId, NodeId
from carrycast.core.parts import BufferedEvent, KnownReplicas
from carrycast.core.protocol import Fact, Port
from carrycast.protocols.drift.broadcast import SelfPruningBroadcast
from carrycast.protocols.drift.known_events import KnownEvents
from carrycast.protocols.drift.messages import (
    IDS_PER_MESSAGE,
    Data,
    Digest,
    Hash,
    HolderQuery,
    Offer,
    PullRequest,
    split_ids,
)
from carrycast.protocols.drift.neighbor_table import DriftNeighborTable
from carrycast.protocols.drift.pull import EventPull
from carrycast.protocols.drift.rate_limits import FixedWindowLimiter
from carrycast.protocols.drift.reconciliation import INTERVAL_FACTOR, Reconciliation
from carrycast.protocols.drift.rules import short_address
from carrycast.protocols.drift.runs import RunsOf, find_difference, iterate_ids, pack_ids, select_marked, select_range
from carrycast.protocols.drift.settings import DriftSettings

DYING_S = 0.05
"""An event whose lease ends this soon is not sent to a neighbor that is missing it: its lease has expired there."""
REPLICAS = "replicas"
MICROSECOND_S = 1e-6
"""The resolution of all times."""


class EventExchange:
    """The exchange of one node. Its handlers raise `BadRunsError` for bytes that are no ids."""

    def __init__(
        self,
        node: NodeId,
        port: Port,
        rng: Random,
        settings: DriftSettings,
        neighbors: DriftNeighborTable,
        known_events: KnownEvents,
        broadcast: SelfPruningBroadcast,
    ) -> None:
        self._address = int.from_bytes(short_address(node), "big")
        self._port = port
        self.settings = settings
        self._known_events = known_events
        self._eviction = known_events.eviction
        self._proxied_pull = known_events.eviction.proxied_pull
        self._broadcast = broadcast
        self._pending = broadcast.pending
        self.reconciliation = Reconciliation(port, rng, settings, neighbors, known_events)
        self.pull = EventPull(port, rng, settings, neighbors)
        self.replicas = ReplicaCounter(port, settings, neighbors, known_events.buffered)
        self._limiter = FixedWindowLimiter()

    def retune(self, settings: DriftSettings) -> None:
        """Use other settings from now on."""
        self.settings = self.reconciliation.settings = self.pull.settings = self.replicas.settings = settings

    def stop(self) -> None:
        """Cancel all timers."""
        self.reconciliation.stop()
        self.pull.stop()
        self.replicas.stop()

    def on_hash(self, now: float, sender: NodeId, hash: Hash) -> None:
        """The hash of the events that a neighbor knows."""
        equal, missing = self.reconciliation.on_hash(now, sender, hash)
        if missing is not None:
            self._serve(now, sender, missing)
        elif equal and self._pending:
            self._broadcast.cover_all(now, sender)

    def on_digest(self, now: float, sender: NodeId, digest: Digest) -> None:
        """The ids of the events that a neighbor knows, or a part of them."""
        theirs, nearly_full = digest.ids, self._known_events.nearly_full
        ids = list(iterate_ids(theirs)) if nearly_full or digest.evicted else []
        evicted = select_marked(ids, digest.evicted)
        mine = self._known_events.runs()
        if digest.low is not None or digest.high is not None:
            mine = select_range(mine, digest.low, digest.high)
        missing_there, missing_here = find_difference(mine, theirs), find_difference(theirs, mine)
        if not missing_there:
            if not missing_here:
                self.reconciliation.on_equal_digest(now, sender, digest)
            if digest.low is None and digest.high is None:
                self._broadcast.cover_all(now, sender)
        for id in missing_there:
            self._serve(now, sender, id)
        for id in missing_here:
            if not self._known_events.on_mention(id) and id not in evicted:
                self.pull.add(id, sender)
        if nearly_full:
            address = short_address(sender)
            for id in ids:
                if id not in evicted:
                    self._eviction.add_holders(id, address)

    def on_offer(self, now: float, sender: NodeId, offer: Offer) -> None:
        """The ids of events that a neighbor holds; it may also ask which of them are held here."""
        for id in iterate_ids(offer.ids):
            if self._known_events.on_mention(id):
                self.replicas.add_holder(sender, id)
                self._broadcast.cover(now, sender, id)
                self._eviction.add_holders(id, short_address(sender))
            else:
                self.pull.add(id, sender)
        if isinstance(offer, HolderQuery):
            self._answer_query(sender, offer.ids)

    def on_pull_request(self, now: float, sender: NodeId, request: PullRequest) -> None:
        """The ids of events that a neighbor is missing."""
        ids, holder = list(iterate_ids(request.ids)), request.holder
        self.pull.suppress(ids)
        for id in ids:
            if holder not in (self._address, sender & 0xFFFF) and id in self._known_events.buffered:
                # It will get the event from the holder; if not, reconciliation finds it.
                self._broadcast.cover(now, sender, id)
            else:
                self._serve(now, sender, id, holder == self._address)

    def on_proxied_event(self, now: float, message: Data) -> None:
        """An event has arrived that neighbors are missing and this node had evicted."""
        until = now + min(message.remaining_s, message.event.lease_s, self.settings.max_lease_s)
        self._known_events.restore(BufferedEvent(until, message.event.id, message.event, message.hops))
        for node in self._proxied_pull.complete(message.event.id):
            self._serve(now, node, message.event.id)

    def _answer_query(self, sender: NodeId, queried: RunsOf) -> None:
        """Offer the events of a query that this node holds; a query has no more than fit one message."""
        held = [id for id in iterate_ids(queried) if id in self._known_events.buffered][:IDS_PER_MESSAGE]
        if held:
            self._port.send(sender, Offer(pack_ids(held)))

    def _serve(self, now: float, node: NodeId, id: EventId, requested_here: bool = False) -> None:
        """A neighbor is missing an event: schedule to send it, or pull it on the neighbor's behalf if it was
        evicted."""
        stored = self._known_events.buffered.get(id)
        if stored is None:
            if id in self._known_events:
                self._proxied_pull.add(node, id)
            return
        if stored.until - now < DYING_S:
            return
        if self._limiter.allow(now, (node, id), self.settings.answers):
            self._broadcast.on_missing(now, node, id, requested_here)
        else:
            self._port.note(Fact("drop", id, node, "answered_too_often"))


class ReplicaCounter:
    """Counts the neighbors that hold an event, for an application that waits until enough do. It queries as many
    neighbors as are missing, then others, at growing intervals."""

    def __init__(
        self, port: Port, settings: DriftSettings, neighbors: DriftNeighborTable, buffered: Collection[EventId]
    ) -> None:
        self._port = port
        self.settings = settings
        self._neighbors = neighbors
        self._buffered = buffered
        self._holders = KnownReplicas()
        self._queries: list[tuple[float, int, EventId]] = []
        """When to query next, how often that was done, and the event."""

    def count(self, now: float, id: EventId, copies: int) -> None:
        """Count until so many holders are known. Events published within `wait_s` share their queries."""
        if id in self._buffered:
            self._holders.count(id, copies)
            query = (now + self.settings.wait_s, 0, id)
            heapq.heappush(self._queries, query)
            if self._queries[0] is query:
                self._arm(now)

    def add_holder(self, node: NodeId, id: EventId) -> None:
        """A neighbor has confirmed that it holds an event."""
        if self._holders.add(id, node):
            self._port.acknowledge_replica(id, node)

    def on_timer(self, now: float) -> None:
        """Send the queries that are due."""
        by_node: dict[NodeId, list[EventId]] = {}
        while self._queries and self._queries[0][0] <= now + MICROSECOND_S:
            _, times, id = heapq.heappop(self._queries)
            if id not in self._buffered:
                self._holders.forget(id)
            if id not in self._holders:
                continue
            for node in self._choose_neighbors(id, times):
                by_node.setdefault(node, []).append(id)
            after_s = min(self.settings.news_s * INTERVAL_FACTOR**times, self.settings.hash_max_s)
            heapq.heappush(self._queries, (now + after_s, times + 1, id))
        for node, ids in by_node.items():
            for runs in split_ids(ids):
                self._port.send(node, HolderQuery(runs))
        self._arm(now)

    def stop(self) -> None:
        """Cancel all queries."""
        self._queries.clear()
        self._port.cancel_timer(REPLICAS)

    def _choose_neighbors(self, id: EventId, times: int) -> list[NodeId]:
        """As many neighbors that are not known to hold the event as holders are missing, others each time."""
        known, missing = self._holders.find_holders(id), self._holders.count_missing(id)
        unknown = [node for node in self._neighbors if node not in known]
        first = times * missing % len(unknown) if unknown else 0
        return [*unknown[first:], *unknown[:first]][:missing]

    def _arm(self, now: float) -> None:
        if self._queries:
            # No longer than Imax, should the clock have been set back since.
            self._port.set_timer(REPLICAS, min(max(0.0, self._queries[0][0] - now), self.settings.hash_max_s))
