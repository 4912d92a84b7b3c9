"""Which events a node promises to keep, and the books of what it keeps (docs/guarantees.md).

The books are written with the retention log, in the same commit, so that they go on after a restart.
"""

from collections.abc import Mapping

from carrycast.core.model import Event
from carrycast.core.protocol.ledger import Account
from carrycast.core.protocol.optional import log_of
from carrycast.core.protocol.retention import Level, Usage
from carrycast.errors import UserError, WorkError
from carrycast.node.record import LOG, Record
from carrycast.node.runtime.runtime import Runtime
from carrycast.node.runtime.saving import Saving

PREFIX = "retention/"
"""Of the names of the counters in the store."""


class Retention:
    """Of one node."""

    def __init__(self, runtime: Runtime, record: Record, saving: Saving) -> None:
        self._runtime = runtime
        self._ledger = record.ledger
        self._saving = saving
        self.log = log_of(runtime.protocol)
        self._written: dict[str, int] = {}
        if self.log is not None:
            self._written = saving.store.counters(PREFIX)
            self._ledger.restore(self._written)
            saving.store.committing, saving.store.not_committed = self._write, self._undo
        self._ledger.start(self.log)

    def started(self) -> None:
        """The protocol has dealt with what it found in its log."""
        missing = self._ledger.started()
        if missing is not None:
            LOG.error("the store could not be written when the node last ran: %s", missing)

    def refusal(self, event: Event) -> UserError | WorkError | None:
        """Why an event cannot be promised to be kept; None if it can."""
        assert self.log is not None
        self._saving.try_again()
        if self._saving.trouble is not None:
            return WorkError(f"{self._saving.trouble}; nothing is stored until there is room on the disk")
        return self.log.refusal(event)

    def publish(self, event: Event, promised: bool) -> bool:
        """Hand an event to the protocol, as one that is promised to be kept or not; False if the protocol failed."""
        runtime, log = self._runtime, self.log
        if promised and log is not None:
            log.pledge(event.id)
            done = runtime.on_publish(runtime.now, event)
            log.pledge(None)
        else:
            done = runtime.on_publish(runtime.now, event)
        if done:
            self._ledger.on_published(event.id)
        return done

    @property
    def accounts(self) -> Mapping[Level, Account]:
        """Of each level, how many events came and what became of them."""
        return self._ledger.accounts()

    @property
    def usage(self) -> Mapping[Level, Usage]:
        """What is in the log right now."""
        return {} if self.log is None else self.log.usage

    @property
    def trouble(self) -> str | None:
        """What keeps the node from keeping more, or what it has: for those who look after it."""
        return self._saving.trouble or self._ledger.imbalance() or (None if self.log is None else self.log.full)

    def _write(self) -> None:
        """What has changed in the books since the last commit."""
        store, before = self._saving.store, self._written
        now = self._ledger.counters()
        for name, number in now.items():
            if before.get(name) != number:
                store.set_counter(PREFIX + name, number)
        self._written = now

    def _undo(self) -> None:
        """A commit failed: nothing of what was written counts."""
        self._written = {}
