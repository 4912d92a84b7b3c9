"""What a node knows of the others: their meeting likelihoods and subscriptions, and which events were delivered."""

import heapq
from collections.abc import Collection, Iterator
from math import inf

from carrycast.core.model import Event, EventId, NodeId
from carrycast.core.parts import ProfileVersion, SubscriberProfiles
from carrycast.protocols.maxprop.messages import (
    FIXED_POINT_ONE,
    MAX_DESTINATIONS,
    MAX_LIKELIHOODS,
    DeliveryAck,
    MeetingLikelihood,
    NodeRecord,
)
from carrycast.protocols.maxprop.rules import find_path_costs, update_likelihoods

MAX_ACKED = 65_536
"""Events with acknowledgements that a node remembers. It bounds the memory that forged ones can use."""


class MeetingTable:
    """The records of all known nodes, this one's among them. Costs are cached until a record changes."""

    def __init__(self, node: NodeId, alpha: float, nodes: int) -> None:
        self._node = node
        self._alpha = alpha
        self._most = nodes
        self._vectors: dict[NodeId, dict[NodeId, float]] = {node: {}}
        """Meeting likelihoods by node; this node first, then in the order of their updates."""
        self._profiles = SubscriberProfiles()
        self._costs: dict[NodeId, dict[NodeId, float]] = {}
        self._destinations: dict[EventId, tuple[int, list[NodeId]]] = {}

    def __len__(self) -> int:
        return len(self._vectors)

    @property
    def own(self) -> dict[NodeId, float]:
        """This node's meeting likelihoods."""
        return self._vectors[self._node]

    def meet(self, neighbor: NodeId) -> None:
        """This node has met another."""
        self._set(self._node, update_likelihoods(self.own, neighbor, self._alpha))

    def version(self, node: NodeId) -> ProfileVersion | None:
        """The version of a node's known record."""
        return self._profiles.version(node)

    def nodes(self) -> Iterator[NodeId]:
        """The nodes with a record from themselves."""
        return (node for node in self._vectors if node != self._node)

    def add(self, record: NodeRecord, filters: tuple[str, ...]) -> bool:
        """Store a record if it is newer; False if a filter is malformed."""
        node, known = record.node, self.version(record.node)
        if node == self._node or (known is not None and record.version <= known):
            return True
        if not self._profiles.add(node, record.version, filters):
            return False
        self._vectors.pop(node, None)
        self._set(node, {other: value / FIXED_POINT_ONE for other, value in record.likelihoods})
        if len(self._vectors) > self._most + 1:
            oldest = next(self.nodes())
            del self._vectors[oldest]
            self._profiles.remove(oldest)
        return True

    def record(self, node: NodeId, version: ProfileVersion, filters: tuple[str, ...]) -> NodeRecord:
        """The record of a node to send, with its highest likelihoods."""
        best = heapq.nlargest(MAX_LIKELIHOODS, self._vectors[node].items(), key=lambda one: one[1])
        likelihoods = tuple(MeetingLikelihood(other, round(value * FIXED_POINT_ONE)) for other, value in best)
        return NodeRecord(node, version, likelihoods, filters)

    def filters(self, node: NodeId) -> tuple[str, ...]:
        """The known filters of a node."""
        return self._profiles.filters(node)

    def destinations(self, event: Event) -> list[NodeId]:
        """The other nodes with a filter that matches an event."""
        cached = self._destinations.get(event.id)
        if cached is None or cached[0] != self._profiles.changes:
            found = [node for node in self._profiles.destinations(event) if node not in (self._node, event.source)]
            cached = self._destinations[event.id] = (self._profiles.changes, found)
        return cached[1]

    def forget(self, event: EventId) -> None:
        """An event is no longer carried."""
        self._destinations.pop(event, None)

    def cost(self, start: NodeId, destinations: Collection[NodeId]) -> float:
        """The cost of the cheapest path from a node to the nearest of these destinations; infinite without a path."""
        costs = self._costs.get(start)
        if costs is None:
            costs = self._costs[start] = find_path_costs(self._vectors, start)
        return min((costs.get(node, inf) for node in destinations), default=inf)

    def _set(self, node: NodeId, vector: dict[NodeId, float]) -> None:
        if len(vector) > MAX_LIKELIHOODS:
            vector = dict(heapq.nlargest(MAX_LIKELIHOODS, vector.items(), key=lambda one: one[1]))
        self._vectors[node] = vector
        self._costs.clear()


class KnownDeliveries:
    """To which destinations events were delivered, until their leases expire."""

    def __init__(self) -> None:
        self._until: dict[EventId, float] = {}
        self._destinations: dict[EventId, dict[NodeId, None]] = {}

    def __len__(self) -> int:
        return len(self._until)

    def add(self, event: EventId, until: float, destinations: Collection[NodeId]) -> bool:
        """Destinations have received an event; False if there are too many events."""
        known = self._destinations.get(event)
        if known is None:
            if len(self._until) >= MAX_ACKED:
                return False
            known = self._destinations[event] = {}
        self._until[event] = max(until, self._until.get(event, until))
        for node in destinations:
            if len(known) < MAX_DESTINATIONS:
                known[node] = None
        return True

    def find_open(self, event: EventId, destinations: list[NodeId]) -> list[NodeId]:
        """The destinations that are not known to have an event."""
        known = self._destinations.get(event)
        return destinations if known is None else [node for node in destinations if node not in known]

    def expire(self, now: float) -> None:
        """Forget the events whose leases have expired."""
        for event in [event for event, until in self._until.items() if until <= now]:
            del self._until[event], self._destinations[event]

    def acks(self, now: float) -> list[DeliveryAck]:
        """All acknowledgements, to send them."""
        self.expire(now)
        return [
            DeliveryAck(event, self._until[event] - now, tuple(nodes)) for event, nodes in self._destinations.items()
        ]
