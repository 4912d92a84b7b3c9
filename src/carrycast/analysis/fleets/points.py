"""A point of a track, as files of points give it, whatever their format."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite, nan
from typing import NamedTuple

TIME_UNITS: Mapping[str, float] = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""How many seconds each is."""
UNIT_FROM: Mapping[str, float] = {"ns": 1e17, "us": 1e14, "ms": 1e11}
"""Numbers from here on are dates in these units: in the next larger one they would lie beyond the year 5000."""
GPS_BEGAN_S = 315_964_800.0
"""1980-01-06: a date before it is none that a receiver wrote, either."""
LATEST_S = 5e9
"""The year 2128. A date beyond it is none that a receiver wrote: the unit of its number was not the one it seems."""


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
