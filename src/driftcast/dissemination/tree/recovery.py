"""Recovery of lost publications among brokers, by gossip [000 §VII: "by complementing our system with ... epidemic
algorithms we expect to easily obtain a full delivery"].

Now and then a broker tells one neighbor at random which events it has seen of late that this neighbor wants; whoever
misses some asks for them. What comes then is passed on as if it had come in time.
"""

import math
from collections.abc import Container
from random import Random

from driftcast.dissemination.tree.messages import Ids, Publish, Want
from driftcast.dissemination.tree.settings import TreeSettings
from driftcast.dissemination.tree.talk import Talk
from driftcast.model import Event, EventId, NodeId
from driftcast.parts.buffer import LeasedBuffer, Stored
from driftcast.protocol import Fact, Port
from driftcast.services.retrieval.messages import MAX_HOPS

MAX_IDS = 256


class Recovery:
    """The events that one node can give to others, and its part in the gossip about them."""

    def __init__(self, port: Port, rng: Random, settings: TreeSettings) -> None:
        self._port = port
        self._rng = rng
        self._period_s = settings.recover_s
        self._buffer = LeasedBuffer(settings.recover_buffer)

    def start(self) -> None:
        """The first round comes at a random moment."""
        if self._period_s < math.inf:
            self._port.set_timer("recover", self._period_s * self._rng.random())

    def keep(self, now: float, event: Event, hops: int, remaining_s: float) -> None:
        """An event was met."""
        if self._period_s < math.inf and event.id not in self._buffer:
            self._buffer.expire(now)
            self._buffer.add(Stored(now + remaining_s, event.id, event, hops))

    def round(self, now: float, neighbors: list[NodeId], talk: Talk) -> None:
        """Tell one neighbor what it may have missed."""
        self._port.set_timer("recover", self._period_s)
        self._buffer.expire(now)
        if not neighbors:
            return
        neighbor = self._rng.choice(neighbors)
        ids = [id for id, kept in self._buffer.events.items() if neighbor in talk.wanting(kept.event.attributes)]
        if ids:
            self._port.send(neighbor, Ids(tuple([(id.source, id.sequence) for id in ids[-MAX_IDS:]])))

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
