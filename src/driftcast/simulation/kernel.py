"""The event queue: callbacks ordered by (time, sequence), so that the order is total and the same everywhere.

Time is counted in whole microseconds. Rounding it once, on the way in, keeps two machines from disagreeing about which
of two nearly equal times comes first.
"""

import heapq
import math
from collections.abc import Callable

from driftcast.radio.medium import Scheduler

US_PER_S = 1_000_000
_COMPACT_FROM = 1024


class Timer:
    """A scheduled call that can be called off; what is called off is dropped when its time comes, or earlier."""

    __slots__ = ("action", "alive", "argument")

    def __init__(self, action: Callable[[object], None], argument: object) -> None:
        self.action = action
        self.argument = argument
        self.alive = True


class Kernel(Scheduler):
    """One simulation's clock and queue. Nothing in it is shared with another simulation."""

    __slots__ = ("_cancelled", "_queue", "_sequence", "now_s", "now_us", "popped")

    def __init__(self) -> None:
        self.now_us = 0
        self.now_s = 0.0
        self.popped = 0
        self._queue: list[tuple[int, int, Callable[[object], None], object]] = []
        self._sequence = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._queue)

    def at(self, time_us: int, action: Callable[[object], None], argument: object) -> None:
        """Call `action(argument)` at a time, which is not before now."""
        self._sequence += 1
        heapq.heappush(self._queue, (time_us, self._sequence, action, argument))

    def timer(self, delay_s: float, action: Callable[[object], None], argument: object) -> Timer:
        """Call after a delay, unless called off before."""
        timer = Timer(action, argument)
        self.at(self.now_us + _delay_us(delay_s), self._fire, timer)
        return timer

    def cancel(self, timer: Timer) -> None:
        """Call a timer off. When most of the queue has been called off it is swept, so re-arming costs no memory."""
        if timer.alive:
            timer.alive = False
            self._cancelled += 1
            if self._cancelled > _COMPACT_FROM and 2 * self._cancelled > len(self._queue):
                self._queue = [entry for entry in self._queue if _wanted(entry[3])]
                heapq.heapify(self._queue)
                self._cancelled = 0

    def run(self, until_us: int) -> None:
        """Work through everything that is due up to a time, that time included; the clock stands there afterwards."""
        while self._queue and self._queue[0][0] <= until_us:
            time_us, _, action, argument = heapq.heappop(self._queue)
            if time_us != self.now_us:
                self.now_us = time_us
                self.now_s = time_us / US_PER_S
            self.popped += 1
            action(argument)
        self.now_us = until_us
        self.now_s = until_us / US_PER_S

    def _fire(self, timer: object) -> None:
        assert isinstance(timer, Timer)
        if timer.alive:
            timer.alive = False
            timer.action(timer.argument)
        else:
            self._cancelled -= 1


def _wanted(argument: object) -> bool:
    return not isinstance(argument, Timer) or argument.alive


def _delay_us(delay_s: float) -> int:
    """A delay rounded up. One rounded down would end before its deadline, and whoever then waits for the rest, less
    than half a microsecond, would wait for ever at the same moment. Below a nanosecond it is the error of a float."""
    return max(1, math.ceil(delay_s * US_PER_S - 1e-3)) if delay_s > 0 else 0


def microseconds(time_s: float) -> int:
    """A time or a duration as the kernel counts it."""
    return round(time_s * US_PER_S)
