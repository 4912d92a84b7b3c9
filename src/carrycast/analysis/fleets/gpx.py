"""Tracks of GPS receivers (GPX 1.1), read as a stream, so that a file of any length takes little memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar
from xml.parsers import expat

from carrycast.analysis.fleets.points import PositionFormat, ReadOptions, TrackPoint
from carrycast.analysis.fleets.text import is_xml_with
from carrycast.errors import UserError
from carrycast.sim.mobility import decompressed_file

CHUNK_BYTES = 1 << 16
# Names and times are short; an endless text would fill the memory.
MAX_TEXT = 10_000


PLANNED = ("wpt", "rtept")
"""Waypoints and route points, which are plans, not measured positions."""


class GpxFile(PositionFormat):
    """A GPX file: the points of all its tracks. Planned points count as rows, but are not positions."""

    name: ClassVar[str] = "gpx"
    summary: ClassVar[str] = "GPS tracks (GPX, XML)"

    def __init__(self, path: Path, options: ReadOptions | None = None, name: str | None = None) -> None:
        super().__init__(path, options, name)
        self.tracks: dict[str, int] = {}
        """The number of tracks with each name."""
        self._reader = _GpxParser(path, self.options.by_track, self.file_name)

    @classmethod
    def recognizes(cls, start: str) -> bool:
        """Whether the text is an XML document with the root element `gpx`."""
        return is_xml_with(start, "<gpx")

    def points(self) -> Iterator[TrackPoint]:
        """Read the points of all tracks. A track is a node, named by the track, or by the file if it has no name.

        With `by_track`, the file and the number of the track become part of the name.
        """
        reader = self._reader
        try:
            with decompressed_file(self.path) as file:
                while chunk := file.read(CHUNK_BYTES):
                    reader.parser.Parse(chunk, False)
                    yield from reader.take()
            reader.parser.Parse(b"", True)
            yield from reader.take()
        except expat.ExpatError as error:
            what = expat.errors.messages[error.code]
            raise UserError(f"{self.path}:{error.lineno}: {what}; expected a GPX file (is it cut off?)") from None
        self.rows, self.tracks = reader.rows, reader.names
        if not reader.tracked:
            raise UserError(f"{self.path}: no points; expected <trkpt lat=... lon=...> with a <time> in <trk>")


class _GpxParser:
    """Collects points in the callbacks of the XML parser."""

    def __init__(self, path: Path, by_track: bool, name: str) -> None:
        self.path = path
        self.rows = self.tracked = 0
        self.names: dict[str, int] = {}
        self._by_track, self._stem = by_track, name.partition(".")[0]
        self._found: list[TrackPoint] = []
        self._within: list[str] = []
        self._text = ""
        self._tracks = 0
        self._name, self._time = "", ""
        self._kept = False
        """Whether the current track has a point."""
        self._place: dict[str, str] = {}
        self.parser = expat.ParserCreate(namespace_separator=None)
        self.parser.StartElementHandler = self._on_start
        self.parser.EndElementHandler = self._on_end
        self.parser.CharacterDataHandler = self._on_text
        # Entities can expand a hundred bytes to gigabytes. They are declared in a DOCTYPE, which GPX does not need.
        self.parser.StartDoctypeDeclHandler = self._on_doctype

    def take(self) -> list[TrackPoint]:
        """Return and remove the points found since the last call."""
        found, self._found = self._found, []
        return found

    def _on_doctype(self, *_: object) -> None:
        raise UserError(f"{self.path}: has a document type (DOCTYPE), which no GPX file has; expected <gpx>")

    def _on_start(self, tag: str, attributes: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        self._within.append(tag)
        self._text = ""
        if tag == "trk":
            self._tracks += 1
            self._name = self._stem if self._tracks == 1 else f"{self._stem}-{self._tracks}"
            self._kept = False
        elif tag == "trkpt" or tag in PLANNED:
            self.rows += 1
            self._place, self._time = attributes, ""

    def _on_text(self, text: str) -> None:
        if self._within and self._within[-1] in ("name", "time"):
            self._text += text
            if len(self._text) > MAX_TEXT:
                raise UserError(f"{self.path}: a text of more than {MAX_TEXT} letters; expected a GPX file")

    def _on_end(self, tag: str) -> None:
        tag = self._within.pop()
        if tag == "name" and self._within[-1:] == ["trk"]:
            name = self._text.strip()
            self._name = f"{self._stem}-{self._tracks} {name}" if self._by_track and name else name or self._name
        elif tag == "time" and self._within[-1:] == ["trkpt"]:
            self._time = self._text.strip()
        elif tag == "trkpt":
            self.tracked += 1
            if not self._kept:
                self._kept = True
                self.names[self._name] = self.names.get(self._name, 0) + 1
            self._found.append(TrackPoint.of(self._name, self._time, self._place.get("lon"), self._place.get("lat")))
        elif tag in PLANNED:
            place = " ".join(f"{name}={value}" for name, value in self._place.items())
            self._found.append(TrackPoint.unreadable(self._stem, f"<{tag} {place}>: of a plan, not of a track"))
