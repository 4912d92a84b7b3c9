"""Progress of long simulations on standard error, and the message after an interruption."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Commands that take less time show no progress.
SILENT_S = 2.0
# On a terminal each line replaces the one before. In a log all lines stay, so they are printed less often.
TERMINAL_S = 0.5
LOG_S = 15.0


class ProgressLine:
    """Prints periodically how much of the simulated time has passed."""

    def __init__(self, duration_s: float, quiet: bool = False) -> None:
        self._duration_s = duration_s
        self._quiet = quiet
        self._began = time.monotonic()
        self._next = self._began + SILENT_S
        self._shown = False
        self.reached_s = 0.0

    def __call__(self, reached_s: float) -> None:
        """Note that the simulation has reached this time, and print a line if one is due."""
        self.reached_s = reached_s
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        spent_s = now - self._began
        left_s = spent_s * (self._duration_s - reached_s) / reached_s if reached_s else 0.0
        line = f"simulated {reached_s:.0f} of {self._duration_s:.0f} s in {spent_s:.0f} s, about {left_s:.0f} s left"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
            self._shown, self._next = True, now + TERMINAL_S
        else:
            print(line, file=sys.stderr, flush=True)
            self._next = now + LOG_S

    def clear(self) -> None:
        """Remove the line from a terminal."""
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def show_progress(duration_s: float, quiet: bool) -> Iterator[ProgressLine]:
    """Show the progress of a simulation; if it is interrupted, say how far it was."""
    line = ProgressLine(duration_s, quiet)
    try:
        yield line
    except KeyboardInterrupt:
        at = f" at {line.reached_s:.10g} of {duration_s:.10g} simulated seconds"
        raise KeyboardInterrupt(f"{at}; nothing is kept, the same command starts again") from None
    finally:
        line.clear()


@contextmanager
def announce_resume(out: object) -> Iterator[None]:
    """If the work is interrupted, say that the same command resumes it."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"; what is done is kept in {out}; the same command continues there") from None
