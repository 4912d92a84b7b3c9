"""The load of a node: the share of time in which its handlers, their effects and its processors run."""

import asyncio
import os
import time
from pathlib import Path

from carrycast.core.utilization import DEFAULT_WINDOW_S, Utilization

_MEMINFO = Path("/proc/meminfo")


class LoadMeter:
    """Measures the load. Work runs within `with load_meter:`; several may at a time, since processors are processes.

    Handlers are too many and too short to be timed one by one: the first one of a turn of the event loop counts as
    running until the turn ends. This is not the machine's load average, which includes other programs and other nodes.
    """

    def __init__(self, window_s: float = DEFAULT_WINDOW_S) -> None:
        self._busy = Utilization(window_s)
        self._running = 0
        self._since_s = 0.0
        self.in_turn = False
        """Whether the present turn of the event loop is being measured."""

    def begin_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Count the rest of this turn of the event loop as busy."""
        self.in_turn = True
        self.__enter__()
        loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self.in_turn = False
        self.__exit__(None, None, None)

    def __enter__(self) -> None:
        if self._running == 0:
            self._since_s = time.monotonic()
        self._running += 1

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self._running -= 1
        if self._running == 0:
            self._busy.add(self._since_s, time.monotonic())

    def load(self) -> float:
        """Return the share of the last seconds in which any work of the node ran."""
        now_s = time.monotonic()
        if self._running:
            self._busy.add(self._since_s, now_s)
            self._since_s = now_s
        return self._busy.share(now_s)


def free_memory_bytes() -> int | None:
    """Return the memory that is available without swapping; None if the system does not report it."""
    try:
        for line in _MEMINFO.read_text("ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None
