"""Saturated stations against Bianchi's model, and the model against tables computed apart from it."""

from itertools import pairwise

import pytest

from carrycast.sim.radio.dot11 import CsmaRadio, Dot11
from tests.validation.bianchi import basic_access, fixed_point, rts_access, saturation
from tests.validation.cell import saturated_cell, under_the_models_conditions

ALWAYS, NEVER = 0, 65535
STATIONS = (2, 5, 10, 20, 50)
MESSAGE_BYTES = 1500


def dot11b(rate_bps: float, rts_threshold_bytes: int) -> Dot11:
    """802.11b with the MAC's 28 bytes and control frames at 2 Mb/s."""
    return Dot11(data_rate_bps=rate_bps, basic_rate_bps=2e6, overhead_bytes=28, rts_threshold_bytes=rts_threshold_bytes)


def bianchis_own(cw_min: int, cw_max: int, rts_threshold_bytes: int) -> Dot11:
    """The frequency-hopping PHY of the paper's Table II."""
    return Dot11(
        data_rate_bps=1e6,
        basic_rate_bps=1e6,
        plcp_us=128,
        slot_us=50,
        sifs_us=28,
        overhead_bytes=34,
        cw_min=cw_min,
        cw_max=cw_max,
        rts_threshold_bytes=rts_threshold_bytes,
    )


@pytest.mark.parametrize(
    ("stations", "attempt", "collision"),
    [(2, 0.05704, 0.0570), (5, 0.04785, 0.1781), (10, 0.03731, 0.2898), (20, 0.02642, 0.3988), (50, 0.01539, 0.5324)],
)
def test_the_model_finds_how_often_stations_send_and_collide(stations: int, attempt: float, collision: float) -> None:
    found = fixed_point(stations, window=32, stages=5)
    assert found.attempt == pytest.approx(attempt, abs=6e-6)
    assert found.collision == pytest.approx(collision, abs=6e-5)


def test_the_models_slots_last_as_long_as_in_the_paper() -> None:
    assert basic_access(bianchis_own(31, 255, NEVER), 1023, delay_us=1) == (8982, 8713)
    assert rts_access(bianchis_own(31, 255, ALWAYS), 1023, delay_us=1) == (9568, 417)


@pytest.mark.parametrize(
    ("cw_min", "cw_max", "basic", "rts"),
    [
        (31, 255, (0.8097, 0.7532, 0.6788, 0.5529), (0.8342, 0.8371, 0.8356, 0.8270)),
        (31, 1023, (0.8102, 0.7579, 0.6975, 0.6109), (0.8342, 0.8370, 0.8362, 0.8317)),
        (127, 1023, (0.8250, 0.8263, 0.7981, 0.7252), (0.7979, 0.8217, 0.8327, 0.8363)),
    ],
)
def test_the_model_gives_the_throughput_of_the_papers_radio(
    cw_min: int, cw_max: int, basic: tuple[float, ...], rts: tuple[float, ...]
) -> None:
    for threshold, expected in ((NEVER, basic), (ALWAYS, rts)):
        radio = bianchis_own(cw_min, cw_max, threshold)
        found = [saturation(radio, stations, 1023, delay_us=1) for stations in (5, 10, 20, 50)]
        assert found == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize(
    ("rate_bps", "message_bytes", "threshold", "expected"),
    [
        (11e6, 512, NEVER, (3.400, 3.795, 3.933, 3.830, 3.639, 3.309)),
        (11e6, 1500, NEVER, (6.239, 6.595, 6.536, 6.227, 5.816, 5.184)),
        (11e6, 1500, ALWAYS, (4.868, 5.149, 5.289, 5.288, 5.239, 5.124)),
        (2e6, 512, NEVER, (1.378, 1.412, 1.367, 1.288, 1.193, 1.054)),
        (2e6, 512, ALWAYS, (1.166, 1.212, 1.235, 1.234, 1.227, 1.208)),
    ],
)
def test_the_model_gives_the_throughput_of_802_11b(
    rate_bps: float, message_bytes: int, threshold: int, expected: tuple[float, ...]
) -> None:
    radio = dot11b(rate_bps, threshold)
    found = [saturation(radio, stations, message_bytes, delay_us=1) for stations in (1, *STATIONS)]
    # Frames end on whole microseconds here, in the table they do not.
    assert found == pytest.approx(expected, rel=1e-3)


def settings(threshold: int) -> CsmaRadio:
    return CsmaRadio(basic_rate_bps=2e6, overhead_bytes=28, rts_threshold_bytes=threshold)


def off_by(radio: CsmaRadio, stations: int, duration_s: float) -> float:
    """How far what stations carry is from the model, as a share of it."""
    carried = saturated_cell(radio, stations, MESSAGE_BYTES).megabits_per_s(duration_s)
    return carried / saturation(radio.dot11(), stations, MESSAGE_BYTES) - 1


@pytest.mark.parametrize("threshold", [NEVER, ALWAYS], ids=["basic", "rts"])
@pytest.mark.parametrize("stations", STATIONS)
def test_saturated_stations_carry_what_the_model_says_within_3_percent(stations: int, threshold: int) -> None:
    assert abs(off_by(under_the_models_conditions(settings(threshold)), stations, duration_s=4)) < 0.03


@pytest.mark.slow
@pytest.mark.parametrize("threshold", [NEVER, ALWAYS], ids=["basic", "rts"])
@pytest.mark.parametrize("stations", STATIONS)
def test_in_the_long_run_they_agree_within_1_percent(stations: int, threshold: int) -> None:
    assert abs(off_by(under_the_models_conditions(settings(threshold)), stations, duration_s=100)) < 0.01


def test_the_standards_rules_cost_more_the_more_stations_collide() -> None:
    # EIFS and the wait for an ACK come after every collision; the model has neither.
    basic = [off_by(settings(NEVER), stations, duration_s=4) for stations in (2, 10, 50)]
    assert -0.03 < basic[0] < 0.01
    assert -0.12 < basic[2] < -0.05
    assert all(later < sooner for sooner, later in pairwise(basic))
