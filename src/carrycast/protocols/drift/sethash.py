"""The hash of a set of events: nobody can publish events that make two different sets look alike.

A set is the sum, modulo 2^1024, of a long hash of each of its ids (AdHash: Bellare and Micciancio, EUROCRYPT 1997), so
that an event more or less costs one addition. What is said of the set is the sum hashed once more, to 32 bits, under a
salt that is drawn at that moment: whoever publishes does not know it, and what agreed under one salt by chance does not
under the next.

Beside it goes the trace of the set, the exclusive or of 32 bits of each id. Two traces differ by that of the event that
one set has more, and so name it. Whoever publishes may choose traces, so they decide nothing: what they name is taken
for missing only if the set without it has the hash that was said.
"""

from collections.abc import Iterable
from hashlib import blake2b, shake_128
from struct import Struct

from carrycast.core.model import EventId
from carrycast.protocols.drift.rules import event_trace

SUM_BYTES = 128
"""To find events whose sums agree takes 2^60 steps even if 65,536 of them are published (Wagner, CRYPTO 2002)."""
_MASK = (1 << 8 * SUM_BYTES) - 1
_ID = Struct(">QQ")


def long_hash(id: EventId) -> int:
    """1,024 bits of an id."""
    return int.from_bytes(shake_128(_ID.pack(id.source, id.sequence)).digest(SUM_BYTES))


def salted(total: int, salt: int) -> int:
    """A sum in 32 bits."""
    said = blake2b((total & _MASK).to_bytes(SUM_BYTES), digest_size=4, salt=salt.to_bytes(2)).digest()
    return int.from_bytes(said)


def hash_of(ids: Iterable[EventId], salt: int) -> int:
    """The hash of a set that is computed once."""
    return salted(sum(map(long_hash, ids)), salt)


class SetHash:
    """A set of events, and what is said of it."""

    def __init__(self) -> None:
        self.traces: dict[EventId, int] = {}
        """The trace of each event of the set; to be read only."""
        self.trace = 0
        """Of the whole set; to be read only."""
        self.changes = 0
        """How often the set has changed; to be read only."""
        self._by_trace: dict[int, EventId] = {}
        self._total = 0

    def __len__(self) -> int:
        return len(self.traces)

    def add(self, id: EventId) -> None:
        """One more."""
        trace = self.traces[id] = event_trace(id)
        self._by_trace[trace] = id
        self._change(trace, long_hash(id))

    def remove(self, id: EventId) -> bool:
        """One less; False if it was not there."""
        trace = self.traces.pop(id, None)
        if trace is None:
            return False
        if self._by_trace.get(trace) == id:
            del self._by_trace[trace]
        self._change(trace, -long_hash(id))
        return True

    def value(self, salt: int) -> int:
        """The hash of the set."""
        return salted(self._total, salt)

    def is_of(self, salt: int, value: int, trace: int) -> bool:
        """Whether this is the hash of the set; equal sets have equal traces."""
        return trace == self.trace and value == salted(self._total, salt)

    def missing_at(self, salt: int, value: int, trace: int) -> EventId | None:
        """The event that a neighbor with this hash and trace does not have, if it has all others; else None."""
        one = self._by_trace.get(trace ^ self.trace)
        if one is not None and salted(self._total - long_hash(one), salt) == value:
            return one
        return None

    def _change(self, trace: int, change: int) -> None:
        self.trace ^= trace
        self._total = (self._total + change) & _MASK
        self.changes += 1
