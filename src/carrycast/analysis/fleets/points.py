"""The shared parts of file readers: the user's options, track points, and the base class of position formats."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from math import isfinite, nan
from pathlib import Path
from typing import ClassVar, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from carrycast.core.file_formats import FileFormat
from carrycast.errors import UserError

TIME_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""The length of each unit in seconds."""
UNIT_FROM: Mapping[str, float] = {"ns": 1e17, "us": 1e14, "ms": 1e11}
"""The smallest date in each unit: read in the next larger unit, it would be after the year 5000."""
GPS_BEGAN_S = 315_964_800.0
"""1980-01-06, the GPS epoch. No receiver wrote an earlier date."""
LATEST_S = 5e9
"""The year 2128. A later date means that the unit of the number was guessed wrongly."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options for reading files."""

    format: str | None = None
    columns: Mapping[str, str] = {}
    header: tuple[str, ...] | None = None
    time_format: str | None = None
    time_unit: str | None = None
    time_zone: str | None = None
    """Of dates that name none, as in Europe/Berlin; None is UTC."""
    encoding: str | None = None
    decimal_comma: bool = False
    """The comma separates decimals."""
    crs: str | None = None
    fleet: str = "fleet"
    swap: bool = False
    """Longitude and latitude are swapped in the files."""
    single: bool = False
    """A file without a node column is the log of one node."""
    by_file: bool = False
    """Each file is a fleet of its own, so that equal names in two files are two nodes."""
    by_track: bool = False
    """Each track of a GPX file is a node of its own."""
    merge: bool = False
    """Equal names in two files, or tracks, are the same node, even if they overlap in time."""

    def columns_of_degrees(self) -> bool | None:
        """Whether the user declares x and y as degrees (True) or meters (False); None if neither."""
        if self.columns.get("longitude") == "x" and self.columns.get("latitude") == "y":
            return True
        return False if {"x", "y"} <= self.columns.keys() else None


class TrackPoint(NamedTuple):
    """The position of a node at a time. An unreadable point keeps the file's words in `text`."""

    node: str
    clock_s: float
    longitude: float
    latitude: float
    text: str | None = None

    @classmethod
    def of(
        cls,
        node: str,
        time: object,
        longitude: object,
        latitude: object,
        time_unit: str | None = None,
        time_zone: str | None = None,
    ) -> "TrackPoint":
        """Parse the values of a file; the point is unreadable if one is invalid."""
        try:
            made = cls(node, parse_clock(time, time_unit, time_zone), float(str(longitude)), float(str(latitude)))
            if not (node and isfinite(made.longitude) and isfinite(made.latitude)):
                raise ValueError
            return made
        except ValueError:
            return cls.unreadable(node, f"{time} {longitude} {latitude}")

    @classmethod
    def unreadable(cls, node: str, text: str) -> "TrackPoint":
        """A point that could not be parsed, with the words of the file."""
        return cls(node, nan, nan, nan, text)


class PositionFormat(FileFormat):
    """A format of measured positions, opened on one file.

    A plug-in derives from it, gives `name` and `summary`, and implements `recognizes` and `points`.
    """

    content: ClassVar[str] = "positions"

    def __init__(self, path: Path, options: ReadOptions | None = None, name: str | None = None) -> None:
        """`name` is the file's name as users know it, since `path` may be a copy."""
        self.path = path
        self.options = options or ReadOptions()
        self.file_name = name or path.name
        self.rows = 0
        """The rows read so far. Each becomes a point, readable or unreadable."""

    def points(self) -> Iterator[TrackPoint]:
        """The points of the file, in its order."""
        raise NotImplementedError(f"{type(self).__name__} does not read its file")


def check_time_zone(name: str | None) -> None:
    """Reject the name of a time zone that does not exist."""
    if name is not None and name not in available_timezones():
        close = get_close_matches(name, available_timezones(), 1)
        raise UserError(
            f"--time-zone {name!r}: no such time zone"
            + (f"; did you mean {close[0]}?" if close else "")
            + " Give a name such as Europe/Berlin"
        )


def parse_clock(time: object, unit: str | None = None, zone: str | None = None) -> float:
    """Parse a date or a number to seconds since 1970.

    A date without a time zone has the given one, or is UTC. A ValueError for a local time that the zone skips or
    repeats, since it would be a guess. A number without a unit has the unit that its magnitude suggests.
    """
    try:
        number = float(str(time))
    except ValueError:
        moment = datetime.fromisoformat(str(time))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC if zone is None else ZoneInfo(zone))
            if moment.utcoffset() != moment.replace(fold=1).utcoffset():
                raise ValueError(f"{time} is a time that {zone} has twice or never") from None
        return moment.timestamp()
    if not isfinite(number):
        raise ValueError(f"{time} is no time")
    unit = unit or next((name for name, least in UNIT_FROM.items() if abs(number) >= least), "s")
    return number * TIME_UNITS[unit] if unit == "s" else number / round(1 / TIME_UNITS[unit])
