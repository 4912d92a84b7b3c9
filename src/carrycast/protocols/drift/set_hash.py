"""The hash and the sketch of a set of events, by which two neighbors reconcile their sets.

**Hash.** A set is the sum, modulo 2^1024, of a long hash of each of its ids: AdHash (Bellare and Micciancio, EUROCRYPT
1997), as a set MSet-Add-Hash (Clarke et al., ASIACRYPT 2003). Adding or removing an event costs one addition. A message
carries this sum hashed once more, to 32 bits, under a salt drawn for the message. A publisher does not know the salt,
so it cannot choose ids that make two different sets look alike. Two sets that agree under one salt by chance differ
under the next one.

**Sketch.** A message also carries the exclusive or of 32 bits of each id. This is PinSketch with capacity one (Dodis,
Ostrovsky, Reyzin and Smith, SIAM J. Computing 2008), the smallest instance of set reconciliation: the difference of the
PinSketch values of two sets that differ by one element is the sketch of that element, and so names it. A publisher can
choose the sketch of its ids, so the sketch only proposes an event: it counts as missing only if the set without it has
the hash that the message carries.
"""

from collections.abc import Iterable
from hashlib import blake2b, shake_128
from struct import Struct

from carrycast.core.model import EventId
from carrycast.protocols.drift.rules import id_sketch

SUM_BYTES = 128
"""To find events whose sums agree takes 2^60 steps even if 65,536 of them are published (Wagner, CRYPTO 2002)."""
_MASK = (1 << 8 * SUM_BYTES) - 1
_ID = Struct(">QQ")


def hash_id(id: EventId) -> int:
    """Hash an id to 1,024 bits."""
    return int.from_bytes(shake_128(_ID.pack(id.source, id.sequence)).digest(SUM_BYTES))


def hash_sum(total: int, salt: int) -> int:
    """Hash a sum of id hashes to 32 bits, under a salt."""
    digest = blake2b((total & _MASK).to_bytes(SUM_BYTES), digest_size=4, salt=salt.to_bytes(2)).digest()
    return int.from_bytes(digest)


def hash_ids(ids: Iterable[EventId], salt: int) -> int:
    """The salted hash of a set, computed from scratch."""
    return hash_sum(sum(map(hash_id, ids)), salt)


class SetHash:
    """The hash and the PinSketch of a set that changes."""

    def __init__(self) -> None:
        self.sketches: dict[EventId, int] = {}
        """The sketch of each event of the set; to be read only."""
        self.sketch = 0
        """The PinSketch of the whole set; to be read only."""
        self.changes = 0
        """The number of changes of the set; to be read only."""
        self._by_sketch: dict[int, EventId] = {}
        self._sum = 0

    def __len__(self) -> int:
        return len(self.sketches)

    def add(self, id: EventId) -> None:
        """Add an event to the set."""
        sketch = self.sketches[id] = id_sketch(id)
        self._by_sketch[sketch] = id
        self._change(sketch, hash_id(id))

    def remove(self, id: EventId) -> bool:
        """Remove an event from the set; False if it was not in it."""
        sketch = self.sketches.pop(id, None)
        if sketch is None:
            return False
        if self._by_sketch.get(sketch) == id:
            del self._by_sketch[sketch]
        self._change(sketch, -hash_id(id))
        return True

    def value(self, salt: int) -> int:
        """The salted hash of the set."""
        return hash_sum(self._sum, salt)

    def equals(self, salt: int, value: int, sketch: int) -> bool:
        """Whether another set, given by hash and sketch, is equal; equal sets have equal sketches."""
        return sketch == self.sketch and value == hash_sum(self._sum, salt)

    def find_single_difference(self, salt: int, value: int, sketch: int) -> EventId | None:
        """Return the event by which this set exceeds another, if the other set has all events but this one; else
        None."""
        id = self._by_sketch.get(sketch ^ self.sketch)
        if id is not None and hash_sum(self._sum - hash_id(id), salt) == value:
            return id
        return None

    def _change(self, sketch: int, change: int) -> None:
        self.sketch ^= sketch
        self._sum = (self._sum + change) & _MASK
        self.changes += 1
