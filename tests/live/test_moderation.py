"""Interrupt moderation (pauses at high rates), and congestion control (RTO and window)."""

from itertools import pairwise

import pytest

from carrycast.node.link.congestion import INITIAL_WINDOW, MIN_RTO, MIN_WINDOW, CongestionControl
from carrycast.node.link.moderation import (
    MAX_BACKOFF_S,
    MAX_PAUSE_S,
    MIN_BACKOFF_S,
    MIN_PAUSE_S,
    TARGET,
    InterruptModeration,
)


def test_who_is_seldom_woken_never_pauses() -> None:
    moderation = InterruptModeration()
    assert all(moderation.choose_pause_s(0.01 * n, 1) == 0.0 for n in range(1000))
    assert all(moderation.choose_pause_s(20.0 + n + 0.0001 * k, 1) == 0.0 for n in range(100) for k in range(8)), (
        "at once"
    )


def test_many_wake_ups_lead_to_pauses_as_long_as_they_gather_something() -> None:
    moderation = InterruptModeration()
    pauses = [moderation.choose_pause_s(1.0 + 0.001 * n, 1) for n in range(11)]
    assert pauses == [0.0] * 9 + [MAX_PAUSE_S, 0.0], "each adds one, and a fifth of one is forgotten meanwhile"
    moderation = InterruptModeration()
    assert [moderation.choose_pause_s(1.0, 1) for _ in range(9)][-1] == MAX_PAUSE_S
    assert moderation.choose_pause_s(1.1, 3) == MAX_PAUSE_S
    assert moderation.choose_pause_s(1.2, 2) == MAX_PAUSE_S
    assert moderation.choose_pause_s(1.3, 1) == 0.0, "who waits for answers is not to be slowed down"
    assert all(moderation.choose_pause_s(1.3 + 0.001 * n, 1) == 0.0 for n in range(1, int(MIN_BACKOFF_S * 900)))


def test_a_source_whose_wake_ups_are_not_even_is_taken_together_all_the_same() -> None:
    moderation = InterruptModeration()
    gaps_s = [0.0021, 0.0001, 0.007, 0.002, 0.0001, 0.0001] * 20
    times_s = [sum(gaps_s[:n]) for n in range(len(gaps_s))]
    assert any(moderation.choose_pause_s(time_s, 2) for time_s in times_s), "520 wake-ups a second, some 7 ms apart"


def test_a_pause_is_as_long_as_it_takes_to_gather_some() -> None:
    moderation = InterruptModeration()
    while not moderation.choose_pause_s(0.0, 1):
        pass
    pause_s = MAX_PAUSE_S
    for _ in range(10):
        pause_s = moderation.choose_pause_s(1.0, round(5000 * pause_s))
    assert pause_s == pytest.approx(TARGET / 5000, rel=0.05)
    assert moderation.choose_pause_s(2.0, 1_000_000) == MIN_PAUSE_S
    assert moderation.choose_pause_s(3.0, 2) == MAX_PAUSE_S


def test_pauses_in_vain_become_seldom_until_one_gathers_something() -> None:
    moderation = InterruptModeration()
    pauses = [n for n in range(10_000) if moderation.choose_pause_s(0.001 * n, 1)]
    gaps_s = [(after - before) / 1000 for before, after in pairwise(pauses)]
    assert gaps_s[0] == pytest.approx(MIN_BACKOFF_S, abs=0.01)
    assert gaps_s[1] == pytest.approx(2 * MIN_BACKOFF_S, abs=0.01)
    assert gaps_s[-1] == pytest.approx(MAX_BACKOFF_S, abs=0.01)
    begun = next(n for n in range(10_000, 12_000) if moderation.choose_pause_s(0.001 * n, 1))
    assert moderation.choose_pause_s(0.001 * begun, 2) == MAX_PAUSE_S
    assert moderation.choose_pause_s(0.001 * begun, 1) == 0.0
    again = next(n for n in range(begun + 1, 14_000) if moderation.choose_pause_s(0.001 * n, 1))
    assert (again - begun) / 1000 == pytest.approx(MIN_BACKOFF_S, abs=0.01)


def test_a_window_grows_with_answers_and_is_halved_once_by_what_is_lost_together() -> None:
    congestion = CongestionControl(0.2, 256)
    assert congestion.cwnd == INITIAL_WINDOW
    for _ in range(1000):
        congestion.on_ack(0.01)
    assert congestion.cwnd == 256
    congestion.on_timeout(5.0)
    congestion.on_timeout(5.001)
    assert congestion.cwnd == 128
    congestion.on_ack(0.01)
    assert congestion.cwnd == pytest.approx(128 + 1 / 128), "from there on by one a window"
    for n in range(100):
        congestion.on_timeout(6.0 + n)
    assert congestion.cwnd == MIN_WINDOW
    assert CongestionControl(0.2, 1).cwnd == 1


def test_the_wait_follows_the_time_that_answers_take() -> None:
    congestion = CongestionControl(0.2, 256)
    assert [congestion.rto_s(attempt) for attempt in (1, 2, 3)] == [0.2, 0.4, 0.8]
    for _ in range(200):
        congestion.on_ack(0.001)
    assert congestion.rto_s(1) == 0.2 * MIN_RTO, "a neighbor that was busy for a moment is not gone"
    assert congestion.rto_s(2) == 0.4, "and is given up no sooner"
    congestion.on_ack(None)
    for _ in range(200):
        congestion.on_ack(1.0)
    assert 1.0 <= congestion.rto_s(1) < 1.5, "a slow link is not sent everything twice"
    assert congestion.rto_s(3) >= 4.0
