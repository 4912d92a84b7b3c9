"""The mean of some runs with its 95 % confidence interval. Every confidence interval of carrycast is computed here.

For few runs of a skewed measure (a median delay, a delivery ratio near one), Student's t interval misses the mean too
often: the interval must extend farther on the side to which the values are skewed. Hall's transformation of the t
statistic does that (P. Hall, "On the removal of skewness by transformation", JRSS B 54, 1992). The interval used here
covers both Student's and Hall's, so it is never shorter than Student's on either side.

If all values are equal, there is a confidence interval only if the measure has bounds: of n equal runs follows, with 95
% confidence, that at most 1 - 0.025^(1/n) of all runs differ, and these lie within the bounds. Two runs give a mean and
no confidence interval.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

CONFIDENCE = 0.95
"""The level of every confidence interval in tables, figures and claims."""
MIN_RUNS = 3
"""Fewer runs have no confidence interval."""

ROUNDING = 1e-12
"""Values whose relative difference is no larger than this count as equal: they differ only by rounding."""

Bounds = tuple[float, float]

SHARE: Bounds = (0.0, 1.0)
DIFFERENCE_OF_SHARES: Bounds = (-1.0, 1.0)


class Interval(NamedTuple):
    """A mean and its 95 % confidence interval; fewer than three values have none."""

    n: int
    mean: float | None
    low: float | None
    high: float | None
    error: float | None = None
    """The standard error of the mean, if the values differ."""
    skew: float = 0.0
    """The skewness of the values, divided by the square root of their number."""
    bounds: Bounds | None = None
    """The bounds of the measure, if all values are equal."""
    within: Bounds | None = None
    """The bounds of the measure, if the values differ."""

    def as_row(self) -> dict[str, object]:
        """Return the number of runs, the mean and both ends."""
        return {"n": self.n, "mean": self.mean, "low": self.low, "high": self.high}

    @property
    def exact(self) -> bool:
        """Whether this is the mean itself, not an estimate of it."""
        return self.low is not None and self.error is None and self.bounds is None

    @property
    def below(self) -> float:
        """The distance from the lower end to the mean; 0 without an interval."""
        return 0.0 if self.mean is None or self.low is None else self.mean - self.low

    @property
    def above(self) -> float:
        """The distance from the mean to the upper end; 0 without an interval."""
        return 0.0 if self.mean is None or self.high is None else self.high - self.mean

    def widen(self, error_rate: float) -> "Interval":
        """Return the interval that misses the mean in this share of the cases instead of 5 %."""
        if self.mean is None or self.low is None:
            return self
        if self.bounds is not None:
            return _constant_interval(self.n, self.mean, self.bounds, False, error_rate)
        if self.error is None:
            return self
        found = _skewed_interval(self.n, self.mean, self.error, self.skew, error_rate)
        return found if self.within is None else _clip_interval(found, self.within)

    def p_value(self, value: float) -> float | None:
        """Return the two-sided p-value of the hypothesis that the true mean is this value; None without an interval.

        It is below 0.05 for values outside the interval.
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
        least = min(t, hall_transform(t, self.skew)) if t > 0 else -max(t, hall_transform(t, self.skew))
        return _t_p_value(max(0.0, least), self.n - 1)


def confidence_interval(values: Iterable[float | None], bounds: Bounds | None = None, exact: bool = False) -> Interval:
    """Return the confidence interval of the mean. Missing values (None) are left out.

    `bounds` are those of the measure. `exact`: the measure is not random, so equal values are the mean itself.
    """
    known = [value for value in values if value is not None]
    n = len(known)
    if n == 0:
        return Interval(0, None, None, None)
    low, high = min(known), max(known)
    if bounds is not None and not bounds[0] <= low <= high <= bounds[1]:
        # A user's metric may be named like a share although its values show that it is none.
        bounds = None
    if low == high or high - low <= ROUNDING * max(abs(low), abs(high)) < math.inf:
        return _constant_interval(n, known[0], bounds, exact)
    mean = math.fsum(known) / n
    found = _hall_interval(mean, [value - mean for value in known])
    return found if bounds is None else _clip_interval(found, bounds)


