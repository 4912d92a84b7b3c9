"""Utilization, computed by hand and compared with a simple sum."""

from random import Random

import pytest

from carrycast.core.utilization import Utilization


def test_the_share_is_that_of_the_window_alone() -> None:
    busy = Utilization(10.0)
    assert busy.share(5.0) == 0.0
    busy.add(2.0, 4.0)
    busy.add(7.0, 8.0)
    assert busy.share(8.0) == pytest.approx(0.3)
    assert busy.share(12.5) == pytest.approx(0.25), "half a second of the first is beyond the window"
    assert busy.share(14.5) == pytest.approx(0.1)
    assert busy.share(18.0) == 0.0


def test_what_is_to_come_counts_when_it_has() -> None:
    busy = Utilization(10.0)
    busy.add(0.0, 8.0)
    assert busy.share(2.0) == pytest.approx(0.2)
    assert busy.share(8.0) == pytest.approx(0.8)


def test_work_without_a_pause_is_all_of_the_window_however_long() -> None:
    busy = Utilization(10.0)
    for step in range(1000):
        busy.add(step / 10, (step + 1) / 10)
    assert busy.share(100.0) == pytest.approx(1.0)
    assert busy.share(105.0) == pytest.approx(0.5)


def test_what_will_not_be_done_does_not_count() -> None:
    busy = Utilization(10.0)
    busy.add(0.0, 2.0)
    busy.add(3.0, 9.0)
    busy.cut(4.0)
    assert busy.share(9.0) == pytest.approx(0.3)
    busy.cut(0.0)
    assert busy.share(9.0) == 0.0


def test_work_of_no_length_is_none() -> None:
    busy = Utilization(10.0)
    busy.add(1.0, 1.0)
    busy.cut(1.0)
    assert busy.share(2.0) == 0.0


def test_very_many_short_intervals_are_about_right_and_take_little_room() -> None:
    rng, busy, now_s, stretches = Random(1), Utilization(10.0), 0.0, []
    for _ in range(40_000):
        start_s = now_s + rng.expovariate(1000)
        now_s = start_s + rng.expovariate(2000)
        busy.add(start_s, now_s)
        stretches.append((start_s, now_s))
    exact = sum(max(0.0, end_s - max(start_s, now_s - 10)) for start_s, end_s in stretches) / 10
    assert busy.share(now_s) == pytest.approx(exact, abs=0.004)
    assert len(busy._intervals) < 600
