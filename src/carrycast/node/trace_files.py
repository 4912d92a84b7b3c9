"""The trace files of a live node, written periodically and when the node stops."""

import asyncio
import errno
import os
import time
from dataclasses import dataclass
from pathlib import Path

from carrycast.errors import WorkError
from carrycast.node.recorder import NodeRecorder
from carrycast.trace import Level


class DiskFullError(WorkError):
    """The disk has no room for a trace."""


@dataclass(frozen=True, slots=True)
class TraceConfig:
    """`[trace]`: the level of the trace and its directory; without a directory the trace stays in memory."""

    level: Level = Level.METRICS
    directory: Path | None = None
    run: str = "live"
    flush_s: float = 60.0

    def make_directory(self, name: str) -> Path | None:
        """Make a new directory for this start of the node, so that no trace overwrites an older one."""
        base = self.directory
        if base is None or self.level is Level.METRICS:
            return None
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        directory = base / f"{name}-{stamp}-{os.getpid()}"
        number = 1
        while directory.exists():
            number += 1
            directory = base / f"{name}-{stamp}-{os.getpid()}-{number}"
        try:
            directory.mkdir(parents=True)
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise DiskFullError(f"there is no room for the trace in {base}") from None
            raise WorkError(f"cannot write traces to {base}: {error.strerror or error}") from None
        return directory


class TraceWriter:
    """Writes the trace of one start of a node."""

    def __init__(self, recorder: NodeRecorder, config: TraceConfig, name: str) -> None:
        self._recorder = recorder
        self._directory: Path | None = None
        try:
            self._directory = config.make_directory(name)
        except DiskFullError as error:
            # A full disk ends the trace, not the node.
            recorder.end_trace(error)
        self._task: asyncio.Task[None] | None = None

    def start(self, period_s: float) -> None:
        """Write periodically."""
        if self._directory is not None:
            self._task = asyncio.create_task(self._write_periodically(period_s))

    async def stop(self) -> None:
        """Stop writing periodically."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def save(self) -> None:
        """Write the trace so far; a WorkError if that fails."""
        if self._directory is not None:
            try:
                self._recorder.trace.save(self._directory)
            except OSError as error:
                raise WorkError(f"cannot write the trace {self._directory}: {error.strerror or error}") from None

    async def _write_periodically(self, period_s: float) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                self.save()
            except WorkError as error:
                self._recorder.end_trace(error)
                return
