"""The retention contract, held against every node with a retention log (docs/guarantees.md).

Whenever a log changes: of each level, events accepted = events in the log + events removed by name. What is promised
leaves a log for no other reason than the contract names, and is back after each restart.
"""

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol.ledger import CUSTODY, Ledger
from carrycast.core.protocol.retention import Level, RetentionLog
from carrycast.sim.engine.observers.checkers import ViolationError
from carrycast.trace import Kind


class RetentionCheckers:
    """The books of all nodes that keep a log."""

    def __init__(self) -> None:
        self._ledgers: dict[NodeId, Ledger] = {}

    def __getitem__(self, node: NodeId) -> Ledger:
        """The books of a node that has a log."""
        return self._ledgers[node]

    def on_start(self, node: NodeId, log: RetentionLog) -> None:
        """A node starts; its books go on."""
        self._ledgers.setdefault(node, Ledger(node)).start(log)

    def on_started(self, now_s: float, node: NodeId) -> None:
        """Its protocol has dealt with what it found in its log."""
        if node in self._ledgers:
            self._check(now_s, node, self._ledgers[node].started())

    def on_published(self, now_s: float, node: NodeId, event: EventId) -> None:
        """Its protocol has dealt with an event that was published there."""
        if node in self._ledgers:
            self._ledgers[node].on_published(event)
            self._check(now_s, node, None)

    def on_fact(self, now_s: float, node: NodeId, kind: str, event: EventId, reason: str) -> None:
        """Its protocol notes something of an event."""
        ledger = self._ledgers.get(node)
        if ledger is None:
            return
        flaw = None
        if kind == Kind.STORE:
            ledger.on_store(event)
        elif kind == Kind.EVICT:
            flaw = ledger.on_evict(event, reason)
        elif kind == CUSTODY:
            ledger.on_custody(event)
        elif kind == Kind.DROP:
            flaw = ledger.on_drop(event, reason)
        if flaw is not None:
            raise ViolationError(f"at {now_s} s node {node} broke its promise: {flaw}")

    def check(self, now_s: float) -> None:
        """The books of every node balance."""
        for node in self._ledgers:
            self._check(now_s, node, None)

    def _check(self, now_s: float, node: NodeId, flaw: str | None) -> None:
        flaw = flaw or self._ledgers[node].imbalance()
        if flaw is not None:
            raise ViolationError(f"at {now_s} s the books of node {node} do not balance: {flaw}")

    def accepted(self, level: Level) -> int:
        """How many events came at a level, at all nodes."""
        found = (ledger.accounts().get(level) for ledger in self._ledgers.values())
        return sum(account.accepted for account in found if account is not None)
