"""Shadowing: the slow variation of path loss, normal in decibels and correlated over distance.

[M. Gudmundson, Electronics Letters 27(23), 1991] finds that the correlation of two places falls as exp(-d / D). Both
ends of a link may move here, so the correlation is exp(-da / D) exp(-db / D) for movements of da and db
[Z. Wang, E. Tameh, A. Nix, IEEE Trans. Veh. Technol. 57(1), 2008]. As proposed there, the field is a sum of sinusoids:
a function of the two places, with a spectrum that has this correlation. So it does not depend on the frames of a
protocol, and needs no state for each link.
"""

import math

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# The sum of 128 sinusoids of random phases deviates from a normal distribution by less than samples of 10,000 can tell.
SINUSOIDS = 128


class Shadowing:
    """A field of shadowing in decibels over pairs of places."""

    def __init__(self, deviation_db: float, distance_m: float, rng: Generator) -> None:
        self._waves_a = _draw_waves(distance_m, rng)
        self._waves_b = _draw_waves(distance_m, rng)
        self._phases = rng.uniform(0.0, 2 * math.pi, SINUSOIDS)
        self._amplitude_db = deviation_db * math.sqrt(2 / SINUSOIDS)

    def between(self, node: int, place: Floats, others: Integers, places: Floats) -> Floats:
        """The shadowing in decibels between a node and others. It is the same in both directions of a link."""
        # The end with the lower id is always the first place of the field.
        first = node < others
        ours_first = place @ self._waves_a + self._phases
        ours_second = place @ self._waves_b + self._phases
        angle = np.where(first[:, None], ours_first + places @ self._waves_b, ours_second + places @ self._waves_a)
        return np.asarray(self._amplitude_db * np.cos(angle).sum(axis=1))


def _draw_waves(distance_m: float, rng: Generator) -> Floats:
    """Wave vectors of the spectrum of exp(-d / D) in the plane, 1 / (1 / D^2 + k^2)^(3/2), as two rows.

    The share of the power below k is 1 - 1 / sqrt(1 + (k D)^2), which is inverted.
    """
    share, direction = rng.random(SINUSOIDS), rng.uniform(0.0, 2 * math.pi, SINUSOIDS)
    wave = np.sqrt(1 / (1 - share) ** 2 - 1) / distance_m
    return np.stack((wave * np.cos(direction), wave * np.sin(direction)))
