"""How a node is woken, and how fast it sends: pauses where much comes, a window by the time that an answer takes."""

from itertools import pairwise

import pytest

from carrycast.node.link.congestion import FIRST_WINDOW, LEAST_WINDOW, SOONEST, Pace
from carrycast.node.link.moderation import AIM, FIRST_SHY_S, LEAST_S, MOST_S, SHY_S, Moderation


def test_who_is_seldom_woken_never_pauses() -> None:
    moderation = Moderation()
    assert all(moderation.pause_s(0.01 * n, 1) == 0.0 for n in range(1000))
    assert all(moderation.pause_s(20.0 + n + 0.0001 * k, 1) == 0.0 for n in range(100) for k in range(8)), "at once"


def test_many_wake_ups_lead_to_pauses_as_long_as_they_gather_something() -> None:
    moderation = Moderation()
    pauses = [moderation.pause_s(1.0 + 0.001 * n, 1) for n in range(11)]
    assert pauses == [0.0] * 9 + [MOST_S, 0.0], "each adds one, and a fifth of one is forgotten meanwhile"
    moderation = Moderation()
    assert [moderation.pause_s(1.0, 1) for _ in range(9)][-1] == MOST_S
    assert moderation.pause_s(1.1, 3) == MOST_S
    assert moderation.pause_s(1.2, 2) == MOST_S
    assert moderation.pause_s(1.3, 1) == 0.0, "who waits for answers is not to be slowed down"
    assert all(moderation.pause_s(1.3 + 0.001 * n, 1) == 0.0 for n in range(1, int(FIRST_SHY_S * 900)))


def test_a_source_whose_wake_ups_are_not_even_is_taken_together_all_the_same() -> None:
    moderation = Moderation()
    gaps_s = [0.0021, 0.0001, 0.007, 0.002, 0.0001, 0.0001] * 20
    times_s = [sum(gaps_s[:n]) for n in range(len(gaps_s))]
    assert any(moderation.pause_s(time_s, 2) for time_s in times_s), "520 wake-ups a second, some 7 ms apart"


def test_a_pause_is_as_long_as_it_takes_to_gather_some() -> None:
    moderation = Moderation()
    while not moderation.pause_s(0.0, 1):
        pass
    pause_s = MOST_S
    for _ in range(10):
        pause_s = moderation.pause_s(1.0, round(5000 * pause_s))
    assert pause_s == pytest.approx(AIM / 5000, rel=0.05)
    assert moderation.pause_s(2.0, 1_000_000) == LEAST_S
    assert moderation.pause_s(3.0, 2) == MOST_S


def test_pauses_in_vain_become_seldom_until_one_gathers_something() -> None:
    moderation = Moderation()
    pauses = [n for n in range(10_000) if moderation.pause_s(0.001 * n, 1)]
    gaps_s = [(after - before) / 1000 for before, after in pairwise(pauses)]
    assert gaps_s[0] == pytest.approx(FIRST_SHY_S, abs=0.01)
    assert gaps_s[1] == pytest.approx(2 * FIRST_SHY_S, abs=0.01)
    assert gaps_s[-1] == pytest.approx(SHY_S, abs=0.01)
    begun = next(n for n in range(10_000, 12_000) if moderation.pause_s(0.001 * n, 1))
    assert moderation.pause_s(0.001 * begun, 2) == MOST_S
    assert moderation.pause_s(0.001 * begun, 1) == 0.0
    again = next(n for n in range(begun + 1, 14_000) if moderation.pause_s(0.001 * n, 1))
    assert (again - begun) / 1000 == pytest.approx(FIRST_SHY_S, abs=0.01)


def test_a_window_grows_with_answers_and_is_halved_once_by_what_is_lost_together() -> None:
    pace = Pace(0.2, 256)
    assert pace.window == FIRST_WINDOW
    for _ in range(1000):
        pace.answered(0.01)
    assert pace.window == 256
    pace.silent(5.0)
    pace.silent(5.001)
    assert pace.window == 128
    pace.answered(0.01)
    assert pace.window == pytest.approx(128 + 1 / 128), "from there on by one a window"
    for n in range(100):
        pace.silent(6.0 + n)
    assert pace.window == LEAST_WINDOW
    assert Pace(0.2, 1).window == 1


def test_the_wait_follows_the_time_that_answers_take() -> None:
    pace = Pace(0.2, 256)
    assert [pace.wait_s(attempt) for attempt in (1, 2, 3)] == [0.2, 0.4, 0.8]
    for _ in range(200):
        pace.answered(0.001)
    assert pace.wait_s(1) == 0.2 * SOONEST, "a neighbor that was busy for a moment is not gone"
    assert pace.wait_s(2) == 0.4, "and is given up no sooner"
    pace.answered(None)
    for _ in range(200):
        pace.answered(1.0)
    assert 1.0 <= pace.wait_s(1) < 1.5, "a slow link is not sent everything twice"
    assert pace.wait_s(3) >= 4.0
