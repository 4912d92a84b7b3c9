"""What drift nodes say to each other. All of it is broadcast, so whoever hears it learns from it; on paths alone one
speaks to one.

Names and ids are packed. What is in them is found when it is first asked for, and stays with the message: in a
simulation all who hear a frame have the same one.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta

from carrycast.core.model import EventId, FilterText, NodeId
from carrycast.core.model.identity import Sequence
from carrycast.core.wire import EventMessage, Message
from carrycast.protocols.drift.runs import RunsOf, pack_ids, unpack

NAME_BYTES = 2
MAX_NAMES = 1024
"""Neighbors that one frame names; who has more names the first of them, and the rest is told twice."""

MAX_RUNS_BYTES = 8192
"""Of one digest; what is longer travels in parts."""

PART = MAX_RUNS_BYTES // 28
"""Ids in one message, however scattered they are: a run takes at most 28 bytes."""

MAX_FILTERS = 32
"""What those beyond a node want; if that is more, it is taken for everything."""

MAX_BETS = 64
"""Sources whose events go by paths, at one node at a time."""

SALT_BITS = 16
"""Of a salt that lasts for one message. Whoever publishes could choose two sets that agree under three salts in 2^50
tries, and under none that it knows to be drawn."""

Count = Annotated[int, Meta(ge=0, le=1 << 31)]

Word = Annotated[int, Meta(ge=0, lt=1 << 32)]

Salt = Annotated[int, Meta(ge=0, lt=1 << SALT_BITS)]

Runs = Annotated[bytes, Meta(max_length=MAX_RUNS_BYTES)]
"""Ids, as `runs.py` packs them."""

Name = Annotated[int, Meta(ge=0, lt=1 << (8 * NAME_BYTES))]
"""A node's short name: the last two bytes of its id."""


T = TypeVar("T")


class _Once(Generic[T]):
    """As `functools.cached_property`, without its lock: a message is read in one thread."""

    def __init__(self, find: Callable[[Any], T]) -> None:
        self._find = find
        self.__doc__ = find.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, message: Message, owner: type) -> T:
        found: T = self._find(message)
        message.__dict__[self._name] = found
        return found


def in_parts(ids: list[EventId]) -> Iterator[bytes]:
    """Ids as runs, in as many messages as it takes."""
    for first in range(0, len(ids), PART):
        yield pack_ids(ids[first : first + PART])


class Data(EventMessage, frozen=True, gc=True, dict=True, tag=1):
    """One event, and the short names of all who should hear this very frame."""

    names: Annotated[bytes, Meta(max_length=NAME_BYTES * MAX_NAMES)] = b""

    def __post_init__(self) -> None:
        if len(self.names) % NAME_BYTES:
            raise ValueError("half a name")

    @_Once
    def named(self) -> frozenset[int]:
        """Each name as a number."""
        return frozenset(struct.unpack(f">{len(self.names) // NAME_BYTES}H", self.names))


class Offer(Message, frozen=True, gc=True, dict=True, tag=2):
    """These I hold: who lacks one may want it."""

    runs: Runs

    @_Once
    def ids(self) -> RunsOf:
        """To be read only; `BadRunsError` if there are none."""
        return unpack(self.runs)


class Check(Offer, frozen=True, gc=True, dict=True, tag=11):
    """These I hold: who holds them too says so. To one neighbor."""


class Hash(Message, frozen=True, gc=False, tag=12):
    """All that I have met: its hash under a salt that I have just drawn, and its trace (`sethash`)."""

    salt: Salt
    value: Word
    trace: Word


class Digest(Message, frozen=True, gc=True, dict=True, tag=4):
    """All that I have met of the ids from `low` to `high`, and which of it I hold no longer: a bit for each, in order;
    none at all if I hold everything."""

    met: Runs
    gone: Annotated[bytes, Meta(max_length=MAX_RUNS_BYTES)] = b""
    low: EventId | None = None
    high: EventId | None = None

    @_Once
    def ids(self) -> RunsOf:
        """To be read only; `BadRunsError` if there are none."""
        return unpack(self.met)


class Want(Message, frozen=True, gc=True, dict=True, tag=5):
    """These I lack. `of`: who is known to hold them and answers; the speaker's own name if any holder may."""

    runs: Runs
    of: Name

    @_Once
    def ids(self) -> RunsOf:
        """To be read only; `BadRunsError` if there are none."""
        return unpack(self.runs)


class Ask(Message, frozen=True, gc=False, tag=6):
    """Who wants what this source publishes? Everybody around passes it on once, and names from whom it has it."""

    source: NodeId
    number: Sequence
    """Which of the source's bets this is; later ones have larger numbers."""
    quiet_s: Annotated[int, Meta(ge=0, le=1 << 31)]
    """For so long no link of anybody may have changed."""
    hops: Annotated[int, Meta(ge=0, le=65535)]
    of: Name
    """From whom the speaker has it: toward the source."""
    again: bool = False
    """The hearer has not been heard: it says so directly."""


class Echo(Message, frozen=True, gc=False, tag=7):
    """All beyond the speaker have been asked, and this is what they want. To the next node toward the source."""

    source: NodeId
    number: Sequence
    wanted: Annotated[dict[FilterText, Count], Meta(max_length=MAX_FILTERS)]
    """Each filter, and how many links lead from the speaker to all whose it is."""
    nodes: Count
    """How many were asked, the speaker included."""


class Along(EventMessage, frozen=True, gc=False, tag=8):
    """One event, to the next node of a path."""


class Audit(Message, frozen=True, gc=False, tag=13):
    """What the source has sent by its paths, from the first number to the last. Everybody passes it on once."""

    source: NodeId
    number: Sequence
    first: Sequence
    until: Sequence
    salt: Salt
    """Drawn when the events were sent already."""
    sums: Annotated[dict[Word, Word], Meta(max_length=MAX_FILTERS)]
    """For each filter, in 32 bits, the hash of the events that match it."""


class End(Message, frozen=True, gc=False, tag=9):
    """These bets are over, by source and number: their events are everybody's from now on."""

    bets: Annotated[tuple[tuple[NodeId, Sequence], ...], Meta(min_length=1, max_length=MAX_BETS)]
