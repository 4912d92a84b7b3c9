"""The text of a time period: parsing and formatting."""

from collections.abc import Callable, Mapping
from datetime import datetime, time

from carrycast.services.policy.syntax import Scanner, expected_error, syntax_error
from carrycast.services.policy.time_period import TimePeriod

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

CLAUSES = "'from', 'until', 'months', 'days', 'weekdays', 'hours' or 'local'"


def parse_period(scanner: Scanner) -> TimePeriod:
    """A period in brackets; its clauses stand in any order, each once."""
    start = scanner.offset
    scanner.symbol("[", "'['")
    fields: dict[str, object] = {}
    while not scanner.sees("]"):
        at = scanner.offset
        name = next((clause for clause in _READ if scanner.try_word(clause)), None)
        if name is None:
            raise expected_error(scanner.text, at, CLAUSES)
        if name in fields:
            raise syntax_error(scanner.text, at, f"{name} is given twice")
        fields[name] = _READ[name](scanner)
        if not scanner.try_symbol(";"):
            break
    scanner.symbol("]", "';' or ']'")
    if "from" in fields:
        fields["from_"] = fields.pop("from")
    try:
        return TimePeriod(**fields)  # type: ignore[arg-type]
    except ValueError as error:
        raise syntax_error(scanner.text, start, str(error)) from None


def _moment(scanner: Scanner) -> datetime:
    at = scanner.offset
    text = scanner.take(r"\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?)?(?![\w:-])", "a moment, as 2026-03-01T08:00")
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise syntax_error(scanner.text, at, f"there is no such moment: {error}") from None


def _hour(scanner: Scanner) -> time:
    at = scanner.offset
    text = scanner.take(r"\d\d:\d\d(?::\d\d)?(?![\w:])", "a time of day, as 22:00")
    try:
        return time(0) if text in ("24:00", "24:00:00") else time.fromisoformat(text)
    except ValueError as error:
        raise syntax_error(scanner.text, at, f"there is no such time: {error}") from None


def _hours(scanner: Scanner) -> tuple[time, time]:
    first = _hour(scanner)
    scanner.symbol("-", "'-'")
    return first, _hour(scanner)


def _named(names: tuple[str, ...], what: str) -> Callable[[Scanner], tuple[int, ...]]:
    """Reads `jan-mar, dec`; a range may go over the end, as `sat-mon` does."""

    def one(scanner: Scanner) -> int:
        at = scanner.offset
        word = scanner.take(r"[A-Za-z]{3}(?![A-Za-z])", what).lower()
        if word not in names:
            raise expected_error(scanner.text, at, what)
        return names.index(word)

    def decode_message(scanner: Scanner) -> tuple[int, ...]:
        found: list[int] = []
        while True:
            low = one(scanner)
            high = one(scanner) if scanner.try_symbol("-") else low
            found += [at % len(names) + 1 for at in range(low, high + 1 if high >= low else high + len(names) + 1)]
            if not scanner.try_symbol(","):
                return tuple(found)

    return decode_message


def _days(scanner: Scanner) -> tuple[int, ...]:
    found: list[int] = []
    while True:
        low = _day(scanner)
        high = _day(scanner) if scanner.try_symbol("-") else low
        if high < low or (low < 0) is not (high < 0):
            raise syntax_error(scanner.text, scanner.offset, f"days {low}-{high} are no range")
        found += range(low, high + 1)
        if not scanner.try_symbol(","):
            return tuple(found)


def _day(scanner: Scanner) -> int:
    at = scanner.offset
    day = int(scanner.take(r"-?\d{1,2}(?![\w.])", "a day of the month, 1 to 31, or -1 for the last"))
    if not 1 <= abs(day) <= 31:
        raise syntax_error(scanner.text, at, f"a month has no day {day}")
    return day


_READ: Mapping[str, Callable[[Scanner], object]] = {
    "from": _moment,
    "until": _moment,
    "months": _named(MONTHS, "a month, as jan"),
    "days": _days,
    "weekdays": _named(WEEKDAYS, "a day of the week, as mon"),
    "hours": _hours,
    "local": lambda scanner: True,
}


def format_period(period: TimePeriod) -> str:
    """The text of a period, which is read as an equal one."""
    clauses = []
    if period.from_ is not None:
        clauses.append(f"from {period.from_.isoformat()}")
    if period.until is not None:
        clauses.append(f"until {period.until.isoformat()}")
    if period.months:
        clauses.append("months " + ", ".join(MONTHS[month - 1] for month in period.months))
    if period.days:
        clauses.append("days " + ", ".join(str(day) for day in period.days))
    if period.weekdays:
        clauses.append("weekdays " + ", ".join(WEEKDAYS[day - 1] for day in period.weekdays))
    if period.hours is not None:
        clauses.append("hours " + "-".join(hour.isoformat() for hour in period.hours))
    if period.local:
        clauses.append("local")
    return f"[{'; '.join(clauses)}]"
