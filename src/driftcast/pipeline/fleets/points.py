"""A point of a track, as files of points give it, whatever their format."""

from datetime import UTC, datetime
from math import isfinite, nan
from typing import NamedTuple

MILLISECONDS_FROM = 1e11


class Point(NamedTuple):
    """Who was where when. One that cannot be read keeps what the file says in `text`."""

    node: str
    clock_s: float
    longitude: float
    latitude: float
    text: str | None = None

    @classmethod
    def of(cls, node: str, time: object, longitude: object, latitude: object) -> "Point":
        """From values as they were written."""
        try:
            made = cls(node, clock_s(time), float(str(longitude)), float(str(latitude)))
            if not (node and isfinite(made.longitude) and isfinite(made.latitude)):
                raise ValueError
            return made
        except ValueError:
            return cls(node, nan, nan, nan, f"{time} {longitude} {latitude}")


def clock_s(time: object) -> float:
    """Seconds since 1970 of a number (of seconds, or milliseconds if large) or of a date; UTC unless it says else."""
    try:
        number = float(str(time))
    except ValueError:
        moment = datetime.fromisoformat(str(time))
        return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    if not isfinite(number):
        raise ValueError(f"{time} is no time")
    return number / 1e3 if abs(number) >= MILLISECONDS_FROM else number
