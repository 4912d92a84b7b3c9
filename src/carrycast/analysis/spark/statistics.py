"""Means with 95 % intervals, in plain Python: the one place where they are computed, for Spark jobs too.

Few runs of a skewed measure (a median delay, a delivery near one) miss the mean more often than Student's t says: the
interval must reach farther on the side to which the values lean. Hall's transformation of the t statistic does that
from the skewness of the values (P. Hall, "On the removal of skewness by transformation", JRSS B 54, 1992). An interval
here is Student's and Hall's together, so it is never shorter than Student's on either side.

Values without any spread tell nothing of the runs that were not made. They have an interval only where the measure has
bounds: with n runs alike, and 95 % confidence, at most 1 - 0.025^(1/n) of all runs differ, and they by no more than to
the bounds. What two runs give is a mean and no interval.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from carrycast.analysis.spark.student import CONFIDENCE, t_p_value, t_quantile

MIN_RUNS = 3
"""Runs that have an interval."""

ROUNDING = 1e-12
"""Values that differ by no more than this share of themselves are alike: what arithmetic leaves is no spread."""

Bounds = tuple[float, float]

SHARE: Bounds = (0.0, 1.0)
DIFFERENCE_OF_SHARES: Bounds = (-1.0, 1.0)


class Interval(NamedTuple):
    """A mean and where it lies with 95 % confidence; with fewer than three values nobody knows where."""

    n: int
    mean: float | None
    low: float | None
    high: float | None
    error: float | None = None
    """The standard error of the mean, if the values had any spread."""
    lean: float = 0.0
    """Their skewness, over the root of their number."""
    bounds: Bounds | None = None
    """Of a measure all of whose values were alike."""

    def shown(self) -> dict[str, object]:
        """What is told of it: the number of runs, the mean and both ends."""
        return {"n": self.n, "mean": self.mean, "low": self.low, "high": self.high}

    @property
    def exact(self) -> bool:
        """Whether it is the mean itself, not an estimate of it."""
        return self.low is not None and self.error is None and self.bounds is None

    @property
    def below(self) -> float:
        """How far it reaches below the mean; nothing if nobody knows."""
        return 0.0 if self.mean is None or self.low is None else self.mean - self.low

    @property
    def above(self) -> float:
        """How far it reaches above the mean; nothing if nobody knows."""
        return 0.0 if self.mean is None or self.high is None else self.high - self.mean

    def tails(self, value: float) -> float | None:
        """How probable such a mean would be if the true one were this value: below 0.05 where the interval excludes it.

        None where there is no interval.
        """
        if self.mean is None or self.low is None:
            return None
        apart = self.mean - value
        if self.bounds is not None:
            reach = self.mean - self.bounds[0] if apart > 0 else self.bounds[1] - self.mean
            return min(1.0, 2 * max(0.0, 1 - abs(apart) / reach) ** self.n) if reach > 0 and apart else float(not apart)
        if self.error is None:
            return float(not apart)
        t = apart / self.error
        least = min(t, hall_transform(t, self.lean)) if t > 0 else -max(t, hall_transform(t, self.lean))
        return t_p_value(max(0.0, least), self.n - 1)


def confidence_interval(values: Iterable[float | None], bounds: Bounds | None = None, exact: bool = False) -> Interval:
    """The interval of the mean. Values that do not exist are left out.

    `bounds` are those of the measure. `exact`: the measure knows no luck, so values that are alike are the mean itself.
    """
    known = [value for value in values if value is not None]
    n = len(known)
    if n == 0:
        return Interval(0, None, None, None)
    low, high = min(known), max(known)
    if bounds is not None and not bounds[0] <= low <= high <= bounds[1]:
        # The name of a user's metric may sound like a share. Its values say that it is none.
        bounds = None
    if low == high or high - low <= ROUNDING * max(abs(low), abs(high)) < math.inf:
        return _constant_interval(n, known[0], bounds, exact)
    mean = math.fsum(known) / n
    found = _hall_interval(mean, [value - mean for value in known])
    return found if bounds is None else _clip_interval(found, bounds)


def ratio_confidence_interval(above: Sequence[float], below: Sequence[float], exact: bool = False) -> Interval:
    """The ratio of two means over the same runs; its interval by linearization (Cochran's ratio estimator)."""
    n = len(above)
    if n == 0 or math.fsum(below) == 0:
        return Interval(n, None, None, None)
    mean = math.fsum(below) / n
    found = math.fsum(above) / n / mean
    residuals = [(one - found * other) / mean for one, other in zip(above, below, strict=True)]
    if all(math.isclose(residual, 0.0, abs_tol=ROUNDING * abs(found)) for residual in residuals):
        return _constant_interval(n, found, None, exact)
    return _hall_interval(found, residuals)


def hall_transform(t: float, lean: float) -> float:
    """Hall's transformation: what a t statistic would be, had the values not leaned to one side."""
    return t + lean * (t * t / 3 + 1 / 6) + lean * lean * t**3 / 27


def _inverse_hall_transform(t: float, lean: float) -> float:
    """The t statistic of a transformed one."""
    return t if abs(lean) < 1e-9 else 3 / lean * (math.cbrt(1 + lean * (t - lean / 6)) - 1)


def _constant_interval(n: int, value: float, bounds: Bounds | None, exact: bool) -> Interval:
    if exact:
        return Interval(n, value, value, value)
    if bounds is None or n < MIN_RUNS:
        return Interval(n, value, None, None)
    unseen = 1 - ((1 - CONFIDENCE) / 2) ** (1 / n)
    low, high = bounds
    return Interval(n, value, value - unseen * (value - low), value + unseen * (high - value), bounds=bounds)


def _hall_interval(middle: float, residuals: Sequence[float]) -> Interval:
    """The interval around an estimate, from what is left of its observations; none where one of them is infinite."""
    n = len(residuals)
    widest = max(abs(residual) for residual in residuals)
    if n < MIN_RUNS or not math.isfinite(middle) or not math.isfinite(widest):
        return Interval(n, middle, None, None)
    # Of the widest, so that neither the squares nor the cubes of tiny spreads vanish.
    parts = [residual / widest for residual in residuals]
    squares, cubes = math.fsum(part**2 for part in parts), math.fsum(part**3 for part in parts)
    error = widest * math.sqrt(squares / (n - 1) / n)
    lean = cubes / n / (squares / n) ** 1.5 / math.sqrt(n)
    t = t_quantile(n - 1)
    below, above = max(t, _inverse_hall_transform(t, lean)), max(t, -_inverse_hall_transform(-t, lean))
    return Interval(n, middle, middle - below * error, middle + above * error, error, lean)


def _clip_interval(found: Interval, bounds: Bounds) -> Interval:
    """No mean lies where no value can.

    To leave out what is impossible does not change how often the interval contains the true mean, and the skewness of
    values near a bound is already in it.
    """
    if found.low is None or found.high is None:
        return found
    return found._replace(low=max(found.low, bounds[0]), high=min(found.high, bounds[1]))


def paired_differences(left: Mapping[int, float | None], right: Mapping[int, float | None]) -> list[float]:
    """left - right for every seed at which both exist. What rounding leaves of two that are equal is no difference."""
    differences = []
    for seed, value in left.items():
        other = right.get(seed)
        if value is not None and other is not None:
            differences.append(0.0 if math.isclose(value, other, rel_tol=ROUNDING) else value - other)
    return differences


def average(rows: Sequence[Mapping[int, float | None]]) -> dict[int, float | None]:
    """Per seed, the mean over several points, so that a seed stays one observation; None where one is missing."""
    seeds = sorted({seed for row in rows for seed in row})
    means: dict[int, float | None] = {}
    for seed in seeds:
        values = [row.get(seed) for row in rows]
        known = [value for value in values if value is not None]
        means[seed] = math.fsum(known) / len(known) if known and len(known) == len(rows) else None
    return means
