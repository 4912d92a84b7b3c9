"""Bit and packet errors against closed formulas, published figures and ns-3's values."""

import math
from pathlib import Path

import pytest

from carrycast.sim.radio.error_rates import (
    OFDM_MODES,
    OfdmMode,
    SuccessTable,
    dsss,
    dsss_table,
    nist_ofdm,
    ofdm_table,
    oqpsk_802154,
    table_802154,
)

QPSK_HALF = OfdmMode(4, "1/2", 48)


def ratio_at(table: SuccessTable, error_rate: float, bits: int) -> float:
    """The ratio in decibels at which a frame has an error rate."""
    low, high = -20.0, 40.0
    while high - low > 1e-4:
        middle = (low + high) / 2
        low, high = (middle, high) if table.error_rate(middle, bits) > error_rate else (low, middle)
    return low


def test_the_weights_of_the_code_by_hand() -> None:
    # At a ratio of 5 dB, QPSK has erfc(sqrt(10^0.5 / 2)) / 2 = 0.0377 wrong bits before decoding; D = 0.3809.
    raw = 0.5 * math.erfc(math.sqrt(10**0.5 / 2))
    distance = math.sqrt(4 * raw * (1 - raw))
    weights = (36, 211, 1404, 11633, 77433, 502690, 3322763, 21292910, 134365911)
    by_hand = sum(weight * distance ** (10 + 2 * place) for place, weight in enumerate(weights)) / 2
    assert nist_ofdm(QPSK_HALF, 10**0.5) == pytest.approx(by_hand)


def test_faster_modes_need_more_power() -> None:
    for model in ("nist", "yans"):
        needed = [ratio_at(ofdm_table(mode, model, 20e6), 0.1, 8000) for mode in OFDM_MODES]
        # QPSK 1/2 needs less than BPSK 3/4: a stronger code; the standard's sensitivities have them in order of rates.
        in_order = [needed[0], needed[2], needed[3], needed[4], needed[5], needed[6], needed[7]]
        assert in_order == sorted(in_order)


def test_all_modulations_have_the_success_of_ns3() -> None:
    lines = (Path(__file__).parent / "ns3_error_rates.txt").read_text().splitlines()[1:]
    assert len(lines) == 137
    for line in lines:
        kind, *rest = line.split()
        numbers = [float(one) for one in rest]
        if kind == "ofdm":
            mode, ratio_db, bits = OFDM_MODES[int(rest[0])], numbers[1], 8000
            tables = [ofdm_table(mode, model, 10e6) for model in ("nist", "yans")]
            expected = numbers[2:]
        else:
            ratio_db, expected = numbers[0], numbers[1:]
            bits = 8000 if kind == "dsss" else 160
            tables = [dsss_table(rate) for rate in (1e6, 2e6, 5.5e6, 11e6)] if kind == "dsss" else [table_802154()]
        found = [1 - table.error_rate(ratio_db, bits) for table in tables]
        assert found == pytest.approx(expected, abs=1e-5), line


def test_yans_is_more_optimistic_than_nist() -> None:
    # The same paper: the model of Yans needs less power than the measured and the NIST curves, by up to about 4 dB.
    for mode in OFDM_MODES[2:]:
        nist, yans = (ratio_at(ofdm_table(mode, model, 20e6), 0.1, 8000) for model in ("nist", "yans"))
        assert 0 < nist - yans < 5


def test_dsss_by_its_closed_formulas() -> None:
    # DBPSK: exp(-Eb/N0) / 2, and spreading by 11 of two samples gains 22.
    assert dsss(1e6, 0.5) == pytest.approx(0.5 * math.exp(-11))
    assert dsss(2e6, 0.5) == pytest.approx(
        (math.sqrt(2) + 1) / math.sqrt(8 * math.pi * math.sqrt(2) * 5.5) * math.exp(-(2 - math.sqrt(2)) * 5.5)
    )
    needed = [ratio_at(dsss_table(rate), 0.08, 8 * 1024) for rate in (1e6, 2e6, 5.5e6, 11e6)]
    assert needed == sorted(needed)
    # Between 1 and 2 Mb/s there are about 3 to 6 dB, and as much again to 11 Mb/s.
    assert 3 < needed[1] - needed[0] < 6
    assert 3 < needed[3] - needed[1] < 6


def test_802154_by_the_formula_of_its_annex() -> None:
    # The leading terms at 0 dB, by hand: 8/15/16 (120 e^-10 - 560 e^-13.33 + 1820 e^-15 - 4368 e^-16 + 8008 e^-16.67).
    terms = ((120, 10), (-560, 40 / 3), (1820, 15), (-4368, 16), (8008, 50 / 3))
    leading = 8 / 15 / 16 * sum(weight * math.exp(-power) for weight, power in terms)
    assert oqpsk_802154(1.0) == pytest.approx(leading, rel=0.05)
    # Without a signal every second bit is wrong.
    assert oqpsk_802154(0.0) == pytest.approx(0.5, abs=0.01)


def test_the_table_is_the_formula() -> None:
    table = ofdm_table(QPSK_HALF, "nist", 10e6)
    for ratio_db in (3.0, 4.37, 5.81, 7.0):
        exact = 1 - (1 - nist_ofdm(QPSK_HALF, 10 ** (ratio_db / 10))) ** 4000
        assert table.error_rate(ratio_db, 4000) == pytest.approx(exact, abs=0.002)
    assert table.error_rate(-100.0, 10) == pytest.approx(1.0)
    assert table.error_rate(100.0, 1e9) == 0.0
