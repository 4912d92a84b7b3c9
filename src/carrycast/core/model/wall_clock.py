"""What a clock on the wall shows."""

from datetime import datetime, timedelta
from typing import NamedTuple


class WallTime(NamedTuple):
    """Seconds since 1970 in UTC, and how far local time is ahead of that."""

    utc_s: float
    ahead_s: int = 0

    def to_datetime(self, local: bool) -> datetime:
        """As a date and a time of day; what no calendar has is its first or last day."""
        seconds = self.utc_s + (self.ahead_s if local else 0)
        return datetime(1970, 1, 1) + timedelta(seconds=min(max(seconds, -62_135_596_800), 253_402_128_000))