def ratio_confidence_interval(above: Sequence[float], below: Sequence[float], exact: bool = False) -> Interval:
    """Return the ratio of two means over the same runs, with a confidence interval by linearization (Cochran)."""
    n = len(above)
    if n == 0 or math.fsum(below) == 0:
        return Interval(n, None, None, None)
    mean = math.fsum(below) / n
    found = math.fsum(above) / n / mean
    residuals = [(one - found * other) / mean for one, other in zip(above, below, strict=True)]
    if all(math.isclose(residual, 0.0, abs_tol=ROUNDING * abs(found)) for residual in residuals):
        return _constant_interval(n, found, None, exact)
    return _hall_interval(found, residuals)


@lru_cache(maxsize=4096)
def t_quantile(degrees: int, error_rate: float = 1 - CONFIDENCE) -> float:
    """Return the two-sided quantile of Student's t: P(|T| > t) is the error rate."""
    # Imported here, because executors that only simulate need no scipy.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, 1 - error_rate / 2))


def _t_p_value(t: float, degrees: int) -> float:
    """Return P(|T| > t) of Student's t."""
    from scipy.special import stdtr

    return 2 * float(stdtr(degrees, -t))


def hall_transform(t: float, skew: float) -> float:
    """Return Hall's transformation of a t statistic, which corrects it for skewness."""
    return t + skew * (t * t / 3 + 1 / 6) + skew * skew * t**3 / 27


def _inverse_hall_transform(t: float, skew: float) -> float:
    """Return the inverse of `hall_transform`."""
    return t if abs(skew) < 1e-9 else 3 / skew * (math.cbrt(1 + skew * (t - skew / 6)) - 1)


def _constant_interval(
    n: int, value: float, bounds: Bounds | None, exact: bool, error_rate: float = 1 - CONFIDENCE
) -> Interval:
    if exact:
        return Interval(n, value, value, value)
    if bounds is None or n < MIN_RUNS:
        return Interval(n, value, None, None)
    unseen = 1 - (error_rate / 2) ** (1 / n)
    low, high = bounds
    return Interval(n, value, value - unseen * (value - low), value + unseen * (high - value), bounds=bounds)


def _hall_interval(middle: float, residuals: Sequence[float]) -> Interval:
    """Return the confidence interval of an estimate from the residuals of its observations; none if one is infinite."""
    n = len(residuals)
    widest = max(abs(residual) for residual in residuals)
    if n < MIN_RUNS or not math.isfinite(middle) or not math.isfinite(widest):
        return Interval(n, middle, None, None)
    # Scaled by the largest residual, so that the squares and cubes of tiny residuals do not underflow.
    parts = [residual / widest for residual in residuals]
    squares, cubes = math.fsum(part**2 for part in parts), math.fsum(part**3 for part in parts)
    error = widest * math.sqrt(squares / (n - 1) / n)
    skew = cubes / n / (squares / n) ** 1.5 / math.sqrt(n)
    return _skewed_interval(n, middle, error, skew)


def _skewed_interval(n: int, middle: float, error: float, skew: float, error_rate: float = 1 - CONFIDENCE) -> Interval:
    """Return the smallest interval that contains Student's and Hall's."""
    t = t_quantile(n - 1, error_rate)
    below, above = max(t, _inverse_hall_transform(t, skew)), max(t, -_inverse_hall_transform(-t, skew))
    return Interval(n, middle, middle - below * error, middle + above * error, error, skew)


def _clip_interval(found: Interval, bounds: Bounds) -> Interval:
    """Cut off the part of an interval outside the bounds, where no mean can lie.

    This does not change how often the interval contains the true mean.
    """
    if found.low is None or found.high is None:
        return found
    return found._replace(low=max(found.low, bounds[0]), high=min(found.high, bounds[1]), within=bounds)


def paired_differences(left: Mapping[int, float | None], right: Mapping[int, float | None]) -> list[float]:
    """Return left - right for every seed at which both exist. A difference due to rounding counts as 0."""
    differences = []
    for seed, value in left.items():
        other = right.get(seed)
        if value is not None and other is not None:
            differences.append(0.0 if math.isclose(value, other, rel_tol=ROUNDING) else value - other)
    return differences


def average(rows: Sequence[Mapping[int, float | None]]) -> dict[int, float | None]:
    """Return, by seed, the mean over several points; None where one is missing. A seed stays one observation."""
    seeds = sorted({seed for row in rows for seed in row})
    means: dict[int, float | None] = {}
    for seed in seeds:
        values = [row.get(seed) for row in rows]
        known = [value for value in values if value is not None]
        means[seed] = math.fsum(known) / len(known) if known and len(known) == len(rows) else None
    return means
