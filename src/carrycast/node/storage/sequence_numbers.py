"""Numbers that a node never gives twice, whatever happens between two starts."""

import secrets
import struct
import time

from carrycast.node.storage.store import TICK_S, TICKS_FROM_S, NodeStore

BLOCK = 1000
"""One write through to the disk per so many numbers; a crash leaves at most that many unused."""


DRAWN = 64
"""Numbers that are drawn together."""
_DRAWN = struct.Struct("@Q")
CHANCE_BITS = 24
"""A forger needs 16 million events to meet the next number of a node; 39 bits are left to count."""


class SequenceNumbers:
    """The counter behind a node's events, subscription ids or incarnations.

    With a store, numbers are reserved in blocks before they are used. Without one they count on from the microseconds
    since 1970 at the start, which no earlier start can have reached unless the clock was set back.
    """

    __slots__ = ("_block", "_end", "_name", "_next", "_store")

    def __init__(self, name: str, store: NodeStore | None, block: int = BLOCK) -> None:
        self._name = name
        self._block = block
        self._store = store
        if store is None:
            self._next = time.time_ns() // 1000
            self._end = 1 << 63
        else:
            self._next = self._end = 0

    def take(self) -> int:
        """The next number."""
        if self._next >= self._end:
            assert self._store is not None
            self._next = self._store.reserve(self._name, self._block)
            self._end = self._next + self._block
        number = self._next
        self._next += 1
        return number


class UnpredictableSequenceNumbers:
    """The numbers of a node's events: never given twice, and not to be foreseen. Who could foresee one could send
    something else under it first, and hide the event.

    With a store a counter stands before CHANCE_BITS of chance; at a thousand events a second it lasts for 17 years.
    Without one all 63 bits are drawn: of a million events two have the same number once in 18 million times.
    """

    __slots__ = ("_counter", "_drawn")

    def __init__(self, store: NodeStore | None) -> None:
        self._counter = None if store is None else SequenceNumbers("event", store)
        self._drawn: list[int] = []

    def take(self) -> int:
        """The next number."""
        if not self._drawn:
            # One question to the system for many numbers.
            self._drawn = [number >> 1 for (number,) in _DRAWN.iter_unpack(secrets.token_bytes(_DRAWN.size * DRAWN))]
        chance = self._drawn.pop()
        if self._counter is None:
            return chance
        return self._counter.take() << CHANCE_BITS | chance >> 63 - CHANCE_BITS


def incarnation(store: NodeStore | None) -> int:
    """A number for this start of the node, above those of earlier ones and below 2^31.

    Protocols put it before counters of 32 bits. Without a store it is a time, so again the clock must not be set back.
    """
    if store is not None:
        return SequenceNumbers("incarnation", store, block=1).take()
    ticks = max(0, int((time.time() - TICKS_FROM_S) / TICK_S))
    # One process may start a node twice within a tick, or several nodes.
    _taken[0] = max(_taken[0] + 1, ticks)
    return _taken[0]


_taken = [0]
"""The highest incarnation that this process has given."""
