"""Means with 95 % Student-t intervals, in plain Python: the one place where they are computed, for Spark jobs too."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

CONFIDENCE = 0.95
"""Every interval in tables, figures and claims."""


class Interval(NamedTuple):
    """A mean and where it lies with 95 % confidence; with fewer than two values nobody knows where."""

    n: int
    mean: float | None
    low: float | None
    high: float | None

    @property
    def half_width(self) -> float | None:
        """The number behind the ± sign."""
        return None if self.mean is None or self.high is None else self.high - self.mean


def interval(values: Iterable[float | None]) -> Interval:
    """The interval of the mean. Values that do not exist are left out."""
    known = [value for value in values if value is not None]
    n = len(known)
    if n == 0:
        return Interval(0, None, None, None)
    mean = math.fsum(known) / n
    if n == 1:
        return Interval(1, mean, None, None)
    # Equal values leave rounding errors behind; their spread is exactly nothing.
    if min(known) == max(known):
        return Interval(n, known[0], known[0], known[0])
    return _around(n, mean, math.fsum((value - mean) ** 2 for value in known))


def ratio_interval(above: Sequence[float], below: Sequence[float]) -> Interval:
    """The ratio of two means over the same runs; its interval by linearization (Cochran's ratio estimator)."""
    n = len(above)
    if n == 0 or math.fsum(below) == 0:
        return Interval(n, None, None, None)
    mean = math.fsum(below) / n
    found = math.fsum(above) / n / mean
    if n == 1:
        return Interval(1, found, None, None)
    return _around(
        n, found, math.fsum((one - found * other) ** 2 for one, other in zip(above, below, strict=True)), mean
    )


def _around(n: int, middle: float, squares: float, unit: float = 1.0) -> Interval:
    """The interval around an estimate, from the sum of the squared residuals of its n observations."""
    half = student_t(n - 1) * math.sqrt(squares / (n - 1) / n) / abs(unit)
    return Interval(n, middle, middle - half, middle + half)


def paired_differences(left: Mapping[int, float | None], right: Mapping[int, float | None]) -> list[float]:
    """left - right for every seed at which both exist."""
    differences = []
    for seed, value in left.items():
        other = right.get(seed)
        if value is not None and other is not None:
            differences.append(value - other)
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


@lru_cache(maxsize=4096)
def student_t(degrees: int) -> float:
    """The two-sided 95 % quantile of Student's t: P(|T| <= t) = 0.95."""
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        if student_t_tails(middle, degrees) > 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def student_t_tails(t: float, degrees: int) -> float:
    """P(|T| > t), which is the regularized incomplete beta function at degrees / (degrees + t²)."""
    return _incomplete_beta(degrees / (degrees + t * t), degrees / 2, 0.5)


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularized incomplete beta function by its continued fraction (DLMF 8.17.22)."""
    if x <= 0.0 or x >= 1.0:
        return min(max(x, 0.0), 1.0)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # Evaluated forwards by Lentz's method; the tiny number stands in where a denominator would vanish.
    tiny = 1e-300
    c, d, fraction = 1.0, 0.0, 1.0
    for step in range(400):
        m = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        else:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        d = 1 + term * d
        d = 1 / (d if abs(d) > tiny else tiny)
        c = 1 + term / (c if abs(c) > tiny else tiny)
        fraction *= c * d
        if step > 0 and abs(c * d - 1) < 1e-15:
            break
    return front * (fraction - 1) / a
