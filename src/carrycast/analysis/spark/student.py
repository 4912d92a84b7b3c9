"""Student's t distribution, in plain Python: quantiles and tails, for intervals and verdicts."""

import math
from functools import lru_cache

CONFIDENCE = 0.95
"""Every interval in tables, figures and claims."""


@lru_cache(maxsize=4096)
def t_quantile(degrees: int) -> float:
    """The two-sided 95 % quantile of Student's t: P(|T| <= t) = 0.95."""
    if degrees < 1:
        raise ValueError("Student's t needs at least one degree of freedom")
    low, high = 0.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        if t_p_value(middle, degrees) > 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def t_p_value(t: float, degrees: int) -> float:
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
