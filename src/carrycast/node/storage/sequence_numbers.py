"""Persistent sequence numbers: a node never uses a number twice, not even after a crash."""

import secrets
import struct
import time

from carrycast.node.storage.store import TICK_S, TICKS_FROM_S, NodeStore

BLOCK = 1000
"""The numbers that are reserved with one sync of the disk; a crash leaves at most that many unused."""
DRAWN = 64
"""The random numbers that are generated together."""
_DRAWN = struct.Struct("@Q")
RANDOM_BITS = 24
"""An attacker needs 16 million events to guess the next number of a node; 39 bits are left for the counter."""


class SequenceNumbers:
    """A counter for a node's events, subscription ids or incarnations.

    With a store, numbers are reserved in blocks before they are used. Without one the counter begins at the
    microseconds since 1970, which no earlier start can have reached unless the clock was set back.
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
        """Return the next number."""
        if self._next >= self._end:
            assert self._store is not None
            self._next = self._store.reserve(self._name, self._block)
            self._end = self._next + self._block
        number = self._next
        self._next += 1
        return number


class UnpredictableSequenceNumbers:
    """The sequence numbers of a node's events: never used twice, and not predictable. An attacker who could predict a
    number could send another event with it first, so that the real event would be dropped as a duplicate.

    With a store a number is a counter followed by RANDOM_BITS random bits; at a thousand events a second it lasts for
    17 years. Without one all 63 bits are random: among a million events there is a collision once in 18 million times.
    """

    __slots__ = ("_counter", "_drawn")

    def __init__(self, store: NodeStore | None) -> None:
        self._counter = None if store is None else SequenceNumbers("event", store)
        self._drawn: list[int] = []

    def take(self) -> int:
        """Return the next number."""
        if not self._drawn:
            # One system call for many numbers.
            self._drawn = [number >> 1 for (number,) in _DRAWN.iter_unpack(secrets.token_bytes(_DRAWN.size * DRAWN))]
        random_bits = self._drawn.pop()
        if self._counter is None:
            return random_bits
        return self._counter.take() << RANDOM_BITS | random_bits >> 63 - RANDOM_BITS


def next_incarnation(store: NodeStore | None) -> int:
    """Return the number of this start of the node, greater than those of earlier starts and less than 2^31.

    Protocols put it before counters of 32 bits. Without a store it is a time, so the clock must not be set back.
    """
    if store is not None:
        return SequenceNumbers("incarnation", store, block=1).take()
    ticks = max(0, int((time.time() - TICKS_FROM_S) / TICK_S))
    # One process may start a node twice within a tick, or several nodes.
    _last[0] = max(_last[0] + 1, ticks)
    return _last[0]


_last = [0]
"""The highest incarnation that this process has used."""
