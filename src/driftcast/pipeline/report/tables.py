"""The tables of a report: CSV files, and numbers as people read them."""

import csv
import io
import math
from collections.abc import Mapping, Sequence

from driftcast.pipeline.statistics import Interval

LEANING = 0.1
"""Where the sides of an interval differ by more than this share, both ends are told."""


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as CSV; what does not exist is empty. Numbers keep every digit."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def number(value: float | None, digits: int = 3) -> str:
    """A number with as many digits as matter; a dash for one that does not exist."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits + 3) or abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def mean_text(found: Interval, scale: float = 1.0) -> str:
    """`mean ± half`, both to the place where the interval's second digit stands; the ends, where it leans to a side."""
    if found.mean is None:
        return "–"
    mean = found.mean * scale
    if found.low is None or found.high is None:
        return number(mean)
    below, above = found.below * scale, found.above * scale
    half = max(below, above)
    if half == 0:
        return number(mean, 4)
    places = max(0, 1 - math.floor(math.log10(half)))

    def text(value: float) -> str:
        return number(value) if places > 6 else f"{value:,.{places}f}"

    if math.isclose(below, above, rel_tol=LEANING):
        return f"{text(mean)} ± {text(half)}"
    return f"{text(mean)} ({text(mean - below)} to {text(mean + above)})"
