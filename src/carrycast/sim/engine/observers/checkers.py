"""Checkers: global invariants that end a run when a node violates one, because its metrics would be meaningless.

`Checkers` checks deliveries and stored copies, `AnswerCheckers` the answers to requests, and `RetentionCheckers` the
retention contract (docs/guarantees.md).
"""

import enum
from array import array

from carrycast.core.matching import serves
from carrycast.core.model import Event, EventId, NodeId, Request, RequestId, Subscription, SubscriptionId
from carrycast.core.protocol import CUSTODY, RetentionAccounts, RetentionLevel, RetentionLog
from carrycast.errors import WorkError
from carrycast.sim.engine.observers.derived_events import DerivedEvents, EventDerivation
from carrycast.trace import Kind

LEASE_SLACK_S = 1.0
"""Messages carry the remaining lease, and the time that a frame waits is subtracted from it. Waits of up to 2 ms are
ignored, so a hop may extend a lease by 2 ms. This slack covers 500 hops."""

MAX_COPIES = 255
"""The most copies of one event that a node may store. A node has few stores, such as one for recovery."""


class ViolationError(WorkError):
    """A protocol violated an invariant."""


class Violation(enum.IntEnum):
    """The violations of invariants about deliveries and copies."""

    UNKNOWN = 0
    ALTERED = 1
    PAST_LEASE = 2
    NO_SUBSCRIPTION = 3
    DOES_NOT_FIT = 4
    SECOND_TIME = 5
    STORED_PAST_LEASE = 6
    TOO_MANY_COPIES = 7
    NOT_STORED = 8

    def error(
        self, now_s: float, node: NodeId, event: EventId, subscription: SubscriptionId | None = None
    ) -> ViolationError:
        """The error that ends the run."""
        text = _TEXTS[self].format(event=event, subscription=subscription)
        return ViolationError(f"at {now_s} s node {node} {text}")


_TEXTS = {
    Violation.UNKNOWN: "delivered event {event}, which is unknown or long over",
    Violation.ALTERED: "delivered event {event} with altered content",
    Violation.PAST_LEASE: "delivered event {event}, past its lease",
    Violation.NO_SUBSCRIPTION: "delivered to subscription {subscription}, which does not stand there",
    Violation.DOES_NOT_FIT: "delivered event {event} to {subscription}, which it does not fit",
    Violation.SECOND_TIME: "delivered event {event} to {subscription} a second time",
    Violation.STORED_PAST_LEASE: "still stored event {event}, past its lease",
    Violation.TOO_MANY_COPIES: f"stored event {{event}} {MAX_COPIES} times and let none of them go",
    Violation.NOT_STORED: "evicted event {event}, which it did not store",
}


