"""Commits what the handlers of a node write, many of them at once, and says when it is on the disk.

A commit takes longer than a write, and a disk much longer than a commit. So what is written while the loop goes around
once is committed together, and what was committed while the disk writes waits together for its next turn. Until the
commit, what the handlers say to others is held back: a node that is killed has told nobody of what it forgot.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeAlias

from carrycast.errors import WorkError
from carrycast.node.record import LOG
from carrycast.node.runtime.store import NodeStore

PROBE_S = 1.0
"""How often it is looked whether a disk that was full has room again: seldom enough to cost nothing, and soon enough
for people who have just made some."""

Saved: TypeAlias = Callable[[WorkError | None], None]
"""Told that something is kept, or why it is not."""


class Saving:
    """Who commits the writes of one node. Everything but the disk's own work happens in the loop's thread."""

    def __init__(self, store: NodeStore) -> None:
        self.store = store
        self._loop = asyncio.get_running_loop()
        self._held: list[Saved] = []
        self._unsynced: list[Saved] = []
        self._syncing: asyncio.Future[None] | None = None
        # A thread of its own: those of the loop look up names, and a name server may take seconds.
        self._disk = ThreadPoolExecutor(1, "disk")
        self._stopped = False
        self.trouble: str | None = None
        """Why what was written last could not be kept."""
        self.undone: Callable[[], None] = _nobody
        """Called when what was written is not kept, before those who wait for it are told."""
        self._probing = False
        store.began = self._on_began

    def _on_began(self) -> None:
        self._loop.call_soon(self.save)

    @property
    def holds(self) -> bool:
        """Whether what is said now has to wait for a commit."""
        return self.store.unsaved or bool(self._held)

    def after(self, saved: Saved) -> None:
        """When all that was written so far is committed, in the order of asking; at once if it is."""
        if self.holds:
            self._held.append(saved)
        else:
            saved(None)

    def on_disk(self, saved: Saved) -> None:
        """When all that was written so far would outlive a power cut."""
        self.after(lambda lost: saved(lost) if lost is not None else self._sync(saved))

    def settle(self) -> None:
        """A handler has returned: its writes stay."""
        self.store.settle()

    def undo(self) -> None:
        """A handler has raised: its writes go."""
        self.store.undo()

    def save(self) -> None:
        """Commit, and let go what waited for it."""
        if self._stopped:
            return
        idle = not self.store.unsaved
        with suppress(WorkError):
            self.store.commit()
        lost, self.store.lost = self.store.lost, None
        if idle and lost is None:
            # Nothing was written, which says nothing of the disk.
            self._let_go(None)
            return
        before, self.trouble = self.trouble, None if lost is None else str(lost)
        # Not with each commit: the log may be on the same disk.
        if self.trouble is not None and before is None:
            LOG.error("%s; what is written meanwhile is lost", self.trouble)
        elif self.trouble is None and before is not None:
            LOG.warning("the store can be written again")
        if lost is not None:
            self.undone()
            self._probe_later()
        self._let_go(lost)

    def _let_go(self, lost: WorkError | None) -> None:
        held, self._held = self._held, []
        for saved in held:
            saved(lost)

    def _probe_later(self) -> None:
        """Nothing may be written while the disk is full, so somebody has to look whether it still is."""
        if not self._probing:
            self._probing = True
            self._loop.call_later(PROBE_S, self._probe)

    def _probe(self) -> None:
        self._probing = False
        self.try_again()

    def try_again(self) -> None:
        """See whether a disk that was full has room again."""
        if self.trouble is not None and not self._stopped:
            with suppress(WorkError):
                self.store.probe()
            self.save()

    async def stop(self, crashed: bool = False) -> None:
        """Commit and sync what is left, unless the node ends as if it had been killed."""
        if not crashed:
            self.save()
        self._stopped = True
        while self._syncing is not None:
            await asyncio.wait([self._syncing])
        self._disk.shutdown()

    def _sync(self, saved: Saved) -> None:
        self._unsynced.append(saved)
        if self._syncing is None:
            self._start_sync()

    def _start_sync(self) -> None:
        waiting, self._unsynced = self._unsynced, []
        self._syncing = self._loop.run_in_executor(self._disk, self.store.sync)
        self._syncing.add_done_callback(lambda done: self._on_synced(done, waiting))

    def _on_synced(self, done: "asyncio.Future[None]", waiting: list[Saved]) -> None:
        self._syncing = None
        error = done.exception()
        lost = None if error is None else WorkError(f"cannot write to the disk of the store: {error}")
        if self._unsynced:
            self._start_sync()
        for saved in waiting:
            saved(lost)


def _nobody() -> None:
    """Nobody keeps count of what is in the store."""
