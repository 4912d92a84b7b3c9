"""The contended radio, one rule at a time. Times are worked out by hand from 802.11b's numbers."""

import pytest

from carrycast.sim.radio.dot11 import PRESETS, CsmaRadio
from carrycast.sim.radio.medium import Reach
from tests.validation.cell import Cell, Dice, Point, close_together

# 192 us of preamble, and 512 + 64 bytes at 1 Mb/s.
BROADCAST_US = 192 + 576 * 8
# The same at 11 Mb/s, rounded up.
DATA_US = 192 + 419
ACK_US = 192 + 14 * 8
DIFS_US, SIFS_US, SLOT_US = 50, 10, 20
EIFS_US = SIFS_US + DIFS_US + ACK_US

# A hidden pair: neither of the outer ones senses the other, the middle one hears both.
SHORT_SIGHTED = CsmaRadio(range_m=100, cs_range_m=110, interference_range_m=110)
HIDDEN: list[Point] = [(0, 0), (90, 0), (180, 0)]


def ends_us(cell: Cell) -> list[tuple[int, int]]:
    """When each frame ended, and who had sent it."""
    return [(time_us, frame.sender) for time_us, frame, _ in cell.heard]


def test_a_frame_for_an_idle_medium_goes_at_once() -> None:
    cell = Cell(CsmaRadio(), close_together(3))
    cell.send_at(1000, 0, None, 512)
    cell.run(1)
    assert [(time_us, nodes) for time_us, _, nodes in cell.heard] == [(1000 + BROADCAST_US, (1, 2))]


def test_two_that_start_in_the_same_slot_collide_at_everybody() -> None:
    cell = Cell(CsmaRadio(), close_together(4))
    cell.send_at(1000, 0, None, 512)
    cell.send_at(1000 + SLOT_US - 1, 1, None, 512)
    cell.run(1)
    assert [nodes for _, _, nodes in cell.heard] == [(), ()]
    assert sorted((node, reason) for _, node, reason in cell.losses) == [
        (0, "collision"),
        (1, "collision"),
        *[(2, "collision")] * 2,
        *[(3, "collision")] * 2,
    ]


def test_whoever_comes_a_slot_later_waits_for_the_end_and_a_backoff() -> None:
    cell = Cell(CsmaRadio(), close_together(3), rng=Dice(3, 0, 0))
    cell.send_at(1000, 0, None, 512)
    cell.send_at(1000 + SLOT_US, 1, None, 512)
    cell.run(1)
    first_us = 1000 + BROADCAST_US
    assert ends_us(cell) == [(first_us, 0), (first_us + DIFS_US + 3 * SLOT_US + BROADCAST_US, 1)]
    assert [len(nodes) for _, _, nodes in cell.heard] == [2, 2]


@pytest.mark.parametrize(("busy_slot_counts", "left"), [(False, 5 - 3), (True, 5 - 3 - 1)])
def test_a_backoff_is_frozen_while_others_send_and_goes_on_where_it_was(busy_slot_counts: bool, left: int) -> None:
    radio = CsmaRadio(busy_slot_counts=busy_slot_counts)
    # Drawn by the second and the third on arrival, then by each after its frame.
    cell = Cell(radio, close_together(3), rng=Dice(3, 5, 0, 0, 0))
    cell.send_at(1000, 0, None, 512)
    cell.send_at(2000, 1, None, 512)
    cell.send_at(3000, 2, None, 512)
    cell.run(1)
    first_us = 1000 + BROADCAST_US
    second_us = first_us + DIFS_US + 3 * SLOT_US + BROADCAST_US
    assert ends_us(cell) == [(first_us, 0), (second_us, 1), (second_us + DIFS_US + left * SLOT_US + BROADCAST_US, 2)]


def test_equal_backoffs_end_in_the_same_slot_and_collide() -> None:
    cell = Cell(CsmaRadio(), close_together(4), rng=Dice(7, 7, 0, 0, 0))
    cell.send_at(1000, 0, None, 512)
    cell.send_at(2000, 1, None, 512)
    cell.send_at(3000, 2, None, 512)
    cell.run(1)
    assert [nodes for _, _, nodes in cell.heard] == [(1, 2, 3), (), ()]


@pytest.mark.parametrize(("eifs", "space_us"), [(True, EIFS_US), (False, DIFS_US)])
def test_after_a_frame_that_could_not_be_read_a_node_waits_longer(eifs: bool, space_us: int) -> None:
    cell = Cell(CsmaRadio(eifs=eifs), close_together(3), rng=Dice(4, 0, 0, 0))
    cell.send_at(1000, 0, None, 512)
    cell.send_at(1000, 1, None, 512)
    cell.send_at(2000, 2, None, 512)
    cell.run(1)
    assert ends_us(cell)[-1] == (1000 + 2 * BROADCAST_US + space_us + 4 * SLOT_US, 2)


