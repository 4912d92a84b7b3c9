"""The radio `ieee802154`: airtime, backoff, parts of long messages, and a busy medium."""

import pytest

from carrycast.core.model import Failure
from carrycast.sim.radio.ieee802154 import Ieee802154Radio, airtime_us
from tests.validation.cell import Cell, Saturated


def test_airtime_by_hand() -> None:
    # 250 kb/s: 32 µs for each byte, and 6 bytes before the frame. The largest frame takes 4.256 ms.
    assert airtime_us(127) == 4256
    assert airtime_us(5) == 352


def test_a_frame_waits_for_its_backoff_a_look_and_the_turnaround() -> None:
    cell = Cell(Ieee802154Radio(min_exponent=0), [(0.0, 0.0), (10.0, 0.0)])
    cell.send(0, None, 20)
    cell.run(1.0)
    assert [time_us for time_us, _, _ in cell.heard] == [128 + 192 + airtime_us(38)]


def test_the_throughput_of_one_sender_is_that_of_the_standard() -> None:
    # A mean backoff of 3.5 units, a look, a turnaround, the frame, another turnaround and the acknowledgement.
    cell = Saturated(Ieee802154Radio(), {0: 1}, [(0.0, 0.0), (10.0, 0.0)], 100)
    cycle_us = 3.5 * 320 + 128 + 192 + airtime_us(118) + 192 + 352
    assert cell.megabits_per_s(20.0) == pytest.approx(800 / cycle_us, rel=0.02)


def test_a_long_message_is_sent_in_fragments_and_repeated_where_lost() -> None:
    cell = Cell(Ieee802154Radio(), [(0.0, 0.0), (10.0, 0.0)])
    token = cell.send(0, 1, 300)
    cell.run(1.0)
    assert [(one, failure) for _, one, failure in cell.outcomes] == [(token, None)]
    # 127 - 18 - 5 = 104 bytes in each of the first two fragments, 92 in the last.
    assert cell.heard[0][1].airtime_us == 2 * airtime_us(127) + airtime_us(115) + 3 * airtime_us(5)


def test_a_medium_that_stays_busy_is_a_named_drop() -> None:
    cell = Cell(Ieee802154Radio(max_looks=0), [(0.0, 0.0), (10.0, 0.0), (0.0, 10.0)])
    cell.send(0, None, 100)
    # The frame of node 0 begins after at most 2.56 ms and takes 4 ms. Node 1 looks at 2.7 ms or up to 2.2 ms later; its
    # unicast is dropped at the first busy look, and the failure says nothing about node 2.
    cell.send_at(2_600, 1, 2, 20)
    cell.run(1.0)
    assert [(node, reason) for _, node, reason in cell.losses] == [(1, "channel_busy")]
    assert [failure for _, _, failure in cell.outcomes] == [Failure.QUEUE_FULL]
