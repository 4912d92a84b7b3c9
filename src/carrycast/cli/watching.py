"""The progress of a long simulation, on standard error, and the message when it is interrupted."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

# A shorter command shows no progress.
SILENT_S = 2.0
# A line on a terminal is replaced; lines in a log stay, so they come less often.
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
        """The simulation has reached this time."""
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
def watched(duration_s: float, quiet: bool) -> Iterator[ProgressLine]:
    """Show the progress of a simulation; if it is interrupted, say how far it was."""
    watch = ProgressLine(duration_s, quiet)
    try:
        yield watch
    except KeyboardInterrupt:
        at = f" at {watch.reached_s:.10g} of {duration_s:.10g} simulated seconds"
        raise KeyboardInterrupt(f"{at}; nothing is kept, the same command starts again") from None
    finally:
        watch.clear()


@contextmanager
def resumable(out: object) -> Iterator[None]:
    """Work that can be resumed: if it is interrupted, say so."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"; what is done is kept in {out}; the same command continues there") from None