def test_a_backoff_follows_every_frame_even_if_nothing_is_left_to_send() -> None:
    cell = Cell(CsmaRadio(), close_together(2), rng=Dice(10, 10, 10))
    cell.send_at(1000, 0, None, 512)
    first_us = 1000 + BROADCAST_US
    # Long enough after the first frame for immediate access, but within the ten slots that follow it.
    cell.send_at(first_us + DIFS_US + 5 * SLOT_US, 0, None, 512)
    second_us = first_us + DIFS_US + 10 * SLOT_US + BROADCAST_US
    third_us = second_us + DIFS_US + 10 * SLOT_US
    cell.send_at(third_us, 0, None, 512)
    cell.run(1)
    assert ends_us(cell) == [(first_us, 0), (second_us, 0), (third_us + BROADCAST_US, 0)]


def test_a_backoff_without_a_frame_stands_still_while_others_send() -> None:
    cell = Cell(CsmaRadio(), close_together(2), rng=Dice(10, 0, 0))
    cell.send_at(1000, 0, None, 512)
    first_us = 1000 + BROADCAST_US
    # Four of the ten slots are over when the other one starts; two more when the next frame comes.
    other_us = first_us + DIFS_US + 4 * SLOT_US
    cell.send_at(other_us, 1, None, 512)
    quiet_us = other_us + BROADCAST_US + DIFS_US
    cell.send_at(quiet_us + 2 * SLOT_US, 0, None, 512)
    cell.run(1)
    assert ends_us(cell)[-1] == (quiet_us + (10 - 4) * SLOT_US + BROADCAST_US, 0)


def test_a_unicast_is_acknowledged_after_a_sifs() -> None:
    cell = Cell(CsmaRadio(), close_together(3))
    cell.send_at(1000, 0, 2, 512)
    cell.run(1)
    [(time_us, frame, nodes)] = cell.heard
    assert (time_us, nodes, frame.attempts) == (1000 + DATA_US, (2,), 1)
    assert cell.outcomes == [(1000 + DATA_US + SIFS_US + ACK_US, 1, None)]


def test_a_target_out_of_reach_is_given_up_after_the_retry_limit() -> None:
    cell = Cell(CsmaRadio(retry_limit=3), [(0, 0), (300, 0)])
    cell.send(0, 1, 512)
    cell.run(1)
    [(_, frame, nodes)] = cell.heard
    assert (nodes, frame.attempts, frame.lost) == ((), 3, True)
    assert [reason for _, _, reason in cell.losses] == ["out_of_reach"]
    assert [failure for _, _, failure in cell.outcomes] == ["unreachable"]


def test_the_window_doubles_with_every_failure_up_to_its_bound() -> None:
    # The last slot of the widest window is, as a fraction, the last of every other.
    cell = Cell(CsmaRadio(retry_limit=4, cw_max=127), [(0, 0), (300, 0)], rng=Dice(127, 127, 127, 0, window=127))
    cell.send(0, 1, 512)
    cell.run(1)
    attempt_us = DATA_US + SIFS_US + ACK_US + SLOT_US
    [(given_up_us, _, _)] = cell.outcomes
    assert given_up_us == 4 * attempt_us + (63 + 127 + 127) * SLOT_US


def test_a_repetition_because_of_a_lost_ack_is_not_passed_up_again() -> None:
    # The third is too far away to sense or to be heard, but near enough to spoil what the first receives.
    radio = CsmaRadio(range_m=100, cs_range_m=110, interference_range_m=150)
    cell = Cell(radio, [(0, 0), (90, 0), (-140, 0)])
    cell.send_at(1000, 0, 1, 512)
    cell.send_at(1000 + DATA_US + SIFS_US + 1, 2, None, 0)
    to_second: list[tuple[int, tuple[int, ...]]] = []
    cell.after_received = lambda frame, reach: (
        to_second.append((frame.attempts, reach.nodes)) if frame.target == 1 else None
    )
    cell.run(1)
    assert to_second == [(1, (1,)), (1, ())], "the second attempt is on record, but nobody hears it again"
    assert [failure for _, _, failure in cell.outcomes] == [None]


def test_a_full_queue_refuses_and_says_so_once() -> None:
    cell = Cell(CsmaRadio(queue=2), close_together(2))
    for _ in range(4):
        cell.send(0, 1, 512)
    assert [reason for _, _, reason in cell.losses] == ["queue_full"]
    assert cell.outcomes == [], "never from inside the sender's own call"
    cell.run(1)
    assert sorted((token, failure) for _, token, failure in cell.outcomes) == [
        (1, None),
        (2, None),
        (3, None),
        (4, "queue_full"),
    ]


