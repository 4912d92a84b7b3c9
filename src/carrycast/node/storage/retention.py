"""The retention guarantees of a node, and the accounts of the events that it keeps (docs/retention.md).

The accounts are written in the same commit as the retention log, so they continue after a restart.
"""

from collections.abc import Mapping

from carrycast.core.model import Event
from carrycast.core.protocol import LevelAccount, Protocol, RetentionLevel, Usage, log_of
from carrycast.errors import UserError, WorkError
from carrycast.node.recorder import LOG, NodeRecorder
from carrycast.node.storage.group_commit import GroupCommit

PREFIX = "retention/"
"""The names of the retention counters in the store begin with this."""


class Retention:
    """The retention log of one node's protocol, and its accounts."""

    def __init__(self, protocol: Protocol, recorder: NodeRecorder, group_commit: GroupCommit) -> None:
        self._accounts = recorder.retention_accounts
        self._group_commit = group_commit
        self.log = log_of(protocol)
        self._written: dict[str, int] = {}
        if self.log is not None:
            self._written = group_commit.store.read_counters(PREFIX)
            self._accounts.restore(self._written)
            group_commit.store.before_commit, group_commit.store.on_rollback = self._write, self._undo
        self._accounts.start(self.log)

    def on_started(self) -> None:
        """The protocol has restored the events in its log."""
        missing = self._accounts.finish_start()
        if missing is not None:
            LOG.error("the store could not be written when the node last ran: %s", missing)

    def check(self, event: Event) -> UserError | WorkError | None:
        """Return the error if the node cannot guarantee to keep an event; None if it can."""
        assert self.log is not None
        self._group_commit.retry()
        if self._group_commit.failure is not None:
            return WorkError(f"{self._group_commit.failure}; nothing is stored until there is room on the disk")
        return self.log.rejection(event)

    def on_published(self, event: Event) -> None:
        """The protocol has accepted an event."""
        self._accounts.on_published(event.id)

    @property
    def accounts(self) -> Mapping[RetentionLevel, LevelAccount]:
        """For each level, how many events were accepted, kept and removed."""
        return self._accounts.accounts()

    @property
    def usage(self) -> Mapping[RetentionLevel, Usage]:
        """The present content of the log, by level."""
        return {} if self.log is None else self.log.usage

    @property
    def failure(self) -> str | None:
        """Why the node cannot keep more events, or has lost some; for health checks."""
        return self._group_commit.failure or self._accounts.imbalance() or (None if self.log is None else self.log.full)

    def _write(self) -> None:
        """Add the counters that have changed since the last commit to the next one."""
        store, before = self._group_commit.store, self._written
        now = self._accounts.counters()
        for name, number in now.items():
            if before.get(name) != number:
                store.set_counter(PREFIX + name, number)
        self._written = now

    def _undo(self) -> None:
        """A commit failed, so every counter has to be written again."""
        self._written = {}
