"""A Kalman filter for a level that wanders: predicts the next value of a noisy series from the last estimate alone.

The local level model [Brockwell and Davis, chapter 8]: the level does a random walk with steps of variance `drift`, and
is seen through noise of variance `noise`.
"""

from math import sqrt


def steady_variance(drift: float, noise: float) -> float:
    """The variance of a prediction once the filter has run for long: the root of v² - drift·v - drift·noise."""
    return (drift + sqrt(drift * drift + 4 * drift * noise)) / 2


def steady_gain(drift: float, noise: float) -> float:
    """How far an observation moves the estimate once the filter has run for long."""
    variance = steady_variance(drift, noise)
    return variance / (variance + noise)


class LevelFilter:
    """One series. `level` is the prediction of its next value, `variance` the expected square of its error.

    The first observation is taken as it is: nothing is known before it.
    """

    __slots__ = ("_drift", "_noise", "level", "variance")

    def __init__(self, first: float, drift: float, noise: float) -> None:
        self.level = first
        self.variance = noise + drift
        self._drift = drift
        self._noise = noise

    def observe(self, value: float) -> float:
        """The series has its next value; returns the residual, by how much the prediction was too low."""
        variance = self.variance
        gain = variance / (variance + self._noise)
        residual = value - self.level
        self.level += gain * residual
        self.variance = variance - gain * variance + self._drift
        return residual

    def skip(self) -> None:
        """A period without an observation: the prediction stays, and is less sure."""
        self.variance += self._drift


MEMORY = 0.1
"""Weight of the newest residual. The means then look back over (2 - 0.1) / 0.1 = 19 residuals, the window of about 20
that autocorrelations are usually judged from."""

BAND = 1.96 / sqrt((2 - MEMORY) / MEMORY)
"""The autocorrelation of white noise stays within this in 95 of 100 cases [Brockwell and Davis, section 1.6]."""

WARM_UP = 8
"""With fewer residuals nothing is held against a series."""


class ResidualMonitor:
    """The residuals of one series."""

    __slots__ = ("_before", "_count", "_mean", "_product", "_square")

    def __init__(self) -> None:
        self._count = 0
        self._before = 0.0
        self._mean = 0.0
        self._square = 0.0
        self._product = 0.0

    def add(self, residual: float) -> None:
        """The next residual. Until the means are as long as their memory they are plain means."""
        self._count += 1
        weight = max(MEMORY, 1 / self._count)
        self._mean += weight * (residual - self._mean)
        self._square += weight * (residual * residual - self._square)
        self._product += weight * (residual * self._before - self._product)
        self._before = residual

    def reliable(self, error_max: float, bias_max: float, accurate: float) -> bool:
        """Whether predictions may be used.

        Yes while there are few residuals, and whenever their root mean square is within `accurate`. Else it has to be
        within `error_max`, the mean within `bias_max`, and the residuals must not follow from each other.
        """
        square = self._square
        if self._count < WARM_UP or square <= accurate * accurate:
            return True
        if square > error_max * error_max or abs(self._mean) > bias_max:
            return False
        return abs(self._product) <= BAND * square