def test_a_hidden_sender_spoils_a_reception_in_the_middle() -> None:
    cell = Cell(SHORT_SIGHTED, HIDDEN)
    cell.send_at(1000, 0, None, 512)
    cell.send_at(3000, 2, None, 512)
    cell.run(1)
    assert [nodes for _, _, nodes in cell.heard] == [(), ()]
    assert {node for _, node, _ in cell.losses} == {1}


def test_a_cts_silences_those_who_cannot_hear_the_rts() -> None:
    radio = CsmaRadio(range_m=100, cs_range_m=110, interference_range_m=110, rts_threshold_bytes=0)
    cell = Cell(radio, HIDDEN, rng=Dice(0, 0, 0))
    cell.send_at(1000, 0, 1, 512)
    rts_us, cts_us = 192 + 160, 192 + 112
    data_from_us = 1000 + rts_us + SIFS_US + cts_us + SIFS_US
    cell.send_at(data_from_us + 100, 2, None, 512)
    cell.run(1)
    over_us = data_from_us + DATA_US + SIFS_US + ACK_US
    assert cell.outcomes == [(over_us, 1, None)]
    assert ends_us(cell) == [(data_from_us + DATA_US, 0), (over_us + DIFS_US + BROADCAST_US, 2)]


def test_an_rts_without_an_answer_puts_no_data_on_the_air() -> None:
    cell = Cell(CsmaRadio(preset="ns2"), [(0, 0), (300, 0)])
    cell.send(0, 1, 512)
    cell.run(1)
    assert cell.heard == []
    assert [failure for _, _, failure in cell.outcomes] == ["unreachable"]


@pytest.mark.parametrize(("capture_db", "heard"), [(0.0, ((), ())), (10.0, ((1,), ()))])
def test_a_much_stronger_frame_survives_if_capture_is_on(
    capture_db: float, heard: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    # The middle one is 20 m from the first and 95 m from the third, which do not sense each other.
    radio = CsmaRadio(range_m=100, cs_range_m=110, interference_range_m=110, capture_db=capture_db)
    cell = Cell(radio, [(0, 0), (20, 0), (115, 0)])
    cell.send_at(1000, 0, None, 512)
    cell.send_at(1500, 2, None, 512)
    cell.run(1)
    assert tuple(nodes for _, _, nodes in cell.heard) == heard


def test_a_crash_forgets_what_was_to_be_sent() -> None:
    cell = Cell(CsmaRadio(), close_together(3))
    for _ in range(3):
        cell.send(0, 1, 512)
    cell.send(1, 2, 512)
    cell.kernel.at(100, lambda _: cell.medium.topology.set_node(0, up=False), None)
    cell.kernel.at(200, lambda _: cell.medium.topology.set_node(0, up=True), None)
    cell.run(1)
    assert [(node, reason) for _, node, reason in cell.losses] == [(0, "sender_down")] * 3
    assert [(token, failure) for _, token, failure in cell.outcomes] == [(4, None)]
    cell.send(0, 1, 512)
    cell.run(2)
    assert cell.outcomes[-1][1:] == (5, None)


def test_a_handler_that_answers_at_once_waits_its_turn_like_everybody() -> None:
    cell = Cell(CsmaRadio(), close_together(3), rng=Dice(0, 2, 6, 0, 0))
    answered: set[int] = set()

    def answer(_: object, reach: Reach) -> None:
        for node in reach.nodes:
            if node not in answered | {0}:
                answered.add(node)
                cell.send(node, None, 512)

    cell.after_received = answer
    cell.send_at(1000, 0, None, 512)
    cell.run(1)
    first_us = 1000 + BROADCAST_US
    second_us = first_us + DIFS_US + 2 * SLOT_US + BROADCAST_US
    assert ends_us(cell) == [(first_us, 0), (second_us, 1), (second_us + DIFS_US + 4 * SLOT_US + BROADCAST_US, 2)]


def test_a_broadcast_costs_two_queue_entries() -> None:
    cell = Cell(CsmaRadio(), close_together(50))
    for node in range(50):
        cell.send_at(1000 + 100 * node, node, None, 512)
    cell.run(1)
    assert len(cell.heard) == 50
    assert cell.kernel.popped <= 50 + 2 * 50


def test_presets_give_their_numbers_and_every_one_can_be_replaced() -> None:
    ns2 = CsmaRadio(preset="ns2", queue=7)
    assert ns2.dot11().data_rate_bps == 2e6
    assert ns2.dot11().uses_rts(0)
    assert ns2.dot11().queue == 7
    assert (ns2.range_m, ns2.cs_m, ns2.interference_m) == (250, 550, 550)
    assert PRESETS["802.11b"].eifs_us == 364
    assert not PRESETS["802.11b"].uses_rts(1500)
    assert CsmaRadio().interference_m == pytest.approx(445, abs=1)
