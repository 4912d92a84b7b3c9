"""A Kalman filter for the local level model, and a test of its residuals.

The Kalman filter predicts the next value of a noisy series from the last estimate alone. In the local level model
[Brockwell and Davis, chapter 8] the level follows a random walk with steps of variance `drift`, and is observed with
noise of variance `noise`.

The predictions of a series are used only while their residuals are close to zero and look like white noise [Musolesi
and Mascolo 2006; 004 §4]. Both are tested with three running means, so no history is stored: of the residual, of its
square, and of its product with the previous one.
"""

from math import sqrt


def steady_variance(drift: float, noise: float) -> float:
    """The steady-state variance of a prediction: the positive root of v² - drift·v - drift·noise."""
    return (drift + sqrt(drift * drift + 4 * drift * noise)) / 2


class LevelFilter:
    """The Kalman filter of one series. `level` predicts its next value, `variance` is the expected squared error.

    The first observation is the first estimate.
    """

    __slots__ = ("_drift", "_noise", "level", "variance")

    def __init__(self, first: float, drift: float, noise: float) -> None:
        self.level = first
        self.variance = noise + drift
        self._drift = drift
        self._noise = noise

    def observe(self, value: float) -> float:
        """Update with the next value; returns the residual, the value minus its prediction."""
        variance = self.variance
        gain = variance / (variance + self._noise)
        residual = value - self.level
        self.level += gain * residual
        self.variance = variance - gain * variance + self._drift
        return residual

    def skip(self) -> None:
        """A period without an observation: the prediction stays the same, its variance grows."""
        self.variance += self._drift


MEMORY = 0.1
"""Weight of the newest residual. The means then cover (2 - 0.1) / 0.1 = 19 residuals, about the 20 from which
autocorrelations are usually estimated."""

BAND = 1.96 / sqrt((2 - MEMORY) / MEMORY)
"""The autocorrelation of white noise stays within this in 95 of 100 cases [Brockwell and Davis, section 1.6]."""

WARM_UP = 8
"""With fewer residuals every series passes the test."""


class ResidualMonitor:
    """The residual test of one series."""

    __slots__ = ("_before", "_count", "_mean", "_product", "_square")

    def __init__(self) -> None:
        self._count = 0
        self._before = 0.0
        self._mean = 0.0
        self._square = 0.0
        self._product = 0.0

    def add(self, residual: float) -> None:
        """Add a residual. The first ones are averaged with equal weights."""
        self._count += 1
        weight = max(MEMORY, 1 / self._count)
        self._mean += weight * (residual - self._mean)
        self._square += weight * (residual * residual - self._square)
        self._product += weight * (residual * self._before - self._product)
        self._before = residual

    def is_reliable(self, error_max: float, bias_max: float, accurate: float) -> bool:
        """Whether predictions may be used.

        True while there are few residuals, and whenever their root mean square is within `accurate`. Otherwise it must
        be within `error_max`, the mean within `bias_max`, and the residuals must not be autocorrelated.
        """
        square = self._square
        if self._count < WARM_UP or square <= accurate * accurate:
            return True
        if square > error_max * error_max or abs(self._mean) > bias_max:
            return False
        return abs(self._product) <= BAND * square
