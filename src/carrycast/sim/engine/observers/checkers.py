"""Global oracles: rules that no protocol may break, held against what every node does.

A run that breaks one stops: numbers from a protocol that delivers wrongly are worth nothing.
"""

from array import array

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.errors import WorkError
from carrycast.sim.engine.observers.outputs import Made, Outputs

LEASE_SLACK_S = 1.0
"""Leases travel as remaining durations, less what a message waits on its way. A hop that takes up to 2 ms counts as no
wait and may lengthen a lease by as much: this is enough for five hundred of them."""

MAX_COPIES = 255
"""Of an event at one node. A node has a few stores, such as one for recovery and one of a repository."""


class ViolationError(WorkError):
    """A protocol broke a rule."""


class Checkers:
    """What must hold for every delivery and every stored copy."""

    def __init__(self, nodes: int, worst_drift: float = 0.0) -> None:
        self._nodes = nodes
        # What the slowest clock takes for a second is this much longer.
        self._stretch = 1 / (1 - worst_drift)
        self._events: dict[EventId, tuple[Event, float]] = {}
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._boots: dict[NodeId, int] = {}
        self._numbers: dict[SubscriptionId, int] = {}
        """A small number for each subscription there ever was, its place in `_given`."""
        self._given: dict[EventId, array[int]] = {}
        """To which subscriptions an event was delivered: 0 if not, else 1 and the boots of the node at the time."""
        self._outputs = Outputs()
        self._holders: dict[EventId, bytearray] = {}
        """How many copies of an event each node stores, a byte for each: one for each of its stores that has it."""

    def __len__(self) -> int:
        return len(self._events)

    def lease_over_s(self, published_s: float, lease_s: float) -> float:
        """From when on nobody may hold an event any more."""
        return published_s + lease_s * self._stretch + LEASE_SLACK_S

    def on_event(self, now_s: float, event: Event, made: Made | None = None) -> None:
        """Published by an application or derived by a registered processor."""
        if event.id in self._events:
            raise ViolationError(f"event {event.id} was made twice")
        self._events[event.id] = (event, now_s)
        self._given[event.id] = array("H", bytes(2 * len(self._numbers)))
        if made is not None:
            self._outputs.on_made(event.id, made)

    def on_subscribe(self, subscription: Subscription) -> None:
        """From now on this subscription may be served."""
        self._subscriptions[subscription.id] = subscription
        self._numbers.setdefault(subscription.id, len(self._numbers))

    def on_unsubscribe(self, subscription: SubscriptionId) -> None:
        """From now on it may not."""
        self._subscriptions.pop(subscription, None)

    def on_crash(self, node: NodeId) -> None:
        """Its copies are gone, and an application that crashed with it may get again what it got before."""
        self._boots[node] = self._boots.get(node, 0) + 1
        for holders in self._holders.values():
            holders[node] = 0

    def check_event(self, now_s: float, node: NodeId, event: Event) -> None:
        """What is handed to an application is real, and as it was made."""
        known = self._events.get(event.id)
        if known is None:
            raise ViolationError(f"at {now_s} s node {node} delivered event {event.id}, which is unknown or long over")
        if known[0] is not event and known[0] != event:
            raise ViolationError(f"at {now_s} s node {node} delivered event {event.id} with altered content")
        if now_s > self.lease_over_s(known[1], event.lease_s):
            raise ViolationError(f"at {now_s} s node {node} delivered event {event.id}, past its lease")

    def was_stored(self, id: EventId) -> bool:
        """Whether any node ever stored it."""
        return id in self._holders

    def on_deliver(self, now_s: float, node: NodeId, id: SubscriptionId, event: Event) -> None:
        """The event is real, the subscription stands, the two fit, and it is the first time."""
        self.check_event(now_s, node, event)
        subscription = self._subscriptions.get(id)
        if subscription is None or id.subscriber != node:
            raise ViolationError(f"at {now_s} s node {node} delivered to subscription {id}, which does not stand there")
        if subscription.processor is not None:
            flaw = self._outputs.flaw(event.id, subscription, self._boots.get(node, 0))
            if flaw is not None:
                raise ViolationError(f"at {now_s} s node {node} delivered event {event.id} to {id}, {flaw}")
        elif not serves(event, subscription):
            raise ViolationError(f"at {now_s} s node {node} delivered event {event.id} to {id}, which it does not fit")
        number, boots = self._numbers[id], self._boots.get(node, 0)
        given = self._given[event.id]
        if number >= len(given):
            given.extend([0] * (len(self._numbers) - len(given)))
        if given[number] > boots:
            raise ViolationError(f"at {now_s} s node {node} delivered event {event.id} to {id} a second time")
        given[number] = boots + 1

    def on_store(self, now_s: float, node: NodeId, id: EventId) -> None:
        """A node keeps a copy."""
        self._check_lease(now_s, node, id)
        holders = self._holders.get(id)
        if holders is None:
            holders = self._holders[id] = bytearray(self._nodes)
        if holders[node] == MAX_COPIES:
            raise ViolationError(
                f"at {now_s} s node {node} stored event {id} {MAX_COPIES} times and let none of them go"
            )
        holders[node] += 1

    def on_evict(self, now_s: float, node: NodeId, id: EventId) -> None:
        """A node lets a copy go."""
        self._check_lease(now_s, node, id)
        holders = self._holders.get(id)
        if holders is None or not holders[node]:
            raise ViolationError(f"at {now_s} s node {node} evicted event {id}, which it did not store")
        holders[node] -= 1

    def on_lease_over(self, now_s: float, id: EventId) -> None:
        """The lease and the slack are over: nobody may hold the event, and it can be forgotten here."""
        holders = self._holders.pop(id, None)
        if holders is not None and any(holders):
            holder = next(node for node, copies in enumerate(holders) if copies)
            raise ViolationError(f"at {now_s} s node {holder} still stored event {id}, past its lease")
        self._outputs.on_lease_over(id)
        del self._events[id]
        del self._given[id]

    def _check_lease(self, now_s: float, node: NodeId, id: EventId) -> None:
        known = self._events.get(id)
        if known is None or now_s > self.lease_over_s(known[1], known[0].lease_s):
            raise ViolationError(f"at {now_s} s node {node} still stored event {id}, past its lease")
