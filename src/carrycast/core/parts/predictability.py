"""Whether a series can be predicted, judged by the errors of its predictions [Musolesi and Mascolo 2006; 004 §4].

Predictions are good when their residuals are close to zero and look like noise. Both are judged from three running
means, so no history is kept: of the residual, of its square, and of its product with the one before.
"""

from math import sqrt

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
