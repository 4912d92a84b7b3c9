"""The retention contract, held against every node with a retention log (docs/guarantees.md).

Whenever a log changes: of each level, events accepted = events in the log + events removed by name. What is promised
leaves a log for no other reason than the contract names, and is back after each restart.
"""

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import CUSTODY, RetentionAccounts, RetentionLevel, RetentionLog
from carrycast.sim.engine.observers.checkers import ViolationError
from carrycast.trace import Kind


class RetentionCheckers:
    """The books of all nodes that keep a log."""

    def __init__(self) -> None:
        self._accounts: dict[NodeId, RetentionAccounts] = {}

    def __getitem__(self, node: NodeId) -> RetentionAccounts:
        """The books of a node that has a log."""
        return self._accounts[node]

    def on_start(self, node: NodeId, log: RetentionLog) -> None:
        """A node starts; its books go on."""
        self._accounts.setdefault(node, RetentionAccounts(node)).start(log)

    def on_started(self, now_s: float, node: NodeId) -> None:
        """Its protocol has dealt with what it found in its log."""
        if node in self._accounts:
            self._check(now_s, node, self._accounts[node].finish_start())

    def on_published(self, now_s: float, node: NodeId, event: EventId) -> None:
        """Its protocol has dealt with an event that was published there."""
        if node in self._accounts:
            self._accounts[node].on_published(event)
            self._check(now_s, node, None)

    def on_fact(self, now_s: float, node: NodeId, kind: str, event: EventId, reason: str) -> None:
        """Its protocol notes something of an event."""
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
            raise ViolationError(f"at {now_s} s node {node} broke its promise: {flaw}")

    def check(self, now_s: float) -> None:
        """The books of every node balance."""
        for node in self._accounts:
            self._check(now_s, node, None)

    def _check(self, now_s: float, node: NodeId, flaw: str | None) -> None:
        flaw = flaw or self._accounts[node].imbalance()
        if flaw is not None:
            raise ViolationError(f"at {now_s} s the books of node {node} do not balance: {flaw}")

    def accepted(self, level: RetentionLevel) -> int:
        """How many events came at a level, at all nodes."""
        found = (accounts.accounts().get(level) for accounts in self._accounts.values())
        return sum(account.accepted for account in found if account is not None)
