"""Who waits how long on the contended radio: after collisions, through reservations, and until a frame is given up.

Times are worked out by hand from 802.11b's numbers.
"""

import pytest

from carrycast.sim.radio.dot11 import CsmaRadio
from tests.validation.cell import Cell, Dice, Point, close_together

# 192 us of preamble, and 512 + 64 bytes at 1 Mb/s and at 11 Mb/s.
BROADCAST_US, DATA_US = 192 + 576 * 8, 192 + 419
# The same of a message without a byte, at 11 Mb/s.
EMPTY_US = 192 + 47
ACK_US = CTS_US = 192 + 14 * 8
RTS_US = 192 + 20 * 8
DIFS_US, SIFS_US, SLOT_US = 50, 10, 20
EIFS_US = SIFS_US + DIFS_US + ACK_US
TIMEOUT_US = SIFS_US + ACK_US + SLOT_US

# Everybody hears the next one on the line, and nobody senses the one after that.
LINE: list[Point] = [(0, 0), (90, 0), (180, 0), (270, 0)]


def short_sighted(
    rts_threshold_bytes: int = 0,
    interference_range_m: float = 110,
    retry_limit: int = 7,
    long_retry_limit: int = 4,
) -> CsmaRadio:
    return CsmaRadio(
        range_m=100,
        cs_range_m=110,
        interference_range_m=interference_range_m,
        rts_threshold_bytes=rts_threshold_bytes,
        retry_limit=retry_limit,
        long_retry_limit=long_retry_limit,
    )


def link_at(cell: Cell, time_us: int, up: bool) -> None:
    """The link between the first two comes or goes."""
    cell.kernel.at(time_us, lambda _: cell.medium.topology.set_contact(0, 1, up), None)


@pytest.mark.parametrize(("slots", "order"), [((3, 7), [0, 1]), ((7, 3), [1, 0])])
def test_whoever_sent_during_a_collision_waits_difs(slots: tuple[int, int], order: list[int]) -> None:
    cell = Cell(CsmaRadio(), close_together(3), rng=Dice(*slots, 0, 0))
    for node in (0, 1):
        for _ in range(2):
            cell.send_at(1000, node, None, 512)
    cell.run(1)
    over_us = 1000 + BROADCAST_US
    third_us = over_us + DIFS_US + 3 * SLOT_US + BROADCAST_US
    fourth_us = third_us + DIFS_US + (7 - 3) * SLOT_US + BROADCAST_US
    ends = [(time_us, frame.sender) for time_us, frame, _ in cell.heard]
    assert ends[2:] == list(zip((third_us, fourth_us), order, strict=True))


def test_of_those_whose_turn_comes_at_once_the_lower_node_is_first_whatever_order_sets_have() -> None:
    # A set of 40 and 9 names 40 first in one interpreter and what came first in another.
    cell = Cell(CsmaRadio(), close_together(41), rng=Dice(3, 3, 0, 0, 0))
    cell.send_at(1000, 0, None, 512)
    for node in (40, 9):
        cell.send_at(1100, node, None, 512)
    cell.run(1)
    assert [frame.sender for _, frame, _ in cell.heard] == [0, 9, 40]


@pytest.mark.parametrize("slots", [(2, 40), (40, 2)])
def test_whoever_collided_counts_down_as_soon_as_it_has_waited_for_the_ack(slots: tuple[int, int]) -> None:
    cell = Cell(CsmaRadio(), close_together(3), rng=Dice(*slots, 0, 0, window=63))
    for node in (0, 1):
        cell.send_at(1000, node, 2, 512)
    cell.run(1)
    known_us = 1000 + DATA_US + TIMEOUT_US
    exchange_us = DATA_US + SIFS_US + ACK_US
    first_us = known_us + 2 * SLOT_US + exchange_us
    second_us = first_us + DIFS_US + (40 - 2) * SLOT_US + exchange_us
    assert [time_us for time_us, _, _ in cell.outcomes] == [first_us, second_us]
    assert {failure for _, _, failure in cell.outcomes} == {None}


def test_whoever_listens_to_two_of_different_length_waits_eifs_after_the_longer() -> None:
    cell = Cell(CsmaRadio(), close_together(3), rng=Dice(4, 0, 0, 0))
    cell.send_at(1000, 0, None, 512)
    cell.send_at(1000, 1, None, 0)
    cell.send_at(1100, 2, None, 512)
    cell.run(1)
    assert cell.heard[-1][0] == 1000 + BROADCAST_US + EIFS_US + 4 * SLOT_US + BROADCAST_US


@pytest.mark.parametrize("while_reserved", [True, False])
def test_a_backoff_without_a_frame_stands_still_while_the_medium_is_reserved(while_reserved: bool) -> None:
    # The third reads the CTS of the second and senses nothing of the first, whose data it announces.
    cell = Cell(short_sighted(), LINE[:3], rng=Dice(20, 0, 0))
    cell.send_at(1000, 2, None, 512)
    # Sixteen of its twenty slots are over when the CTS begins.
    cts_from_us = 1000 + BROADCAST_US + DIFS_US + 16 * SLOT_US
    cell.send_at(cts_from_us - SIFS_US - RTS_US, 0, 1, 512)
    data_from_us = cts_from_us + CTS_US + SIFS_US
    over_us = data_from_us + DATA_US + SIFS_US + ACK_US
    cell.send_at(data_from_us + 5 * SLOT_US if while_reserved else over_us + DIFS_US + 1, 2, None, 512)
    cell.run(1)
    assert [failure for _, _, failure in cell.outcomes] == [None]
    assert cell.heard[-1][0] == over_us + DIFS_US + (20 - 16) * SLOT_US + BROADCAST_US


