"""Reading trace files line by line: bounded, and with errors that name file and line."""

import gzip
import zlib
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import BinaryIO, cast

from driftcast.errors import UserError

# No line of any trace format comes near this; a longer one is some other kind of file.
MAX_LINE_BYTES = 4096
# More lines than this do not fit a common machine's memory as arrays.
MAX_LINES = 50_000_000
# Places and speeds: a million kilometers, which a 64-bit float resolves far below a millimeter.
MAX_COORDINATE_M = 1e9
# Times: enough for seconds and milliseconds since 1970.
MAX_TIME_S = 1e13
GZIP_MAGIC = b"\x1f\x8b"


def open_plain(path: Path) -> BinaryIO:
    """A file to read, unpacked if it is packed with gzip: its content tells, not its name."""
    with path.open("rb") as file:
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


class TraceFile:
    """A text file read as a stream. Errors raised through it say where reading has come to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line_number = 0
        self.complete = True

    def lines(self) -> Iterator[str]:
        """The lines that are neither blank nor comments (#), stripped."""
        try:
            with open_plain(self.path) as file:
                while raw := file.readline(MAX_LINE_BYTES + 1):
                    self.line_number += 1
                    if len(raw) > MAX_LINE_BYTES:
                        raise self.error(f"longer than {MAX_LINE_BYTES} bytes; expected a text file of short lines")
                    if self.line_number > MAX_LINES:
                        raise self.error(f"more than {MAX_LINES} lines; expected a shorter file, so cut it in time")
                    self.complete = raw.endswith(b"\n")
                    try:
                        line = raw.decode("utf-8").strip()
                    except UnicodeDecodeError:
                        raise self.error("not text; expected a text file in UTF-8") from None
                    if line and not line.startswith("#"):
                        yield line
        except (EOFError, gzip.BadGzipFile, zlib.error):
            raise self.error("the gzip file is cut or broken; compress it again") from None
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}") from None

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
