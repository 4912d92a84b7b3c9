"""The event queue: a total order, timers that can be called off, and no memory of what was."""

from heapq import heappop, heappush
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from carrycast.sim.engine import kernel as kernel_module
from carrycast.sim.engine.kernel import Kernel, Timer, delay_us
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario


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


@pytest.mark.parametrize("after", [None, 7.5, 9.0])
def test_a_later_second_whose_timers_are_all_called_off_goes_by(after: float | None) -> None:
    """1,025 timers called off are swept, and nothing is left of the second in which they were due."""
    kernel, calls = Kernel(), list[object]()
    for timer in [kernel.timer(5.0, calls.append, "never") for _ in range(1025)]:
        kernel.cancel(timer)
    if after is not None:
        kernel.timer(after, calls.append, "after")
    kernel.timer(5.5, calls.append, "in the same second")
    kernel.run(10_000_000)
    assert calls == ["in the same second", *([] if after is None else ["after"])]
    assert len(kernel) == 0
    for timer in [kernel.timer(2.0, calls.append, "never") for _ in range(1025)]:
        kernel.cancel(timer)
    kernel.run(20_000_000)
    assert (len(calls), len(kernel), kernel.now_us) == (1 if after is None else 2, 0, 20_000_000)


def test_seconds_that_were_emptied_take_no_memory() -> None:
    kernel = Kernel()
    for second in range(1, 20_000):
        kernel.cancel(kernel.timer(float(second), lambda _: None, None))
    assert len(kernel) <= 1024
    kernel.run(20_000_000_000)
    assert kernel.popped <= 1024


class _PlainKernel:
    """The same order from one heap, with nothing swept and no seconds: what the kernel must do."""

    def __init__(self) -> None:
        self.now_us = 0
        self._heap: list[tuple[int, int]] = []
        self._calls: dict[int, int] = {}
        self._sequence = 0

    def add(self, time_us: int, name: int) -> int:
        self._sequence += 1
        heappush(self._heap, (time_us, self._sequence))
        self._calls[self._sequence] = name
        return self._sequence

    def cancel(self, entry: int) -> None:
        self._calls.pop(entry, None)

    def pop(self, until_us: int) -> int | None:
        """The next call that is due, or None."""
        while self._heap and self._heap[0][0] <= until_us:
            time_us, entry = heappop(self._heap)
            self.now_us = time_us
            if entry in self._calls:
                return self._calls.pop(entry)
        self.now_us = until_us
        return None


# Delays around the ends of seconds, and far away; each call of a program makes some timers and calls some off.
_DELAYS_S = st.one_of(
    st.sampled_from([0.0, 1e-6, 0.5, 0.999999, 1.0, 1.000001, 2.0, 3.5, 60.0, 1e6, 1e15]),
    st.floats(0, 20, allow_nan=False),
)
_STEP = st.tuples(st.lists(_DELAYS_S, max_size=4), st.lists(st.integers(0, 1000), max_size=6))


@settings(max_examples=300, deadline=None)
@given(
    steps=st.lists(_STEP, min_size=1, max_size=60),
    stops_s=st.lists(st.floats(0, 30, allow_nan=False), min_size=1, max_size=6),
    compact_from=st.sampled_from([0, 1, 3, 10]),
)
def test_the_kernel_does_what_one_plain_heap_does(
    steps: list[tuple[list[float], list[int]]], stops_s: list[float], compact_from: int
) -> None:
    """Random programs that set timers and call them off, from outside and from within calls."""
    swept_from = kernel_module._COMPACT_FROM
    kernel_module._COMPACT_FROM = compact_from
    try:
        assert _played(steps, stops_s) == _played_plainly(steps, stops_s)
    finally:
        kernel_module._COMPACT_FROM = swept_from


def _played(steps: list[tuple[list[float], list[int]]], stops_s: list[float]) -> list[tuple[int, int]]:
    kernel, timers, calls = Kernel(), list[Timer](), list[tuple[int, int]]()

    def call(name: object) -> None:
        assert isinstance(name, int)
        calls.append((kernel.now_us, name))
        act(len(calls))

    def act(place: int) -> None:
        delays, cancelled = steps[place] if place < len(steps) else ([], [])
        for delay_s in delays:
            timers.append(kernel.timer(delay_s, call, len(timers)))
        for which in cancelled:
            if timers:
                kernel.cancel(timers[which % len(timers)])

    act(0)
    for stop_s in sorted(stops_s):
        kernel.run(delay_us(stop_s))
    return calls


def _played_plainly(steps: list[tuple[list[float], list[int]]], stops_s: list[float]) -> list[tuple[int, int]]:
    kernel, timers, calls = _PlainKernel(), list[int](), list[tuple[int, int]]()

    def act(place: int) -> None:
        delays, cancelled = steps[place] if place < len(steps) else ([], [])
        for delay_s in delays:
            timers.append(kernel.add(kernel.now_us + delay_us(delay_s), len(timers)))
        for which in cancelled:
            if timers:
                kernel.cancel(timers[which % len(timers)])

    act(0)
    for stop_s in sorted(stops_s):
        while (name := kernel.pop(delay_us(stop_s))) is not None:
            calls.append((kernel.now_us, name))
            act(len(calls))
    return calls


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_node_that_comes_late_into_a_full_room_ends_no_run(tmp_path: Path, seed: int) -> None:
    """24 nodes are told of it at once and call off, each, what they had planned for later seconds."""
    lines = ["time_s,node,x_m,y_m"]
    for node in range(25):
        lines.append(f"{30 if node == 24 else 0},{node},{node % 5 * 2},{node // 5 * 2}")
    (tmp_path / "room.csv").write_text("\n".join(lines) + "\n")
    table = {
        "duration_s": 120.0,
        "nodes": 25,
        "area_m": [10.0, 10.0],
        "mobility": {"model": "csv", "file": "room.csv"},
        "discovery": {"mode": "oracle"},
        "protocol": {"name": "drift"},
        "subscribe": [{"filter": "true"}],
        "publish": [{"count": 200, "to_s": 20.0}],
        "base": str(tmp_path),
    }
    outcome = run(parse_scenario(table, "room"), seed)
    assert outcome.metrics["delivery_ratio"] == 1.0
