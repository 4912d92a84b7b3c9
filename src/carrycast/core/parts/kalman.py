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
