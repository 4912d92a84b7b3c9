"""One measure of the air for every radio."""

import pytest

from carrycast.sim.radio.dot11 import Dot11
from carrycast.trace.folds.traffic import airtime_us


@pytest.mark.parametrize("size_bytes", [0, 1, 14, 250, 1500])
def test_it_is_what_the_contended_radio_takes(size_bytes: int) -> None:
    radio = Dot11()
    assert airtime_us(size_bytes, unicast=False) == radio.broadcast_us(size_bytes)
    assert airtime_us(size_bytes, unicast=True) == radio.unicast_us(size_bytes) + radio.sifs_ack_us


def test_by_hand() -> None:
    # 192 + 8 * (64 + 36); and 192 + 800 / 11, rounded up, + 10 + (192 + 8 * 14).
    assert airtime_us(36, unicast=False) == 992
    assert airtime_us(36, unicast=True) == 192 + 73 + 10 + 304
    # 8 * (64 + 35) = 792 bits are exactly 72 microseconds at 11 Mb/s, and one byte more is rounded up.
    assert airtime_us(35, unicast=True) == 192 + 72 + 10 + 304
    assert airtime_us(46, unicast=True) - airtime_us(35, unicast=True) == 8
    # One bit more than 53 microseconds carry.
    assert airtime_us(9, unicast=True) == 192 + 54 + 10 + 304
