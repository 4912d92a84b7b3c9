"""Group commit: the writes of many handlers share one transaction, and many transactions share one sync of the disk.

A commit takes longer than a write, and a sync takes much longer than a commit. So all writes of one turn of the event
loop are committed together, and all commits that happen during a sync wait together for the next sync (DeWitt et al.,
SIGMOD 1984). Messages of handlers whose writes are not committed yet are delayed until the commit, so that a node that
is killed has announced no event that it does not have after its restart.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeAlias

from carrycast.errors import WorkError
from carrycast.node.recorder import LOG
from carrycast.node.storage.store import NodeStore

PROBE_S = 1.0
"""The time between two checks of a full disk: rare enough to cost nothing, and soon enough for an operator who has just
made room."""

OnCommitted: TypeAlias = Callable[[WorkError | None], None]
"""Called when writes are committed, or with the reason why they are not."""


class GroupCommit:
    """Commits the writes of one node. Everything but the sync of the disk happens in the thread of the event loop."""

    def __init__(self, store: NodeStore) -> None:
        self.store = store
        self._loop = asyncio.get_running_loop()
        self._uncommitted: list[OnCommitted] = []
        """Callbacks that wait for the next commit."""
        self._unsynced: list[OnCommitted] = []
        """Callbacks that wait for the next sync."""
        self._syncing: asyncio.Future[None] | None = None
        # A thread of its own: the loop's threads resolve host names, and a name server may take seconds.
        self._disk = ThreadPoolExecutor(1, "disk")
        self._stopped = False
        self.failure: str | None = None
        """Why the last commit failed; None if it succeeded."""
        self.on_rollback: Callable[[], None] = _do_nothing
        """Called when a commit failed, before the waiting callbacks."""
        self._probing = False
        store.on_begin = self._on_begin

    def _on_begin(self) -> None:
        self._loop.call_soon(self.commit)

    @property
    def is_pending(self) -> bool:
        """Whether messages sent now have to wait for a commit."""
        return self.store.in_transaction or bool(self._uncommitted)

    def when_committed(self, then: OnCommitted) -> None:
        """Call this when all writes so far are committed, in the order of the calls; at once if they are."""
        if self.is_pending:
            self._uncommitted.append(then)
        else:
            then(None)

    def if_committed(self, then: Callable[[], None]) -> None:
        """Call this when all writes so far are committed; never, if that fails."""
        if self.is_pending:
            self._uncommitted.append(lambda error: then() if error is None else None)
        else:
            then()

    def when_synced(self, then: OnCommitted) -> None:
        """Call this when all writes so far would survive a power cut."""
        self.when_committed(lambda error: then(error) if error is not None else self._sync(then))

    def release_savepoint(self) -> None:
        """A handler has returned: its writes will be committed."""
        self.store.release_savepoint()

    def rollback_savepoint(self) -> None:
        """A handler has raised: its writes are undone."""
        self.store.rollback_savepoint()

    def commit(self) -> None:
        """Commit, and call the callbacks that wait for it."""
        if self._stopped:
            return
        idle = not self.store.in_transaction
        with suppress(WorkError):
            self.store.commit()
        error, self.store.failed = self.store.failed, None
        if idle and error is None:
            # An empty transaction says nothing about the disk.
            self._notify(None)
            return
        before, self.failure = self.failure, None if error is None else str(error)
        # Not with each commit: the log may be on the same disk.
        if self.failure is not None and before is None:
            LOG.error("%s; what is written meanwhile is lost", self.failure)
        elif self.failure is None and before is not None:
            LOG.warning("the store can be written again")
        if error is not None:
            self.on_rollback()
            self._probe_later()
        self._notify(error)

    def _notify(self, error: WorkError | None) -> None:
        waiting, self._uncommitted = self._uncommitted, []
        for then in waiting:
            then(error)

    def _probe_later(self) -> None:
        """A node with a full disk may write nothing for a long time, so the disk is checked by a timer."""
        if not self._probing:
            self._probing = True
            self._loop.call_later(PROBE_S, self._probe)

    def _probe(self) -> None:
        self._probing = False
        self.retry()

    def retry(self) -> None:
        """After a failed commit, check whether the disk has room again."""
        if self.failure is not None and not self._stopped:
            with suppress(WorkError):
                self.store.probe()
            self.commit()

    async def stop(self, crashed: bool = False) -> None:
        """Commit and sync the rest, unless the node simulates a crash."""
        if not crashed:
            self.commit()
        self._stopped = True
        while self._syncing is not None:
            await asyncio.wait([self._syncing])
        self._disk.shutdown()

    def _sync(self, then: OnCommitted) -> None:
        self._unsynced.append(then)
        if self._syncing is None:
            self._start_sync()

    def _start_sync(self) -> None:
        waiting, self._unsynced = self._unsynced, []
        self._syncing = self._loop.run_in_executor(self._disk, self.store.sync)
        self._syncing.add_done_callback(lambda done: self._on_synced(done, waiting))

    def _on_synced(self, done: "asyncio.Future[None]", waiting: list[OnCommitted]) -> None:
        self._syncing = None
        raised = done.exception()
        error = None if raised is None else WorkError(f"cannot write to the disk of the store: {raised}")
        if self._unsynced:
            self._start_sync()
        for then in waiting:
            then(error)


def _do_nothing() -> None:
    """The default of `on_rollback`."""
