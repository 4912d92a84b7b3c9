"""The event queue: callbacks ordered by (time, sequence), so that the order is total and the same everywhere.

Time is counted in whole microseconds. Rounding it once, on the way in, keeps two machines from disagreeing about which
of two nearly equal times comes first.

Only the entries due within the current second are in a heap. Later entries are kept unsorted, by the second, and become
the heap when their second begins (a calendar queue, R. Brown, CACM 1988, with buckets of one second). So the heap stays
small and in the processor's caches, however many timers a large network has armed.
"""

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from carrycast.sim.radio import Scheduler

US_PER_S = 1_000_000
_SECOND_US = US_PER_S
_COMPACT_FROM = 1024
_NEVER_S = 1e12
"""Later than the end of any run; a much later time would not fit a 64-bit integer."""

_Entry = tuple[int, int, Callable[[object], None] | None, object]
"""Time, sequence number, action and argument. Without an action the argument is a timer."""


class Timer:
    """A scheduled call that can be cancelled. A cancelled timer leaves the event queue at its time, or earlier."""

    __slots__ = ("action", "alive", "argument")

    def __init__(self, action: Callable[[object], None], argument: object) -> None:
        self.action = action
        self.argument = argument
        self.alive = True


class Kernel(Scheduler):
    """The clock and the event queue of one simulation. Simulations share nothing."""

    __slots__ = (
        "_cancelled",
        "_horizon_us",
        "_later",
        "_queue",
        "_seconds",
        "_sequence",
        "_waiting",
        "now_s",
        "now_us",
        "popped",
    )

    def __init__(self) -> None:
        self.now_us = 0
        self.now_s = 0.0
        self.popped = 0
        self._queue: list[_Entry] = []
        self._horizon_us = _SECOND_US
        """Entries before this time are in `_queue`, others in `_later`."""
        self._later: dict[int, list[_Entry]] = {}
        self._seconds: list[int] = []
        """The keys of `_later`, as a heap."""
        self._waiting = 0
        self._sequence = 0
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._queue) + self._waiting

    def at(self, time_us: int, action: Callable[[object], None], argument: object) -> None:
        """Call `action(argument)` at a time, which is not before now."""
        self._sequence += 1
        if time_us < self._horizon_us:
            heappush(self._queue, (time_us, self._sequence, action, argument))
        else:
            self._defer((time_us, self._sequence, action, argument))

    def timer(self, delay_s: float, action: Callable[[object], None], argument: object) -> Timer:
        """Call after a delay, unless cancelled before."""
        timer = Timer(action, argument)
        time_us = self.now_us + delay_us(delay_s)
        self._sequence += 1
        if time_us < self._horizon_us:
            heappush(self._queue, (time_us, self._sequence, None, timer))
        else:
            self._defer((time_us, self._sequence, None, timer))
        return timer

    def cancel(self, timer: Timer) -> None:
        """Cancel a timer. Cancelled entries are removed once they are most of the queue: re-arming cannot grow it."""
        if timer.alive:
            timer.alive = False
            self._cancelled += 1
            if self._cancelled > _COMPACT_FROM and 2 * self._cancelled > len(self):
                self._remove_cancelled()

    def run(self, until_us: int) -> None:
        """Run all entries of the event queue up to and including a time, and set the clock to that time."""
        while self._queue or self._begin_second(until_us):
            queue = self._queue
            if queue[0][0] > until_us:
                break
            time_us, _, action, argument = heappop(queue)
            if time_us != self.now_us:
                self.now_us = time_us
                self.now_s = time_us / US_PER_S
            self.popped += 1
            if action is not None:
                action(argument)
                continue
            assert isinstance(argument, Timer)
            if argument.alive:
                argument.alive = False
                argument.action(argument.argument)
            else:
                self._cancelled -= 1
        self.now_us = until_us
        self.now_s = until_us / US_PER_S

    def _defer(self, entry: _Entry) -> None:
        second = entry[0] // _SECOND_US
        waiting = self._later.get(second)
        if waiting is None:
            self._later[second] = [entry]
            heappush(self._seconds, second)
        else:
            waiting.append(entry)
        self._waiting += 1

    def _begin_second(self, until_us: int) -> bool:
        """Make the next second with entries the current one, if it begins by `until_us`; returns whether it does."""
        if not self._seconds or self._seconds[0] * _SECOND_US > until_us:
            return False
        second = heappop(self._seconds)
        self._horizon_us = (second + 1) * _SECOND_US
        self._queue = self._later.pop(second)
        self._waiting -= len(self._queue)
        heapify(self._queue)
        return True

    def _remove_cancelled(self) -> None:
        """Remove all cancelled timers from the event queue."""
        self._queue = [entry for entry in self._queue if _is_pending(entry[3])]
        heapify(self._queue)
        later = self._later.items()
        kept = ((second, [entry for entry in entries if _is_pending(entry[3])]) for second, entries in later)
        # Seconds without entries are removed: `run` relies on a second that begins to have an entry.
        self._later = {second: entries for second, entries in kept if entries}
        self._seconds = list(self._later)
        heapify(self._seconds)
        self._waiting = sum(map(len, self._later.values()))
        self._cancelled = 0


def _is_pending(argument: object) -> bool:
    return not isinstance(argument, Timer) or argument.alive


def delay_us(delay_s: float) -> int:
    """A delay rounded up to microseconds. Rounded down, a timer would fire before its deadline, and a handler that arms
    it again for the rest would do so for ever. An excess below a nanosecond is a rounding error and is ignored."""
    if not delay_s > 0:
        return 0
    whole_us = math.ceil((delay_s if delay_s < _NEVER_S else _NEVER_S) * US_PER_S - 1e-3)
    return whole_us if whole_us > 1 else 1


def microseconds(time_s: float) -> int:
    """A time or a duration in the kernel's unit."""
    return round(time_s * US_PER_S)
