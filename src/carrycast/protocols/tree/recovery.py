"""Recovery of lost publications among brokers, by gossip [000 §VII: "by complementing our system with ... epidemic
algorithms we expect to easily obtain a full delivery"].

In each gossip round a broker sends one random neighbor the ids of recent events that the neighbor is interested in. The
neighbor requests those that it has missed, and forwards them as if they had arrived in time. With a durable store the
events survive a crash, and a client offers its broker its own published events in the same way.
"""

import math
from collections.abc import Callable, Container
from random import Random

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.parts import BufferedEvent, DurableLog, LeaseTimer, make_memory, restore_buffer
from carrycast.core.protocol import DurableStore, Fact, Port
from carrycast.protocols.tree.messages import Publish, RecoveryDigest, RecoveryRequest
from carrycast.protocols.tree.settings import TreeSettings
from carrycast.services.retrieval import MAX_HOPS

LEASE = "recovery lease"
MAX_IDS = 256
MAX_PROGRESS = 4096
"""Neighbors whose progress through a long list of ids is remembered."""
GRACE_S = 60.0
"""The time for which an event is remembered after its lease: it may expire a little later on other nodes."""


class EpidemicRecovery:
    """The events that one node keeps for recovery, and its gossip rounds."""

    def __init__(self, port: Port, rng: Random, settings: TreeSettings, store: DurableStore) -> None:
        self._port = port
        self._rng = rng
        self._period_s = settings.recover_s
        self._lease_s = settings.recover_lease_s
        self._notes_storage = settings.durable
        self.log: DurableLog | None = None
        if settings.durable:
            self.log = DurableLog(store, settings.log_bytes, settings.recover_lease_s, "recover_lease_s")
        self._buffer, self.seen = make_memory(settings.recover_buffer, self.log, store)
        self._leases = LeaseTimer(port, self._buffer, LEASE)
        self._progress: dict[NodeId, int] = {}
        """The number of ids sent to each neighbor that is interested in more than fit one message."""

    def start(self, now: float) -> None:
        """Restore the kept events, and start the first round at a random time."""
        if self._period_s < math.inf:
            self._port.set_timer("recover", self._period_s * self._rng.random())
            restore_buffer(self._port, now, self._buffer, self._lease_s)
            self.seen.load(now + self._lease_s + GRACE_S)
            self._watch_leases(now)

    def retention_s(self, remaining_s: float) -> float:
        """Return the time for which an event has to be remembered, so that it is not recovered again."""
        return min(remaining_s, self._lease_s) + GRACE_S if self._period_s < math.inf else 0.0

    def keep(self, now: float, event: Event, hops: int, remaining_s: float) -> None:
        """Keep a new event for recovery."""
        if self._period_s < math.inf and event.id not in self._buffer:
            self._expire(now)
            until = now + min(remaining_s, event.lease_s, self._lease_s)
            gone = self._buffer.add(BufferedEvent(until, event.id, event, hops))
            if self._notes_storage:
                self._port.note(Fact("store", event.id))
                for evicted in gone:
                    self._port.note(Fact("evict", evicted.id, reason="buffer_full"))
            self._watch_leases(now)

    def start_round(self, now: float, neighbors: list[NodeId], is_interested: Callable[[NodeId, Event], bool]) -> None:
        """Send a random neighbor the ids of events that it may have missed."""
        self._port.set_timer("recover", self._period_s)
        self._expire(now)
        if not neighbors:
            return
        neighbor = self._rng.choice(neighbors)
        ids = [id for id, kept in self._buffer.events.items() if is_interested(neighbor, kept.event)]
        if ids:
            self._port.send(
                neighbor, RecoveryDigest(tuple([(id.source, id.sequence) for id in self._next_part(neighbor, ids)]))
            )

    def _next_part(self, neighbor: NodeId, ids: list[EventId]) -> list[EventId]:
        """The newest ids; in later rounds the ones before them, until all were sent."""
        if len(ids) <= MAX_IDS:
            self._progress.pop(neighbor, None)
            return ids
        sent = self._progress.get(neighbor, 0)
        sent = 0 if sent >= len(ids) else sent
        if neighbor not in self._progress and len(self._progress) >= MAX_PROGRESS:
            self._progress.clear()
        self._progress[neighbor] = sent + MAX_IDS
        end = len(ids) - sent
        return ids[max(0, end - MAX_IDS) : end]

    def on_lease(self, now: float) -> None:
        """The timer `LEASE`: remove expired events."""
        self._expire(now)
        self._leases.watch(now, again=True)

    def _watch_leases(self, now: float) -> None:
        """Events whose storage is noted are removed when their lease expires, not with the next round."""
        if self._notes_storage:
            self._leases.watch(now)

    def _expire(self, now: float) -> None:
        for ended in self._buffer.expire(now):
            if self._notes_storage:
                self._port.note(Fact("evict", ended.id, reason="lease_over"))

    def on_digest(self, sender: NodeId, message: RecoveryDigest, seen: Container[EventId]) -> None:
        """A neighbor has these events: request those that were missed here."""
        missed = tuple([pair for pair in message.events if EventId(*pair) not in seen])
        if missed:
            self._port.note(Fact("recover", peer=sender, value=float(len(missed))))
            self._port.send(sender, RecoveryRequest(missed))

    def on_request(self, now: float, sender: NodeId, message: RecoveryRequest) -> None:
        """A neighbor has missed these events: send those whose lease has not expired."""
        for pair in dict.fromkeys(message.events):
            kept = self._buffer.get(EventId(*pair))
            if kept is not None and kept.until > now:
                self._port.send(sender, Publish(kept.event, min(kept.hops + 1, MAX_HOPS), kept.until - now))
