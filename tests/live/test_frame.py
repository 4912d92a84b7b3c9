"""Frames of the link layer, and replay windows."""

from random import Random

import pytest
from hypothesis import given, strategies as st

from carrycast.core.model import MAX_NODE_ID
from carrycast.node.link.frame import (
    LINK_HEADER_BYTES,
    MAX_SENDERS,
    MAX_WAITED_MS,
    PROBE_BODY_BYTES,
    LinkFlaw,
    LinkFrame,
    LinkKind,
    add_waiting_time,
    pack,
    unpack,
)
from carrycast.node.link.replay_window import MAX_WINDOWS, WINDOW, ReceivedFrames, ReplayCheck

frames = st.builds(
    LinkFrame,
    st.sampled_from([LinkKind.DATA, LinkKind.ACKNOWLEDGED_DATA]),
    st.integers(0, MAX_NODE_ID),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
    st.binary(min_size=1, max_size=50),
    st.integers(0, MAX_WAITED_MS),
)


def frame(sequence: int, session: int = 1, sender: int = 7) -> LinkFrame:
    return LinkFrame(LinkKind.DATA, sender, session, sequence, b"x")


@given(frames)
def test_a_frame_survives_the_way_to_bytes_and_back(frame: LinkFrame) -> None:
    assert unpack(pack(frame)) == frame


@given(frames, st.integers(0, MAX_WAITED_MS))
def test_a_datagram_adds_up_what_it_waits_and_changes_in_nothing_else(frame: LinkFrame, waited_ms: int) -> None:
    aged = unpack(add_waiting_time(pack(frame), (waited_ms + 0.5) / 1000))
    assert aged == frame._replace(waited_ms=min(frame.waited_ms + waited_ms, MAX_WAITED_MS))


@given(st.binary(max_size=100), st.floats(0, 1e6))
def test_what_is_none_of_ours_does_not_age(datagram: bytes, waited_s: float) -> None:
    if isinstance(unpack(datagram), LinkFlaw):
        assert unpack(add_waiting_time(datagram, waited_s)) == unpack(datagram)
        assert add_waiting_time(b"\x00" + datagram, waited_s) == b"\x00" + datagram


def test_a_clock_that_was_set_back_makes_nothing_younger() -> None:
    datagram = pack(frame(1)._replace(waited_ms=70))
    assert add_waiting_time(datagram, -5.0) == datagram


@given(st.binary(max_size=100))
def test_any_bytes_are_a_frame_or_have_a_named_flaw(datagram: bytes) -> None:
    assert isinstance(unpack(datagram), LinkFrame | LinkFlaw)


def test_each_flaw_has_its_name() -> None:
    good = bytearray(pack(frame(1)))

    def changed(place: int, value: int) -> bytes:
        return bytes(good[:place]) + bytes([value]) + bytes(good[place + 1 :])

    acknowledgement = pack(LinkFrame(LinkKind.ACKNOWLEDGEMENT, 7, 1, 1, b""))
    assert unpack(bytes(good[: LINK_HEADER_BYTES - 1])) is LinkFlaw.TRUNCATED
    assert unpack(changed(0, 0)) is LinkFlaw.NOT_OURS
    assert unpack(changed(1, 9)) is LinkFlaw.VERSION
    assert unpack(changed(2, 17)) is LinkFlaw.KIND
    assert unpack(changed(2, LinkKind.HELLO)) is LinkFlaw.KEYED
    assert unpack(changed(2, 17), keyed=True) is LinkFlaw.KIND
    assert unpack(changed(3, 0x80)) is LinkFlaw.SENDER
    assert unpack(bytes(good[:LINK_HEADER_BYTES])) is LinkFlaw.BODY
    assert unpack(acknowledgement + b"x") is LinkFlaw.BODY
    assert isinstance(unpack(acknowledgement), LinkFrame)
    for kind in (LinkKind.PROBE, LinkKind.ECHO):
        probe = pack(LinkFrame(kind, 7, 1, 1, bytes(PROBE_BODY_BYTES)))
        assert len(probe) == 500
        assert isinstance(unpack(probe), LinkFrame)
        assert unpack(probe + b"x") is LinkFlaw.BODY
        assert unpack(probe[:-1]) is LinkFlaw.BODY


