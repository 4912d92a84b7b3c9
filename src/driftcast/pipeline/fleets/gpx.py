"""Tracks of GPS receivers (GPX): read as a stream, so that a file of any length takes little memory."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from xml.parsers import expat

from driftcast.errors import UserError
from driftcast.mobility.trace_file import open_plain
from driftcast.pipeline.fleets.points import Point

CHUNK_BYTES = 1 << 16
# A name or a time is short; a text that goes on and on would fill the memory.
MAX_TEXT = 10_000


def track_points(path: Path) -> Iterator[Point]:
    """The points of all tracks. A track is a node, by its name; one without is named after the file."""
    reader = _Reader(path)
    try:
        with open_plain(path) as file:
            while chunk := file.read(CHUNK_BYTES):
                reader.parser.Parse(chunk, False)
                yield from reader.take()
        reader.parser.Parse(b"", True)
        yield from reader.take()
    except expat.ExpatError as error:
        what = expat.errors.messages[error.code]
        raise UserError(f"{path}:{error.lineno}: {what}; expected a GPX file (is it cut off?)") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path}: the gzip file is cut or broken; compress it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not reader.points:
        raise UserError(f"{path}: no points; expected <trkpt lat=... lon=...> with a <time> in <trk>")


class _Reader:
    """Collects points while the parser goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.points = 0
        self._found: list[Point] = []
        self._within: list[str] = []
        self._text = ""
        self._tracks = 0
        self._name, self._time = "", ""
        self._place: dict[str, str] = {}
        self.parser = expat.ParserCreate(namespace_separator=None)
        self.parser.StartElementHandler = self._on_start
        self.parser.EndElementHandler = self._on_end
        self.parser.CharacterDataHandler = self._on_text
        # Entities can make gigabytes of some hundred bytes. A GPX file has no document type to declare them in.
        self.parser.StartDoctypeDeclHandler = self._on_doctype

    def take(self) -> list[Point]:
        """What was found since the last time."""
        found, self._found = self._found, []
        self.points += len(found)
        return found

    def _on_doctype(self, *_: object) -> None:
        raise UserError(f"{self.path}: has a document type (DOCTYPE), which no GPX file has; expected <gpx>")

    def _on_start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        self._within.append(tag)
        self._text = ""
        if tag == "trk":
            self._tracks += 1
            stem = self.path.name.partition(".")[0]
            self._name = stem if self._tracks == 1 else f"{stem}-{self._tracks}"
        elif tag == "trkpt":
            self._place, self._time = attributes, ""

    def _on_text(self, text: str) -> None:
        if self._within and self._within[-1] in ("name", "time"):
            self._text += text
            if len(self._text) > MAX_TEXT:
                raise UserError(f"{self.path}: a text of more than {MAX_TEXT} letters; expected a GPX file")

    def _on_end(self, tag: str) -> None:
        tag = self._within.pop()
        if tag == "name" and self._within[-1:] == ["trk"]:
            self._name = self._text.strip() or self._name
        elif tag == "time" and self._within[-1:] == ["trkpt"]:
            self._time = self._text.strip()
        elif tag == "trkpt":
            self._found.append(Point.of(self._name, self._time, self._place.get("lon"), self._place.get("lat")))
