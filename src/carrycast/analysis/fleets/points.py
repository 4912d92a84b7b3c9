"""What readers of files share: the options of a user, points of tracks, and the abstract class of their formats."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from math import isfinite, nan
from pathlib import Path
from typing import ClassVar, NamedTuple

import msgspec

from carrycast.core.file_formats import FileFormat

TIME_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""How many seconds each is."""
UNIT_FROM: Mapping[str, float] = {"ns": 1e17, "us": 1e14, "ms": 1e11}
"""Numbers from here on are dates in these units: in the next larger one they would lie beyond the year 5000."""
GPS_BEGAN_S = 315_964_800.0
"""1980-01-06: a date before it is none that a receiver wrote, either."""
LATEST_S = 5e9
"""The year 2128. A date beyond it is none that a receiver wrote: the unit of its number was not the one it seems."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How files are to be read."""

    format: str | None = None
    columns: Mapping[str, str] = {}
    header: tuple[str, ...] | None = None
    time_format: str | None = None
    time_unit: str | None = None
    encoding: str | None = None
    decimal_comma: bool = False
    """Numbers have a comma before their decimals, and none anywhere else."""
    crs: str | None = None
    fleet: str = "fleet"
    swap: bool = False
    """The files have latitude where longitude belongs."""
    single: bool = False
    """A file that names no node is the log of one."""
    by_file: bool = False
    """Each file is a fleet of its own, so that equal names in two files are two nodes."""
    by_track: bool = False
    """Each track of a GPX file is a node of its own."""
    merge: bool = False
    """Equal names in two files, or tracks, are the same node, even if they overlap in time."""

    def columns_of_degrees(self) -> bool | None:
        """Whether the user says that x and y are degrees, or meters."""
        if self.columns.get("longitude") == "x" and self.columns.get("latitude") == "y":
            return True
        return False if {"x", "y"} <= self.columns.keys() else None


class TrackPoint(NamedTuple):
    """Who was where when. One that cannot be read keeps what the file says in `text`."""

    node: str
    clock_s: float
    longitude: float
    latitude: float
    text: str | None = None

    @classmethod
    def of(
        cls, node: str, time: object, longitude: object, latitude: object, time_unit: str | None = None
    ) -> "TrackPoint":
        """From values as they were written."""
        try:
            made = cls(node, parse_clock(time, time_unit), float(str(longitude)), float(str(latitude)))
            if not (node and isfinite(made.longitude) and isfinite(made.latitude)):
                raise ValueError
            return made
        except ValueError:
            return cls.unreadable(node, f"{time} {longitude} {latitude}")

    @classmethod
    def unreadable(cls, node: str, text: str) -> "TrackPoint":
        """What is no place of a node at a time, as the file says it."""
        return cls(node, nan, nan, nan, text)


class PositionFormat(FileFormat):
    """A format of positions that were measured, opened on one file.

    A plug-in derives from it, gives `name` and `summary`, and implements `recognizes` and `points`.
    """

    content: ClassVar[str] = "positions"

    def __init__(self, path: Path, options: ReadOptions | None = None, name: str | None = None) -> None:
        """`name` is that of the file as users know it; it may be read from a copy."""
        self.path = path
        self.options = options or ReadOptions()
        self.file_name = name or path.name
        self.rows = 0
        """Rows of the file read so far. All of them are given as points: kept, or unreadable with a text."""

    def points(self) -> Iterator[TrackPoint]:
        """The points of the file, in its order."""
        raise NotImplementedError(f"{type(self).__name__} does not read its file")


def parse_clock(time: object, unit: str | None = None) -> float:
    """Seconds since 1970 of a date, UTC unless it says else, or of a number: in that unit, or in the one that its size
    tells."""
    try:
        number = float(str(time))
    except ValueError:
        moment = datetime.fromisoformat(str(time))
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if not isfinite(number):
        raise ValueError(f"{time} is no time")
    unit = unit or next((name for name, least in UNIT_FROM.items() if abs(number) >= least), "s")
    return number * TIME_UNITS[unit] if unit == "s" else number / round(1 / TIME_UNITS[unit])