class Checkers:
    """Checks every delivery and every stored copy."""

    def __init__(self, nodes: int, worst_drift: float = 0.0) -> None:
        self._nodes = nodes
        # The length of a second of the slowest clock.
        self._stretch = 1 / (1 - worst_drift)
        self._events: dict[EventId, tuple[Event, float]] = {}
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._boots: dict[NodeId, int] = {}
        self._numbers: dict[SubscriptionId, int] = {}
        """Subscription -> its index in the arrays of `_given`. Ended subscriptions keep theirs."""
        self._given: dict[EventId, array[int]] = {}
        """Event -> for each subscription 0 if it was not delivered, else 1 plus the crashes of the node until then."""
        self._derived = DerivedEvents()
        self._holders: dict[EventId, bytearray] = {}
        """Event -> the number of copies that each node stores, one byte per node."""

    def __len__(self) -> int:
        return len(self._events)

    def expiry_s(self, published_s: float, lease_s: float) -> float:
        """The time after which no node may hold an event."""
        return published_s + lease_s * self._stretch + LEASE_SLACK_S

    def on_event(self, now_s: float, event: Event, derivation: EventDerivation | None = None) -> None:
        """An application published an event, or a processor derived one."""
        if event.id in self._events:
            raise ViolationError(f"event {event.id} was made twice")
        self._events[event.id] = (event, now_s)
        self._given[event.id] = self._make_given()
        if derivation is not None:
            self._derived.on_derived(event.id, derivation)

    def _make_given(self) -> "array[int]":
        return array("H", bytes(2 * len(self._numbers)))

    def on_subscribe(self, subscription: Subscription) -> None:
        """A subscription begins; events may be delivered to it."""
        self._subscriptions[subscription.id] = subscription
        self._numbers.setdefault(subscription.id, len(self._numbers))

    def on_unsubscribe(self, subscription: SubscriptionId) -> None:
        """A subscription ends; no more events may be delivered to it."""
        self._subscriptions.pop(subscription, None)

    def on_crash(self, node: NodeId) -> None:
        """A node crashes: its copies are gone, and its applications may receive an event again."""
        self._boots[node] = self._boots.get(node, 0) + 1
        for holders in self._holders.values():
            holders[node] = 0

    def check_event(self, now_s: float, node: NodeId, event: Event) -> None:
        """An event given to an application was published, is unaltered, and has not expired."""
        known = self._events.get(event.id)
        if known is None:
            raise Violation.UNKNOWN.error(now_s, node, event.id)
        if known[0] is not event and known[0] != event:
            raise Violation.ALTERED.error(now_s, node, event.id)
        if now_s > self.expiry_s(known[1], event.lease_s):
            raise Violation.PAST_LEASE.error(now_s, node, event.id)

    def was_stored(self, id: EventId) -> bool:
        """Whether any node has stored an event."""
        return id in self._holders

    def on_deliver(self, now_s: float, node: NodeId, id: SubscriptionId, event: Event) -> None:
        """A delivery is valid if the event is, the subscription exists and matches, and it is the first one."""
        self.check_event(now_s, node, event)
        subscription = self._subscriptions.get(id)
        if subscription is None or id.subscriber != node:
            raise Violation.NO_SUBSCRIPTION.error(now_s, node, event.id, id)
        if subscription.processor is not None:
            flaw = self._derived.find_flaw(event.id, subscription, self._boots.get(node, 0))
            if flaw is not None:
                raise ViolationError(f"at {now_s} s node {node} delivered event {event.id} to {id}, {flaw}")
        elif not serves(event, subscription):
            raise Violation.DOES_NOT_FIT.error(now_s, node, event.id, id)
        number, boots = self._numbers[id], self._boots.get(node, 0)
        given = self._given[event.id]
        if number >= len(given):
            given.extend([0] * (len(self._numbers) - len(given)))
        if given[number] > boots:
            raise Violation.SECOND_TIME.error(now_s, node, event.id, id)
        given[number] = boots + 1

    def on_store(self, now_s: float, node: NodeId, id: EventId) -> None:
        """A node stores a copy."""
        self._check_lease(now_s, node, id)
        holders = self._holders.get(id)
        if holders is None:
            holders = self._holders[id] = bytearray(self._nodes)
        if holders[node] == MAX_COPIES:
            raise Violation.TOO_MANY_COPIES.error(now_s, node, id)
        holders[node] += 1

    def on_evict(self, now_s: float, node: NodeId, id: EventId) -> None:
        """A node removes a copy."""
        self._check_lease(now_s, node, id)
        holders = self._holders.get(id)
        if holders is None or not holders[node]:
            raise Violation.NOT_STORED.error(now_s, node, id)
        holders[node] -= 1

    def on_expired(self, now_s: float, id: EventId) -> None:
        """The lease and the slack have expired: no node may hold the event, and its records are removed."""
        holder = self._pop_holders(id)
        if holder is not None:
            raise Violation.STORED_PAST_LEASE.error(now_s, holder, id)
        self._derived.on_expired(id)
        del self._events[id]
        del self._given[id]

    def _pop_holders(self, id: EventId) -> NodeId | None:
        """Forget who stores an event; the first of the nodes that do."""
        holders = self._holders.pop(id, None)
        if holders is None or not any(holders):
            return None
        return next(node for node, copies in enumerate(holders) if copies)

    def _check_lease(self, now_s: float, node: NodeId, id: EventId) -> None:
        known = self._events.get(id)
        if known is None or now_s > self.expiry_s(known[1], known[0].lease_s):
            raise Violation.STORED_PAST_LEASE.error(now_s, node, id)


