"""How well a curve fits, with an interval: by the jackknife, a group of seeds left out at a time."""

import math
from collections.abc import Callable, Sequence

from carrycast.analysis.spark import Interval, confidence_interval

GROUPS = 10
"""As many are left out in turn; each has a tenth of the seeds."""
STEPS = 200
"""Rates of decay that an exponential is tried with; between them R² changes by less than a thousandth."""

Fit = Callable[[Sequence[float], Sequence[float]], float | None]


def line(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """R² of the best straight line; None where nothing varies."""
    n = len(xs)
    mean_x, mean_y = math.fsum(xs) / n, math.fsum(ys) / n
    spread = math.fsum((x - mean_x) ** 2 for x in xs)
    total = math.fsum((y - mean_y) ** 2 for y in ys)
    if n < 3 or spread == 0 or total == 0:
        return None
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    residual = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in zip(xs, ys, strict=True))
    return 1 - residual / total


def hyperbola(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """R² of the best a + b / x."""
    return line([1 / x for x in xs], ys)


def exponential(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """R² of the best a + b exp(-c x), c between a tenth of the inverse of the span and a hundred times it."""
    span = max(xs) - min(xs)
    rates = [10 ** (3 * step / STEPS - 1) / span for step in range(STEPS + 1)]
    found = [line([math.exp(-rate * (x - min(xs))) for x in xs], ys) for rate in rates]
    known = [value for value in found if value is not None]
    return max(known) if known else None


def fitted(fit: Fit, xs: Sequence[float], columns: Sequence[dict[int, float]]) -> Interval:
    """A fit to means over seeds, one column of values by seed for each x; its interval by the jackknife."""
    seeds = sorted(set.intersection(*(set(column) for column in columns))) if columns else []
    groups = min(GROUPS, len(seeds))

    def over(left_out: int | None) -> float | None:
        kept = [seed for place, seed in enumerate(seeds) if place % groups != left_out]
        return fit(xs, [math.fsum(column[seed] for seed in kept) / len(kept) for column in columns])

    if groups < 2:
        return confidence_interval([over(None)] if seeds else [])
    whole, parts = over(None), [over(group) for group in range(groups)]
    if whole is None:
        return confidence_interval([])
    return confidence_interval(groups * whole - (groups - 1) * part for part in parts if part is not None)
