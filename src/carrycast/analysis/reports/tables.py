"""The tables of a report: CSV files, and numbers rounded for people."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from itertools import combinations

from carrycast.analysis.reports.style import metric_label, metric_scale
from carrycast.analysis.spark import Interval
from carrycast.errors import UserError

SKEWED_FROM = 0.1
"""If the two sides of an interval differ by more than this share, both ends are shown."""
MOST_PLACES = 8
"""With more decimal places, an exponent is easier to read."""


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as CSV. Missing values are empty, and numbers keep every digit."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def number_text(value: float | None, digits: int = 3) -> str:
    """Return a number with `digits` significant digits; a dash for a missing one."""
    if value is None or math.isnan(value):
        return "–"
    if value == 0:
        return "0"
    if abs(value) >= 10 ** (digits + 3) or abs(value) < 1e-4:
        return f"{value:.{digits - 1}e}"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def distinct_texts(values: Sequence[float], places: int = 0) -> list[str]:
    """Format numbers with a common number of decimal places: the fewest, from `places` on, that keep them distinct.

    A number other than zero is not shown as zero, so that the side of zero on which an interval ends is visible.
    Differences of less than a thousandth of the spread are ignored.
    """
    spread, largest = max(values) - min(values), max(map(abs, values))
    if not 0 < largest < math.inf:
        return [_format_fixed(value, places) for value in values]
    little = spread / 1000
    # A unit of the last place is no larger than the spread.
    first = max(places, math.ceil(-math.log10(spread))) if spread else places
    for place in range(first, MOST_PLACES + 1):
        texts = [_format_fixed(value, place) for value in values]
        if _are_distinct(values, texts, little):
            return texts
    # Very small numbers and differences are easier to read with an exponent.
    for digit in range(2, 17):
        texts = [f"{value:.{digit}e}" for value in values]
        if _are_distinct(values, texts, little):
            break
    return texts


def _format_fixed(value: float, places: int) -> str:
    """Format a number with a fixed number of decimal places; zero has no sign."""
    text = f"{value:,.{places}f}"
    return text.lstrip("-") if not text.strip("-0.,") else text


def _are_distinct(values: Sequence[float], texts: Sequence[str], little: float) -> bool:
    """Whether different numbers have different texts, and none but zero looks like zero."""
    if any(not text.strip("-0.,e+") and abs(value) > little for value, text in zip(values, texts, strict=True)):
        return False
    pairs = combinations(zip(values, texts, strict=True), 2)
    return all(one[1] != other[1] or abs(one[0] - other[0]) <= little for one, other in pairs)


def interval_texts(mean: float | None, low: float | None, high: float | None) -> tuple[str, str, str]:
    """Return a mean and the ends of its interval, with three digits or as many as needed to be distinct."""
    if mean is None or low is None or high is None or not all(map(math.isfinite, (mean, low, high))):
        return number_text(mean), number_text(low), number_text(high)
    largest = max(abs(mean), abs(low), abs(high))
    places = 0 if largest == 0 else max(0, 2 - math.floor(math.log10(largest)))
    first, second, third = distinct_texts([mean, low, high], places) if largest else ("0", "0", "0")
    return first, second, third


def mean_text(found: Interval, scale: float = 1.0) -> str:
    """Return `mean ± half`, to the second digit of the half width; the mean and both ends for an asymmetric
    interval."""
    if found.mean is None:
        return "–"
    mean = found.mean * scale
    if found.low is None or found.high is None:
        return number_text(mean)
    below, above = found.below * scale, found.above * scale
    half = max(below, above)
    if half == 0:
        return number_text(mean, 4)
    places = max(0, 1 - math.floor(math.log10(half)))
    if math.isclose(below, above, rel_tol=SKEWED_FROM):
        if places > MOST_PLACES:
            return f"{number_text(mean)} ± {number_text(half)}"
        if f"{abs(mean):.{places}f}" == f"{half:.{places}f}":
            # More places show whether the interval contains zero.
            places += 2
        return f"{mean:,.{places}f} ± {half:,.{places}f}"
    text, low, high = distinct_texts([mean, mean - below, mean + above], places)
    return f"{text} ({low} to {high})"


_LATEX_ESCAPES = str.maketrans(
    {character: f"\\{character}" for character in "&%$#_{}"}
    | {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}", "µ": r"\textmu{}"}
)


def latex_text(text: str) -> str:
    """A text with the characters escaped that mean something to LaTeX."""
    return text.translate(_LATEX_ESCAPES)


def latex_table(rows: Sequence[Mapping[str, object]], metrics: Sequence[str]) -> str:
    """A comparison as a LaTeX table with booktabs: a row for each protocol, a column for each metric.

    Each row has protocol, metric, mean, low, high and runs.
    """
    found = {(str(row["protocol"]), str(row["metric"])): row for row in rows}
    known = list(dict.fromkeys(metric for _, metric in found))
    for metric in metrics:
        if metric not in known:
            raise UserError(f"metrics: {metric!r} is none of {', '.join(known)}")
    head = " & ".join(["protocol", *(latex_text(metric_label(metric)) for metric in metrics)])
    lines = [rf"\begin{{tabular}}{{l{'r' * len(metrics)}}}", r"\toprule", rf"{head} \\", r"\midrule"]
    for protocol in dict.fromkeys(protocol for protocol, _ in found):
        cells = [latex_text(protocol)]
        for metric in metrics:
            row = found.get((protocol, metric), {})
            mean, low, high = (_real(row.get(key)) for key in ("mean", "low", "high"))
            runs = row.get("runs", 0)
            assert isinstance(runs, int)
            text = mean_text(Interval(runs, mean, low, high), metric_scale(metric))
            cells.append(text.replace("±", r"$\pm$").replace("–", "--"))
        lines.append(rf"{' & '.join(cells)} \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _real(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
