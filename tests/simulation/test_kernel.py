"""The event queue: a total order, timers that can be called off, and no memory of what was."""

import pytest

from driftcast.simulation.kernel import Kernel


def test_calls_come_by_time_and_then_by_the_order_in_which_they_were_asked_for() -> None:
    kernel, calls = Kernel(), list[object]()
    for time_us, name in ((20, "c"), (10, "a"), (20, "d"), (10, "b")):
        kernel.at(time_us, calls.append, name)
    kernel.run(100)
    assert calls == ["a", "b", "c", "d"]
    assert kernel.popped == 4


def test_a_run_includes_its_end_and_leaves_the_clock_there() -> None:
    kernel, calls = Kernel(), list[object]()
    kernel.at(5, calls.append, "at the end")
    kernel.at(6, calls.append, "after it")
    kernel.run(5)
    assert (calls, kernel.now_us, kernel.now_s, len(kernel)) == (["at the end"], 5, 5e-6, 1)


def test_what_is_asked_for_during_a_call_at_the_same_time_comes_in_the_same_run() -> None:
    kernel, calls = Kernel(), list[object]()

    def first(argument: object) -> None:
        calls.append(argument)
        kernel.at(kernel.now_us, calls.append, "second")

    kernel.at(5, first, "first")
    kernel.run(5)
    assert calls == ["first", "second"]


def test_a_timer_called_off_does_not_fire_and_may_be_called_off_again() -> None:
    kernel, calls = Kernel(), list[object]()
    timer = kernel.timer(1.0, calls.append, "never")
    kernel.timer(1.0, calls.append, "fires")
    kernel.cancel(timer)
    kernel.cancel(timer)
    kernel.run(2_000_000)
    assert calls == ["fires"]


def test_a_timer_that_has_fired_may_be_called_off() -> None:
    kernel, calls = Kernel(), list[object]()
    timer = kernel.timer(0.0, calls.append, "fires")
    kernel.run(0)
    kernel.cancel(timer)
    assert calls == ["fires"]


@pytest.mark.parametrize(
    ("delay_s", "after_us"), [(0.0, 0), (-1.0, 0), (1e-7, 1), (1e-12, 1), (0.0011, 1100), (1.0000004, 1000001)]
)
def test_a_timer_never_fires_before_its_delay_and_a_delay_always_takes_time(delay_s: float, after_us: int) -> None:
    kernel, fired_us = Kernel(), list[int]()
    kernel.timer(delay_s, lambda _: fired_us.append(kernel.now_us), None)
    kernel.run(2_000_000)
    assert fired_us == [after_us]


def test_waiting_for_the_rest_of_a_deadline_ends() -> None:
    """Deadlines are floats; a timer rounded down would be armed anew for ever, at the same microsecond."""
    kernel, deadline_s, rounds = Kernel(), 1.00000049, list[float]()

    def wait(_: object) -> None:
        rounds.append(kernel.now_s)
        if kernel.now_s < deadline_s:
            kernel.timer(deadline_s - kernel.now_s, wait, None)

    wait(None)
    kernel.run(2_000_000)
    assert rounds[-1] >= deadline_s
    assert len(rounds) <= 3


def test_arming_anew_for_ever_costs_no_memory() -> None:
    kernel, calls = Kernel(), list[object]()
    timer = kernel.timer(100.0, calls.append, 0)
    for again in range(1, 20_000):
        kernel.cancel(timer)
        timer = kernel.timer(100.0, calls.append, again)
    assert len(kernel) < 3000
    kernel.run(100_000_000)
    assert calls == [19_999]


def test_sweeping_the_queue_keeps_its_order() -> None:
    kernel, calls = Kernel(), list[object]()
    timers = [kernel.timer((i * 7919 % 5000) / 1000, calls.append, (i * 7919 % 5000, i)) for i in range(5000)]
    for i, timer in enumerate(timers):
        if i % 4:
            kernel.cancel(timer)
    kernel.run(10_000_000)
    assert len(calls) == 1250
    assert calls == sorted(calls)  # type: ignore[type-var]  # they are tuples of numbers
