"""Error rates: the probability that a bit is received wrongly, by modulation and ratio of signal to noise.

Each formula gives an error probability for a bit of data, from which the success of n bits is (1 - p)^n. The ratio is
that of powers in the bandwidth of the receiver, as a plain number. The formulas are those of ns-3's models, with their
published sources, so that results can be compared.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
ErrorRate = Callable[[float], float]
"""The probability of a wrong bit for a ratio of signal to noise."""

# The weights of the error events of the convolutional code with constraint length 7 (generators 133, 171), by distance
# from the free distance on. Rate 1/2 has only even distances.
# [C. Lee, Performance Analysis of Wireless Communication with Convolutional Codes, NIST; tables 3.1.1 and 3.1.2 as
# cited in G. Pei, T. Henderson, Validation of OFDM error rate model in ns-3, 2010]
_WEIGHTS: dict[str, tuple[int, int, int, tuple[float, ...]]] = {
    "1/2": (1, 10, 2, (36, 211, 1404, 11633, 77433, 502690, 3322763, 21292910, 134365911)),
    "2/3": (2, 6, 1, (3, 70, 285, 1276, 6160, 27128, 117019, 498860, 2103891, 8784123)),
    "3/4": (3, 5, 1, (42, 201, 1492, 10469, 62935, 379644, 2253373, 13073811, 75152755, 428005675)),
}

# [M. Lacage, T. Henderson, Yet Another Network Simulator, WNS2 2006]: the free distance, the number of events at it,
# and at the next one.
_FREE: dict[tuple[int, str], tuple[int, int, int]] = {
    (2, "1/2"): (10, 11, 0),
    (2, "3/4"): (5, 8, 0),
    (4, "1/2"): (10, 11, 0),
    (4, "3/4"): (5, 8, 31),
    (16, "1/2"): (10, 11, 0),
    (16, "3/4"): (5, 8, 31),
    (64, "2/3"): (6, 1, 16),
    (64, "3/4"): (5, 8, 31),
}


class OfdmMode(NamedTuple):
    """A modulation and coding scheme of IEEE 802.11 OFDM [IEEE 802.11-2016, table 17-4]."""

    constellation: int
    """Points: 2 is BPSK, 4 QPSK."""
    code: str
    """The rate of the convolutional code."""
    bits_per_symbol: int
    """Data bits in an OFDM symbol."""


OFDM_MODES = (
    OfdmMode(2, "1/2", 24),
    OfdmMode(2, "3/4", 36),
    OfdmMode(4, "1/2", 48),
    OfdmMode(4, "3/4", 72),
    OfdmMode(16, "1/2", 96),
    OfdmMode(16, "3/4", 144),
    OfdmMode(64, "2/3", 192),
    OfdmMode(64, "3/4", 216),
)
"""From the slowest to the fastest: 6 to 54 Mb/s in 20 MHz, half of that in 10 MHz."""


def nist_ofdm(mode: OfdmMode, ratio: float) -> float:
    """The error rate of coded OFDM by the NIST model [Pei, Henderson 2010], with hard decisions."""
    divisor, first, step, weights = _WEIGHTS[mode.code]
    raw = _raw_error(mode.constellation, ratio)
    # The Chernoff bound of the union over the error events.
    distance = math.sqrt(4 * raw * (1 - raw))
    total = sum(weight * distance ** (first + step * place) for place, weight in enumerate(weights))
    return min(1.0, total / (2 * divisor))


def _raw_error(constellation: int, ratio: float) -> float:
    """The error rate of bits before decoding [J. Proakis, Digital Communications, §5.2]."""
    if constellation == 2:
        return 0.5 * math.erfc(math.sqrt(ratio))
    if constellation == 4:
        return 0.5 * math.erfc(math.sqrt(ratio / 2))
    side = math.isqrt(constellation)
    return (side - 1) / (side * math.log2(side)) * math.erfc(math.sqrt(ratio / (2 * (constellation - 1) / 3)))


def yans_ofdm(mode: OfdmMode, ratio: float, bandwidth_hz: float, rate_bps: float) -> float:
    """The error rate of coded OFDM by the model of Yans [Lacage, Henderson 2006].

    The bandwidth and the uncoded rate turn the ratio of powers into energy per bit.
    """
    energy = ratio * bandwidth_hz / rate_bps
    points = mode.constellation
    if points == 2:
        raw = 0.5 * math.erfc(math.sqrt(energy))
    else:
        side = (1 - 1 / math.sqrt(points)) * math.erfc(math.sqrt(1.5 * math.log2(points) * energy / (points - 1)))
        raw = side * (2 - side) / math.log2(points)
    free, at_free, at_next = _FREE[points, mode.code]
    return min(1.0, at_free * _event_error(raw, free) + at_next * _event_error(raw, free + 1))


def _event_error(raw: float, distance: int) -> float:
    """The probability that an error event at a distance is chosen, with hard decisions [Proakis §8.2.4]."""
    chance = math.fsum(
        math.comb(distance, wrong) * math.pow(raw, wrong) * math.pow(1 - raw, distance - wrong)
        for wrong in range(distance // 2 + 1, distance + 1)
    )
    if distance % 2 == 0:
        half = distance // 2
        chance += 0.5 * math.comb(distance, half) * math.pow(raw * (1 - raw), half)
    return chance


DSSS_BANDWIDTH_HZ = 22e6


def dsss(rate_bps: float, ratio: float) -> float:
    """The error rate of IEEE 802.11b [G. Pei, T. Henderson, Validation of ns-3 802.11b PHY model, 2009].

    1 Mb/s is DBPSK and 2 Mb/s DQPSK, each spread over 22 MHz. 5.5 and 11 Mb/s are complementary code keying: 8
    and 256 orthogonal signals, decided coherently; a symbol error there is counted as an error of one of its bits.
    """
    if rate_bps == 1e6:
        return 0.5 * math.exp(-ratio * DSSS_BANDWIDTH_HZ / 1e6)
    if rate_bps == 2e6:
        energy = ratio * DSSS_BANDWIDTH_HZ / 2e6
        if energy <= 0:
            return 0.5
        root = math.sqrt(2)
        chance = (root + 1) / math.sqrt(8 * math.pi * root * energy) * math.exp(-(2 - root) * energy)
        return min(0.5, chance)
    chips = ratio * DSSS_BANDWIDTH_HZ / 1.375e6
    if rate_bps == 5.5e6:
        return 1 - math.pow(1 - _orthogonal_error(chips / 2), 1 / 4)
    assert rate_bps == 11e6, "802.11b has rates of 1, 2, 5.5 and 11 Mb/s"
    return 1 - math.pow(1 - _orthogonal_error(chips / 4), 2 / 8)


def _orthogonal_error(energy: float) -> float:
    """The symbol error of 16 biorthogonal signals [Proakis §5.2.3], integrated by the trapezoidal rule."""
    beta = math.sqrt(2 * energy)
    x = np.linspace(-beta, max(8.0, 8.0 - beta), 4001)
    below = np.array([math.erf((value + beta) / math.sqrt(2)) for value in x])
    height = below**7 * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return 1 - float(np.sum((height[1:] + height[:-1]) / 2 * np.diff(x)))


def oqpsk_802154(ratio: float) -> float:
    """The error rate of IEEE 802.15.4 at 2.4 GHz [IEEE 802.15.4-2006, annex E.4.1.8]."""
    total = math.fsum((1 - 2 * (k % 2)) * math.comb(16, k) * math.exp(20 * ratio * (1 / k - 1)) for k in range(2, 17))
    return min(0.5, max(0.0, 8 / 15 / 16 * total))


_LOW_DB, _HIGH_DB, _STEPS_PER_DB = -40, 60, 20
# An error rate below this makes no difference in a frame of any size.
_LEAST = 1e-16


class SuccessTable:
    """The logarithm of the success of one bit over the ratio in decibels, as a table of steps of 0.05 dB."""

    def __init__(self, error_rate: ErrorRate) -> None:
        self._db = np.linspace(_LOW_DB, _HIGH_DB, (_HIGH_DB - _LOW_DB) * _STEPS_PER_DB + 1)
        rates = np.array([error_rate(10 ** (db / 10)) for db in self._db.tolist()])
        # A rate of 1 would be an infinite logarithm. The table has a number of which a bit or two leave nothing.
        self._log = np.log1p(-np.minimum(np.where(rates < _LEAST, 0.0, rates), 1 - 1e-12))

    def log_success(self, ratio_db: Floats) -> Floats:
        """The logarithm of the probability that a bit is received correctly."""
        return np.interp(ratio_db, self._db, self._log)

    def error_rate(self, ratio_db: float, bits: float) -> float:
        """The probability that a frame of some bits is received wrongly."""
        return float(-np.expm1(bits * self.log_success(np.array([ratio_db]))[0]))


@cache
def ofdm_table(mode: OfdmMode, model: str, bandwidth_hz: float) -> SuccessTable:
    """The table of a mode by the model `nist` or `yans`."""
    if model == "nist":
        return SuccessTable(lambda ratio: nist_ofdm(mode, ratio))
    numerator, denominator = map(int, mode.code.split("/"))
    uncoded_bps = mode.bits_per_symbol * denominator / numerator * bandwidth_hz / 80
    return SuccessTable(lambda ratio: yans_ofdm(mode, ratio, bandwidth_hz, uncoded_bps))


@cache
def dsss_table(rate_bps: float) -> SuccessTable:
    """The table of a rate of IEEE 802.11b."""
    return SuccessTable(lambda ratio: dsss(rate_bps, ratio))


@cache
def table_802154() -> SuccessTable:
    """The table of IEEE 802.15.4."""
    return SuccessTable(oqpsk_802154)