def test_a_backoff_that_begins_while_the_medium_is_reserved_waits_for_the_end_of_that() -> None:
    # The first two start at once and end at once. The first waits for an ACK from the fourth, out of its reach, and
    # reads meanwhile what the second, which has heard nothing, goes on to send to the third.
    cell = Cell(short_sighted(rts_threshold_bytes=2347, retry_limit=1), LINE, rng=Dice(0, 5, 0, 0))
    together_us = 192 + 64 * 8
    cell.send_at(1000, 0, 3, 640)
    cell.send_at(1000, 1, None, 0)
    cell.send_at(1000, 1, 2, 0)
    read_us = 1000 + together_us + DIFS_US + EMPTY_US
    given_up_us = 1000 + together_us + TIMEOUT_US
    reserved_us = read_us + SIFS_US + ACK_US
    cell.send_at(reserved_us + DIFS_US + 1, 0, None, 512)
    cell.run(1)
    assert [(time_us, failure) for time_us, _, failure in cell.outcomes] == [
        (given_up_us, "unreachable"),
        (reserved_us, None),
    ]
    assert read_us < given_up_us < reserved_us
    assert cell.heard[-1][0] == reserved_us + DIFS_US + 5 * SLOT_US + BROADCAST_US


def test_a_lost_cts_gives_the_drop_its_reason() -> None:
    # The third is too far away to sense or to be heard, but near enough to spoil what the first receives.
    radio = short_sighted(interference_range_m=150, retry_limit=1)
    cell = Cell(radio, [(0, 0), (90, 0), (-140, 0)])
    cell.send_at(1000, 0, 1, 512)
    cell.send_at(1000 + RTS_US + SIFS_US + 1, 2, None, 0)
    cell.run(1)
    assert [failure for _, _, failure in cell.outcomes] == ["unreachable"]
    assert [(node, reason) for _, node, reason in cell.losses] == [(1, "collision")]


def test_the_drop_has_the_reason_of_the_last_attempt() -> None:
    # The first RTS finds nobody; what answers the second is lost as above.
    radio = short_sighted(interference_range_m=150, retry_limit=2)
    cell = Cell(radio, [(0, 0), (90, 0), (-140, 0)], rng=Dice(0, 0, 0, window=1023))
    link_at(cell, 500, up=False)
    cell.send_at(1000, 0, 1, 512)
    again_us = 1000 + RTS_US + TIMEOUT_US
    link_at(cell, again_us - 1, up=True)
    cell.send_at(again_us + RTS_US + SIFS_US + 1, 2, None, 0)
    cell.run(1)
    assert [(node, reason) for _, node, reason in cell.losses] == [(1, "collision")]


def test_a_target_that_others_have_silenced_does_not_answer_an_rts() -> None:
    cell = Cell(short_sighted(retry_limit=1), LINE)
    cell.send_at(1000, 3, 2, 512)
    data_from_us = 1000 + RTS_US + SIFS_US + CTS_US + SIFS_US
    # The second has read the third's CTS; the first has not.
    cell.send_at(data_from_us + 10, 0, 1, 512)
    cell.run(1)
    assert [(node, reason) for _, node, reason in cell.losses] == [(1, "reserved")]
    given_up_us = data_from_us + 10 + RTS_US + TIMEOUT_US
    assert cell.outcomes == [(given_up_us, 2, "unreachable"), (data_from_us + DATA_US + SIFS_US + ACK_US, 1, None)]


def test_a_cts_clears_the_tries_of_the_rts_and_leaves_the_window() -> None:
    # RTS, CTS, data and ACK in vain or not: the first RTS, the first data and the third RTS are lost.
    cell = Cell(short_sighted(retry_limit=2), LINE[:2], rng=Dice(0, 0, 8, 0, window=255))
    link_at(cell, 500, up=False)
    cell.send_at(1000, 0, 1, 512)
    asked_us = RTS_US + SIFS_US + CTS_US + SIFS_US
    second_us = 1000 + RTS_US + TIMEOUT_US
    link_at(cell, second_us - 1, up=True)
    link_at(cell, second_us + asked_us + 1, up=False)
    third_us = second_us + asked_us + DATA_US + TIMEOUT_US
    # The window has doubled three times: 63, 127, 255.
    fourth_us = third_us + RTS_US + TIMEOUT_US + 8 * SLOT_US
    link_at(cell, fourth_us - 1, up=True)
    cell.run(1)
    assert cell.outcomes == [(fourth_us + asked_us + DATA_US + SIFS_US + ACK_US, 1, None)]


def test_data_behind_an_rts_is_given_up_after_the_long_retry_limit() -> None:
    cell = Cell(short_sighted(retry_limit=7, long_retry_limit=2), LINE[:2], rng=Dice(0, 0, window=1023))
    cell.send_at(1000, 0, 1, 512)
    asked_us = RTS_US + SIFS_US + CTS_US + SIFS_US
    again_us = 1000 + asked_us + DATA_US + TIMEOUT_US
    for start_us in (1000, again_us):
        link_at(cell, start_us + asked_us + 1, up=False)
        link_at(cell, start_us + asked_us + DATA_US + 1, up=True)
    cell.run(1)
    assert cell.outcomes == [(again_us + asked_us + DATA_US + TIMEOUT_US, 1, "unreachable")]
    [(_, frame, nodes)] = cell.heard
    assert (frame.attempts, nodes) == (2, ())
    assert [(node, reason) for _, node, reason in cell.losses] == [(1, "out_of_reach")]
