"""Time periods: when a policy applies [RFC 3060 §6.3, PolicyTimePeriodCondition].

A period is a range of dates and masks of months, days, weekdays and hours, all of which must hold. Each applies to the
moment itself: `weekdays fri; hours 22:00-06:00` is Friday night and Friday morning, not Saturday's. Ends are not
included, so that `08:00-12:00` and `12:00-18:00` do not overlap.
"""

import calendar
from collections.abc import Iterable
from datetime import date, datetime, time, timedelta
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import WallTime

DAY_S = 86_400

MAX_UTC_OFFSET_S = 14 * 3600
"""The largest UTC offset of any local time."""

CYCLE_YEARS = 400
"""The period of the Gregorian calendar, including weekdays."""

Moment = Annotated[datetime, Meta(tz=False)]

Intervals = tuple[tuple[int, int], ...]


class TimePeriod(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename={"from_": "from"}
):
    """A time period. A field that is not given does not restrict it."""

    from_: Moment | None = None
    until: Moment | None = None
    months: Annotated[tuple[Annotated[int, Meta(ge=1, le=12)], ...], Meta(max_length=12)] = ()
    days: Annotated[tuple[Annotated[int, Meta(ge=-31, le=31)], ...], Meta(max_length=62)] = ()
    """Days of the month; -1 is the last."""
    weekdays: Annotated[tuple[Annotated[int, Meta(ge=1, le=7)], ...], Meta(max_length=7)] = ()
    """Monday is 1."""
    hours: tuple[time, time] | None = None
    """Start and end. A range whose end is before its start includes midnight."""
    local: bool = False
    """Whether all fields are in local time instead of UTC."""

    def __post_init__(self) -> None:
        for name in ("months", "days", "weekdays"):
            msgspec.structs.force_setattr(self, name, tuple(sorted(set(getattr(self, name)))))
        if 0 in self.days:
            raise ValueError("days: a month has no day 0")
        moments = [moment for moment in (self.from_, self.until, *(self.hours or ())) if moment is not None]
        if any(moment.microsecond or moment.tzinfo for moment in moments):
            raise ValueError("a time has whole seconds and no zone; say local or leave it UTC")
        if self.from_ is not None and self.until is not None and self.until <= self.from_:
            raise ValueError("until: must be after from")
        if self.hours is not None and self.hours[0] == self.hours[1]:
            raise ValueError("hours: they end where they begin; leave them out if the whole day is meant")

    def includes(self, wall: WallTime) -> bool:
        """Whether the time of a clock lies in the period."""
        moment = wall.to_datetime(self.local)
        if (self.from_ is not None and moment < self.from_) or (self.until is not None and moment >= self.until):
            return False
        second = moment.hour * 3600 + moment.minute * 60 + moment.second
        return self.allows_day(moment.date()) and any(start <= second < end for start, end in self.allowed_seconds())

    def allows_day(self, day: date) -> bool:
        """Whether months, days and weekdays allow a date."""
        if (self.months and day.month not in self.months) or (self.weekdays and day.isoweekday() not in self.weekdays):
            return False
        return _allows_day_number(self, day.day, calendar.monthrange(day.year, day.month)[1])

    def allowed_seconds(self) -> Intervals:
        """The allowed seconds of a day, as ranges."""
        if self.hours is None:
            return ((0, DAY_S),)
        start, end = (moment.hour * 3600 + moment.minute * 60 + moment.second for moment in self.hours)
        if start < end:
            return ((start, end),)
        return ((0, end), (start, DAY_S)) if end else ((start, DAY_S),)

    def next_change_s(self, wall: WallTime) -> float:
        """A duration within which the period neither starts nor ends: until the next limit of hours, day or dates."""
        moment = wall.to_datetime(self.local)
        midnight = datetime(moment.year, moment.month, moment.day)
        borders = [
            midnight + timedelta(seconds=second) for start, end in self.allowed_seconds() for second in (start, end)
        ]
        borders += [midnight + timedelta(days=1), *(edge for edge in (self.from_, self.until) if edge is not None)]
        return min((border - moment).total_seconds() for border in borders if border > moment)