def test_numbers_in_any_order_are_new_once() -> None:
    windows, numbers = ReceivedFrames(), [*range(WINDOW - 1)]
    Random(7).shuffle(numbers)
    for number in numbers:
        assert windows.check(frame(number)) is ReplayCheck.NEW
        windows.add(frame(number))
    assert all(windows.check(frame(number)) is ReplayCheck.DUPLICATE for number in numbers)


def test_a_number_behind_the_window_is_too_old_if_counting_came_past_it() -> None:
    windows = ReceivedFrames()
    for number in range(4000, 5001, 500):
        windows.add(frame(number))
    windows.add(frame(5600))
    assert windows.check(frame(5600 - WINDOW + 1)) is ReplayCheck.NEW
    assert windows.check(frame(5600 - WINDOW)) is ReplayCheck.TOO_OLD
    assert windows.check(frame(4000)) is ReplayCheck.TOO_OLD
    assert windows.check(frame(3999)) is ReplayCheck.NEW, "nothing is known of what was before"


def test_a_jump_ahead_forgets_what_fell_out_of_the_window() -> None:
    windows = ReceivedFrames()
    windows.add(frame(1))
    windows.add(frame(1 + WINDOW // 2))
    assert windows.check(frame(1)) is ReplayCheck.DUPLICATE
    windows.add(frame(10 * WINDOW))
    assert windows.check(frame(10 * WINDOW)) is ReplayCheck.DUPLICATE
    assert windows.check(frame(10 * WINDOW - 1)) is ReplayCheck.NEW


def test_a_new_session_begins_anew() -> None:
    windows = ReceivedFrames()
    windows.add(frame(100, session=1))
    assert windows.check(frame(100, session=2)) is ReplayCheck.NEW
    windows.add(frame(1, session=2))
    assert windows.check(frame(1, session=2)) is ReplayCheck.DUPLICATE


def test_a_sender_heard_in_two_sessions_at_once_repeats_nothing_in_either() -> None:
    windows = ReceivedFrames()
    for number in range(3):
        for session in (1, 2):
            assert windows.check(frame(number, session)) is ReplayCheck.NEW
            windows.add(frame(number, session))
    for number in range(3):
        for session in (1, 2):
            assert windows.check(frame(number, session)) is ReplayCheck.DUPLICATE


@pytest.mark.parametrize("forged", [2**64 - 1, 60_000, 2 * WINDOW])
def test_a_forged_number_ahead_silences_no_sender_and_makes_nothing_be_heard_twice(forged: int) -> None:
    windows = ReceivedFrames()
    windows.add(frame(1))
    windows.add(frame(forged))
    for number in range(2, 2 * WINDOW, 100):
        assert windows.check(frame(number)) is ReplayCheck.NEW
        windows.add(frame(number))
        assert windows.check(frame(number)) is ReplayCheck.DUPLICATE
    assert windows.check(frame(forged)) is ReplayCheck.DUPLICATE


def test_forged_numbers_without_end_take_no_more_than_a_few_stretches() -> None:
    windows = ReceivedFrames()
    for number in range(100):
        windows.add(frame(number * 10 * WINDOW))
    assert [len(islands) for islands in windows._windows.values()] == [MAX_WINDOWS]
    assert windows.check(frame(1)) is ReplayCheck.NEW


def test_the_memory_is_bounded_in_senders() -> None:
    windows = ReceivedFrames()
    for sender in range(2 * MAX_SENDERS + 1):
        windows.add(frame(1, sender=sender))
    assert windows.check(frame(1, sender=0)) is ReplayCheck.NEW
    assert windows.check(frame(1, sender=1)) is ReplayCheck.DUPLICATE
