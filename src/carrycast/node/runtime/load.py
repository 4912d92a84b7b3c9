"""How busy a node is with its own work: its handlers, what follows from them, and its processors."""

import asyncio
import os
import time
from pathlib import Path

from carrycast.core.utilization import DEFAULT_WINDOW_S, Utilization

_MEMINFO = Path("/proc/meminfo")


class LoadMeter:
    """Something of the node runs within each `with work:`; several may at a time, since processors run apart.

    Handlers are too many and too short to be timed one by one: with the first of them something runs until the loop
    has gone around. Not the machine's average: what other programs do, and other nodes on the machine, is not this
    node's load.
    """

    def __init__(self, window_s: float = DEFAULT_WINDOW_S) -> None:
        self._busy = Utilization(window_s)
        self._running = 0
        self._since_s = 0.0
        self.in_turn = False
        """Whether something runs until the loop has gone around."""

    def begin_turn(self, loop: asyncio.AbstractEventLoop) -> None:
        """Something runs until then."""
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
        """The share of the last seconds in which anything of the node ran."""
        now_s = time.monotonic()
        if self._running:
            self._busy.add(self._since_s, now_s)
            self._since_s = now_s
        return self._busy.share(now_s)


def free_memory_bytes() -> int | None:
    """What programs can still get without swapping; None where the system does not tell."""
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
