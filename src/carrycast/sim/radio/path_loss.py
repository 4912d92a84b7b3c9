"""Path loss: the mean power that a signal loses over a distance, by published formulas.

All functions take distances as arrays and return decibels. Antenna gains are not part of them.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LIGHT_MPS = 299_792_458.0
BOLTZMANN_DBM = -173.975
"""Thermal noise in 1 Hz at 290 K, k T in dBm."""


def wavelength_m(frequency_hz: float) -> float:
    """The wavelength of a carrier."""
    return LIGHT_MPS / frequency_hz


def free_space_db(distance_m: Floats, frequency_hz: float) -> Floats:
    """The loss in free space [H. T. Friis, Proc. IRE 34(5), 1946]: 20 log10(4 pi d / lambda).

    The formula holds in the far field. Nearer than there it would be a gain, so the loss is never below 0.
    """
    loss_db = 20 * np.log10(4 * math.pi * np.maximum(distance_m, 1e-9) / wavelength_m(frequency_hz))
    return np.asarray(np.maximum(loss_db, 0.0))


def crossover_m(frequency_hz: float, sender_m: float, receiver_m: float) -> float:
    """The distance from which two-ray ground reflection holds [ns-2 manual §18.2]: 4 pi ht hr / lambda."""
    return 4 * math.pi * sender_m * receiver_m / wavelength_m(frequency_hz)


def two_ray_db(distance_m: Floats, frequency_hz: float, sender_m: float, receiver_m: float) -> Floats:
    """The loss over flat ground [T. S. Rappaport, Wireless Communications, 2nd ed., §4.6].

    Beyond the crossover it is 40 log10 d - 20 log10(ht hr), which does not depend on the frequency. Before it the
    two rays oscillate, and the loss is that of free space. Both formulas agree at the crossover.
    """
    far_db = 40 * np.log10(np.maximum(distance_m, 1e-9)) - 20 * math.log10(sender_m * receiver_m)
    near = distance_m < crossover_m(frequency_hz, sender_m, receiver_m)
    return np.where(near, free_space_db(distance_m, frequency_hz), far_db)


def log_distance_db(distance_m: Floats, frequency_hz: float, exponent: float, reference_m: float) -> Floats:
    """The loss by distance to a power [Rappaport §4.9.1]: free space up to the reference distance, then 10 n log10."""
    beyond = np.maximum(distance_m / reference_m, 1.0)
    return free_space_db(np.minimum(distance_m, reference_m), frequency_hz) + 10 * exponent * np.log10(beyond)


def noise_dbm(bandwidth_hz: float, noise_figure_db: float) -> float:
    """The noise of a receiver: thermal noise in its bandwidth, and what its own circuits add."""
    return BOLTZMANN_DBM + 10 * math.log10(bandwidth_hz) + noise_figure_db
