"""Reading trace files line by line: bounded, and with errors that name file and line."""

from collections.abc import Iterator
from math import isfinite
from pathlib import Path

from carrycast.errors import UserError
from carrycast.sim.mobility.packed import reading

# No line of any trace format comes near this; a longer one is some other kind of file.
MAX_LINE_BYTES = 4096
# More lines than this do not fit a common machine's memory as arrays.
MAX_LINES = 50_000_000
# Places and speeds: a million kilometers, which a 64-bit float resolves far below a millimeter.
MAX_COORDINATE_M = 1e9
# Times: enough for seconds and milliseconds since 1970.
MAX_TIME_S = 1e13


class TraceFile:
    """A text file read as a stream. Errors raised through it say where reading has come to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line_number = 0
        self.complete = True

    def lines(self) -> Iterator[str]:
        """The lines that are neither blank nor comments (#), stripped."""
        with reading(self.path) as file:
            while raw := file.readline(MAX_LINE_BYTES + 1):
                self.line_number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise self.error(f"longer than {MAX_LINE_BYTES} bytes; expected a text file of short lines")
                if self.line_number > MAX_LINES:
                    raise self.error(f"more than {MAX_LINES} lines; expected a shorter file, so cut it in time")
                self.complete = raw.endswith(b"\n")
                try:
                    # A byte order mark may stand at the beginning.
                    line = raw.decode("utf-8-sig" if self.line_number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    raise self.error("not text in UTF-8; expected that, so convert the file first") from None
                if line and not line.startswith("#"):
                    yield line

    def error(self, what: str) -> UserError:
        """An error at the line read last."""
        return UserError(f"{self.path}:{self.line_number}: {what}")

    def require_line_end(self) -> None:
        """Refuse a last line without a line end where its last number may have been cut in the middle."""
        if not self.complete:
            raise self.error("the file ends in the middle of a line; if it is whole, end its last line with a newline")

    def number(self, text: str, what: str, low: float, high: float) -> float:
        """A number from the line read last, within bounds."""
        try:
            value = float(text)
        except ValueError:
            raise self.error(f"{text[:40]!r} is not a number; expected {what}") from None
        if not isfinite(value) or not low <= value <= high:
            raise self.error(f"{text[:40]} is out of bounds; expected {what} from {low:g} to {high:g}")
        return value