def any_period_includes(periods: Iterable[TimePeriod], wall: WallTime) -> bool:
    """[RFC 3060 §6.1] Whether one of the periods includes the time. A rule without periods always applies."""
    several = tuple(periods)
    return not several or any(period.includes(wall) for period in several)


class PeriodOverlap(NamedTuple):
    """A time that two periods have in common."""

    moment: datetime | None
    """None if both always apply, or if one is in local time and the other in UTC, so that it depends on the place."""
    local: bool = False


def find_overlap(ones: tuple[TimePeriod, ...], twos: tuple[TimePeriod, ...]) -> PeriodOverlap | None:
    """Find a time in both of two sets of periods; None if there is none."""
    if not ones and not twos:
        return PeriodOverlap(None)
    for one in ones or (TimePeriod(local=twos[0].local),):
        for two in twos or (TimePeriod(local=one.local),):
            if one.local is not two.local and ones and twos:
                if _dates_may_overlap(one, two):
                    return PeriodOverlap(None)
                continue
            moment = _find_common_moment(one, two)
            if moment is not None:
                return PeriodOverlap(moment, one.local if ones else two.local)
    return None


def _dates_may_overlap(one: TimePeriod, two: TimePeriod) -> bool:
    """Whether a local and a UTC period may overlap. Only their dates are compared, up to the largest UTC offset."""
    slack = timedelta(seconds=MAX_UTC_OFFSET_S)
    for first, second in ((one, two), (two, one)):
        if first.until is not None and second.from_ is not None and second.from_ - first.until >= slack:
            return False
    return True


def _find_common_moment(one: TimePeriod, two: TimePeriod) -> datetime | None:
    """Find a time in both periods. Exact: the search covers a whole cycle of the calendar, month by month."""
    seconds = _intersect_seconds(one.allowed_seconds(), two.allowed_seconds())
    begins = [edge for edge in (one.from_, two.from_) if edge is not None]
    end = min((edge for edge in (one.until, two.until) if edge is not None), default=datetime.max)
    # Without a start date, a search from 2000 finds a recent example, and the last full cycle before the end is exact.
    starts = [max(begins)] if begins else [datetime(2000, 1, 1), datetime(max(1, end.year - CYCLE_YEARS), 1, 1)]
    moments = (_find_first_moment(one, two, seconds, start, end) for start in starts if seconds and start < end)
    return next((moment for moment in moments if moment is not None), None)


def _find_first_moment(
    one: TimePeriod, two: TimePeriod, seconds: list[tuple[int, int]], start: datetime, end: datetime
) -> datetime | None:
    numbers = {length: _list_common_days(one, two, length) for length in range(28, 32)}
    for year, month in _iterate_months(start, end):
        if any(period.months and month not in period.months for period in (one, two)):
            continue
        for number in numbers[calendar.monthrange(year, month)[1]]:
            midnight = datetime(year, month, number)
            weekday = midnight.isoweekday()
            if any(period.weekdays and weekday not in period.weekdays for period in (one, two)):
                continue
            for first, last in seconds:
                moment = max(start, midnight + timedelta(seconds=first))
                if (moment - midnight).total_seconds() < last and moment < end:
                    return moment
    return None


def _list_common_days(one: TimePeriod, two: TimePeriod, length: int) -> list[int]:
    """The days that both periods allow in a month of this length."""
    return [
        day
        for day in range(1, length + 1)
        if _allows_day_number(one, day, length) and _allows_day_number(two, day, length)
    ]


def _allows_day_number(period: TimePeriod, day: int, length: int) -> bool:
    return not period.days or day in period.days or day - length - 1 in period.days


def _iterate_months(start: datetime, end: datetime) -> Iterable[tuple[int, int]]:
    last = min(end.year, start.year + CYCLE_YEARS, 9999)
    for year in range(start.year, last + 1):
        for month in range(start.month if year == start.year else 1, 13):
            yield year, month


def _intersect_seconds(ones: Intervals, twos: Intervals) -> list[tuple[int, int]]:
    pairs = [(max(a, c), min(b, d)) for a, b in ones for c, d in twos]
    return sorted((start, end) for start, end in pairs if start < end)
