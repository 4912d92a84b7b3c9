"""Writes a node's trace to its folder: now and then, and at the end."""

import asyncio
from pathlib import Path

from carrycast.errors import WorkError
from carrycast.node.config import NoRoomError, TraceConfig
from carrycast.node.recorder import NodeRecorder


class TraceWriter:
    """Of one start of a node; without a folder the trace stays in memory."""

    def __init__(self, recorder: NodeRecorder, config: TraceConfig, name: str) -> None:
        self._recorder = recorder
        self._directory: Path | None = None
        try:
            self._directory = config.new_directory(name)
        except NoRoomError as error:
            # A full disk ends the trace, not the node.
            recorder.end_trace(error)
        self._task: asyncio.Task[None] | None = None

    def start(self, period_s: float) -> None:
        """Write again and again."""
        if self._directory is not None:
            self._task = asyncio.create_task(self._flush_for_ever(period_s))

    async def stop(self) -> None:
        """No longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def save(self) -> None:
        """Write what there is; a WorkError if that cannot be."""
        if self._directory is not None:
            try:
                self._recorder.trace.save(self._directory)
            except OSError as error:
                raise WorkError(f"cannot write the trace {self._directory}: {error.strerror or error}") from None

    async def _flush_for_ever(self, period_s: float) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                self.save()
            except WorkError as error:
                self._recorder.end_trace(error)
                return
