"""The mean of some runs with its 95 % confidence interval: every confidence interval of carrycast is computed here.

For few runs of a skewed measure (a median delay, a delivery ratio near one) a confidence interval by Student's t misses
the mean too often: it must reach farther on the side to which the values are skewed. Hall's transformation of the t
statistic does that (P. Hall, "On the removal of skewness by transformation", JRSS B 54, 1992). A confidence interval
here covers both Student's and Hall's, so it is never shorter than Student's on either side.

Equal values say nothing about runs that were not made. They have a confidence interval only where the measure has
bounds: if n runs are equal then, with 95 % confidence, at most 1 - 0.025^(1/n) of all runs differ, and no farther than
the bounds. Two runs give a mean and no confidence interval.
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
"""Values whose relative difference is no larger than this are equal: it is rounding, no spread."""

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
    """The skewness of the values, divided by the root of their number."""
    bounds: Bounds | None = None
    """Of the measure, if all values were equal."""

    def as_row(self) -> dict[str, object]:
        """The number of runs, the mean and both ends."""
        return {"n": self.n, "mean": self.mean, "low": self.low, "high": self.high}

    @property
    def exact(self) -> bool:
        """Whether it is the mean itself, not an estimate of it."""
        return self.low is not None and self.error is None and self.bounds is None

    @property
    def below(self) -> float:
        """How far it reaches below the mean; 0 without an interval."""
        return 0.0 if self.mean is None or self.low is None else self.mean - self.low

    @property
    def above(self) -> float:
        """How far it reaches above the mean; 0 without an interval."""
        return 0.0 if self.mean is None or self.high is None else self.high - self.mean

    def p_value(self, value: float) -> float | None:
        """The two-sided p-value of the hypothesis that the true mean is this value: below 0.05 outside the interval.

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
        least = min(t, hall_transform(t, self.skew)) if t > 0 else -max(t, hall_transform(t, self.skew))
        return _t_p_value(max(0.0, least), self.n - 1)


def confidence_interval(values: Iterable[float | None], bounds: Bounds | None = None, exact: bool = False) -> Interval:
    """The confidence interval of the mean. Values that do not exist are left out.

    `bounds` are those of the measure. `exact`: the measure is not random, so equal values are the mean itself.
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
    """The ratio of two means over the same runs, with a confidence interval by linearization (Cochran)."""
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
def t_quantile(degrees: int) -> float:
    """The two-sided 95 % quantile of Student's t: P(|T| <= t) = 0.95."""
    # Imported here: workers that only simulate need no scipy.
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def _t_p_value(t: float, degrees: int) -> float:
    """P(|T| > t) of Student's t."""
    from scipy.special import stdtr

    return 2 * float(stdtr(degrees, -t))


def hall_transform(t: float, skew: float) -> float:
    """Hall's transformation of a t statistic: what it would be if the values were not skewed."""
    return t + skew * (t * t / 3 + 1 / 6) + skew * skew * t**3 / 27


def _inverse_hall_transform(t: float, skew: float) -> float:
    """The t statistic of a transformed one: the inverse of `hall_transform`."""
    return t if abs(skew) < 1e-9 else 3 / skew * (math.cbrt(1 + skew * (t - skew / 6)) - 1)


def _constant_interval(n: int, value: float, bounds: Bounds | None, exact: bool) -> Interval:
    if exact:
        return Interval(n, value, value, value)
    if bounds is None or n < MIN_RUNS:
        return Interval(n, value, None, None)
    unseen = 1 - ((1 - CONFIDENCE) / 2) ** (1 / n)
    low, high = bounds
    return Interval(n, value, value - unseen * (value - low), value + unseen * (high - value), bounds=bounds)


def _hall_interval(middle: float, residuals: Sequence[float]) -> Interval:
    """The confidence interval of an estimate, from the residuals of its observations; none if one is infinite."""
    n = len(residuals)
    widest = max(abs(residual) for residual in residuals)
    if n < MIN_RUNS or not math.isfinite(middle) or not math.isfinite(widest):
        return Interval(n, middle, None, None)
    # Relative to the widest, so that neither the squares nor the cubes of tiny spreads vanish.
    parts = [residual / widest for residual in residuals]
    squares, cubes = math.fsum(part**2 for part in parts), math.fsum(part**3 for part in parts)
    error = widest * math.sqrt(squares / (n - 1) / n)
    skew = cubes / n / (squares / n) ** 1.5 / math.sqrt(n)
    t = t_quantile(n - 1)
    below, above = max(t, _inverse_hall_transform(t, skew)), max(t, -_inverse_hall_transform(-t, skew))
    return Interval(n, middle, middle - below * error, middle + above * error, error, skew)


def _clip_interval(found: Interval, bounds: Bounds) -> Interval:
    """An interval without the part outside the bounds, where no mean can lie.

    That does not change how often it contains the true mean, and the skewness of values near a bound is already in it.
    """
    if found.low is None or found.high is None:
        return found
    return found._replace(low=max(found.low, bounds[0]), high=min(found.high, bounds[1]))


def paired_differences(left: Mapping[int, float | None], right: Mapping[int, float | None]) -> list[float]:
    """left - right for every seed at which both exist. A difference that is only rounding counts as 0."""
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