class AnswerCheckers:
    """Checks answers to requests: each event was stored, matches, is admitted, and goes once, only to the requester."""

    def __init__(self, checkers: Checkers) -> None:
        self._checkers = checkers
        self._open: dict[RequestId, tuple[Request, set[EventId]]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def on_request(self, request: Request) -> None:
        """A request opens; it may be answered."""
        self._open[request.id] = (request, set())

    def on_answer(self, now_s: float, node: NodeId, id: RequestId, event: Event) -> None:
        """A node gives a stored event to the application that requested it."""
        known = self._open.get(id)
        if known is None or id.requester != node:
            raise ViolationError(f"at {now_s} s node {node} answered request {id}, which is not open there")
        request, taken = known
        self._checkers.check_event(now_s, node, event)
        if not self._checkers.was_stored(event.id):
            raise ViolationError(f"at {now_s} s node {node} answered {id} with event {event.id}, which nobody stored")
        asker = Subscription(SubscriptionId(node, 0), request.filter, attributes=request.attributes)
        if not serves(event, asker):
            raise ViolationError(f"at {now_s} s node {node} answered {id} with event {event.id}, which it does not fit")
        if event.id in taken:
            raise ViolationError(f"at {now_s} s node {node} answered {id} with event {event.id} a second time")
        taken.add(event.id)

    def on_close(self, now_s: float, node: NodeId, id: RequestId) -> None:
        """A node closes a request: no more answers will come."""
        if id.requester != node or self._open.pop(id, None) is None:
            raise ViolationError(f"at {now_s} s node {node} closed request {id}, which is not open there")

    def on_crash(self, node: NodeId) -> None:
        """The applications of a crashed node are gone, and so are their requests."""
        for id in [id for id in self._open if id.requester == node]:
            del self._open[id]


class RetentionCheckers:
    """Checks the retention log of every node that has one (docs/guarantees.md).

    After each change of a log, at each retention level: events accepted = events in the log + events removed with a
    reason. A guaranteed event leaves a log only for a reason that the contract names, and is back after each restart.
    """

    def __init__(self) -> None:
        self._accounts: dict[NodeId, RetentionAccounts] = {}

    def __getitem__(self, node: NodeId) -> RetentionAccounts:
        """The retention accounts of a node that has a log."""
        return self._accounts[node]

    def on_start(self, node: NodeId, log: RetentionLog) -> None:
        """A node starts; its retention accounts continue."""
        self._accounts.setdefault(node, RetentionAccounts(node)).start(log)

    def on_started(self, now_s: float, node: NodeId) -> None:
        """The protocol of a node has processed the contents of its log."""
        if node in self._accounts:
            self._check(now_s, node, self._accounts[node].finish_start())

    def on_published(self, now_s: float, node: NodeId, event: EventId) -> None:
        """The protocol of a node has processed an event that was published there."""
        if node in self._accounts:
            self._accounts[node].on_published(event)
            self._check(now_s, node, None)

    def on_fact(self, now_s: float, node: NodeId, kind: str, event: EventId, reason: str) -> None:
        """The protocol of a node noted a fact about an event."""
        accounts = self._accounts.get(node)
        if accounts is None:
            return
        flaw = None
        if kind == Kind.STORE:
            accounts.on_store(event)
        elif kind == Kind.EVICT:
            flaw = accounts.on_evict(event, reason)
        elif kind == CUSTODY:
            accounts.on_custody(event)
        elif kind == Kind.DROP:
            flaw = accounts.on_drop(event, reason)
        if flaw is not None:
            raise ViolationError(f"at {now_s} s node {node} violated the retention contract: {flaw}")

    def check(self, now_s: float) -> None:
        """Check that the accounts of every node balance."""
        for node in self._accounts:
            self._check(now_s, node, None)

    def _check(self, now_s: float, node: NodeId, flaw: str | None) -> None:
        flaw = flaw or self._accounts[node].imbalance()
        if flaw is not None:
            raise ViolationError(f"at {now_s} s the retention accounts of node {node} do not balance: {flaw}")

    def count_accepted(self, level: RetentionLevel) -> int:
        """The number of events accepted at a level, at all nodes."""
        found = (accounts.accounts().get(level) for accounts in self._accounts.values())
        return sum(account.accepted for account in found if account is not None)
