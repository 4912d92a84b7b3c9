"""Recovery of lost publications among brokers, by gossip [000 §VII: "by complementing our system with ... epidemic
algorithms we expect to easily obtain a full delivery"].

Now and then a broker tells one neighbor at random which events it has seen of late that this neighbor wants; whoever
misses some asks for them. What comes then is passed on as if it had come in time. With a durable store all that
outlives a crash, and a client offers its broker in the same way what it has published itself.
"""

import math
from collections.abc import Callable, Container
from random import Random

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.parts.buffer import BufferedEvent, LeaseTimer, make_memory, restore_buffer
from carrycast.core.parts.log import DurableLog
from carrycast.core.protocol import DurableStore, Fact, Port
from carrycast.protocols.tree.messages import Ids, Publish, Want
from carrycast.protocols.tree.settings import TreeSettings
from carrycast.services.retrieval.messages import MAX_HOPS

LEASE = "recovery lease"
MAX_IDS = 256
MAX_TOLD = 4096
"""Neighbors of which it is known how far they were told."""
GRACE_S = 60.0
"""How long past the end of a lease an event is remembered: other nodes may have met it a little later."""


class Recovery:
    """The events that one node can give to others, and its part in the gossip about them."""

    def __init__(self, port: Port, rng: Random, settings: TreeSettings, store: DurableStore) -> None:
        self._port = port
        self._rng = rng
        self._period_s = settings.recover_s
        self._lease_s = settings.recover_lease_s
        self._tells = settings.durable
        self.log: DurableLog | None = None
        if settings.durable:
            self.log = DurableLog(store, settings.log_bytes, settings.recover_lease_s, "recover_lease_s")
        self._buffer, self.met = make_memory(settings.recover_buffer, self.log, store)
        self._leases = LeaseTimer(port, self._buffer, LEASE)
        self._told: dict[NodeId, int] = {}
        """Of neighbors that want more than is said at once: up to where they were told."""

    def start(self, now: float) -> None:
        """Go on with what was kept; the first round comes at a random moment."""
        if self._period_s < math.inf:
            self._port.set_timer("recover", self._period_s * self._rng.random())
            restore_buffer(self._port, now, self._buffer, self._lease_s)
            self.met.load(now + self._lease_s + GRACE_S)
            self._watch_leases(now)

    def remembered_s(self, remaining_s: float) -> float:
        """How long an event has to be remembered, so that it is not taken again from who keeps it."""
        return min(remaining_s, self._lease_s) + GRACE_S if self._period_s < math.inf else 0.0

    def keep(self, now: float, event: Event, hops: int, remaining_s: float) -> None:
        """An event was met."""
        if self._period_s < math.inf and event.id not in self._buffer:
            self._expire(now)
            until = now + min(remaining_s, event.lease_s, self._lease_s)
            gone = self._buffer.add(BufferedEvent(until, event.id, event, hops))
            if self._tells:
                self._port.note(Fact("store", event.id))
                for evicted in gone:
                    self._port.note(Fact("evict", evicted.id, reason="buffer_full"))
            self._watch_leases(now)

    def round(self, now: float, neighbors: list[NodeId], wants: Callable[[NodeId, Event], bool]) -> None:
        """Tell one neighbor what it may have missed."""
        self._port.set_timer("recover", self._period_s)
        self._expire(now)
        if not neighbors:
            return
        neighbor = self._rng.choice(neighbors)
        ids = [id for id, kept in self._buffer.events.items() if wants(neighbor, kept.event)]
        if ids:
            self._port.send(neighbor, Ids(tuple([(id.source, id.sequence) for id in self._next(neighbor, ids)])))

    def _next(self, neighbor: NodeId, ids: list[EventId]) -> list[EventId]:
        """The newest; in later rounds those before them, until all were told."""
        if len(ids) <= MAX_IDS:
            self._told.pop(neighbor, None)
            return ids
        told = self._told.get(neighbor, 0)
        told = 0 if told >= len(ids) else told
        if neighbor not in self._told and len(self._told) >= MAX_TOLD:
            self._told.clear()
        self._told[neighbor] = told + MAX_IDS
        end = len(ids) - told
        return ids[max(0, end - MAX_IDS) : end]

    def on_lease(self, now: float) -> None:
        """The timer `LEASE`: what is over goes."""
        self._expire(now)
        self._leases.watch(now, again=True)

    def _watch_leases(self, now: float) -> None:
        """What a node tells that it stores is let go when its lease ends, not with the next round."""
        if self._tells:
            self._leases.watch(now)

    def _expire(self, now: float) -> None:
        for ended in self._buffer.expire(now):
            if self._tells:
                self._port.note(Fact("evict", ended.id, reason="lease_over"))

    def on_ids(self, sender: NodeId, message: Ids, seen: Container[EventId]) -> None:
        """A neighbor has these; those that never came here are asked for."""
        missed = tuple([pair for pair in message.events if EventId(*pair) not in seen])
        if missed:
            self._port.note(Fact("recover", peer=sender, value=float(len(missed))))
            self._port.send(sender, Want(missed))

    def on_want(self, now: float, sender: NodeId, message: Want) -> None:
        """A neighbor missed these; what is still good is sent."""
        for pair in dict.fromkeys(message.events):
            kept = self._buffer.get(EventId(*pair))
            if kept is not None and kept.until > now:
                self._port.send(sender, Publish(kept.event, min(kept.hops + 1, MAX_HOPS), kept.until - now))
