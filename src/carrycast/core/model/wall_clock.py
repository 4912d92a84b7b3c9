"""Wall-clock time."""

from datetime import datetime, timedelta
from typing import NamedTuple


class WallTime(NamedTuple):
    """Seconds since 1970 in UTC, and the UTC offset of local time."""

    utc_s: float
    ahead_s: int = 0

    def to_datetime(self, local: bool) -> datetime:
        """The date and time of day, in UTC or local time, clamped to the years 1 to 9999."""
        seconds = self.utc_s + (self.ahead_s if local else 0)
        return datetime(1970, 1, 1) + timedelta(seconds=min(max(seconds, -62_135_596_800), 253_402_128_000))
