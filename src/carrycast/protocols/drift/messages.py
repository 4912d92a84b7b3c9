"""The messages of drift. All are broadcast, so that every neighbor in range learns from them; only messages of
multicast trees, and events that a single neighbor is missing, are unicast.

Short addresses and event ids are packed. They are unpacked at the first use, and the result stays with the message: in
a simulation all receivers of a frame share one message object.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Generic, TypeVar

from msgspec import Meta

from carrycast.core.model import EventId, FilterText, NodeId, Sequence
from carrycast.core.wire import EventMessage, Message
from carrycast.protocols.drift.runs import RunsOf, pack_ids, unpack

ADDRESS_BYTES = 2
MAX_ADDRESSES = 1024
"""Neighbors that one frame lists. A node with more lists the first of them, and the others may get the event twice."""

MAX_RUNS_BYTES = 8192
"""Of one digest; a longer one travels in parts."""

IDS_PER_MESSAGE = MAX_RUNS_BYTES // 28
"""Ids that fit one message, however scattered they are: a run takes at most 28 bytes."""

MAX_FILTERS = 32
"""Filters in one `Echo`; more are replaced by the filter that matches everything."""

MAX_TREES = 64
"""Multicast trees of which a node is part at a time, one for each source."""

SALT_BITS = 16
"""Of a salt that is used for one message. In 2^50 tries a publisher could choose two sets that agree under three given
salts, but it does not know which salts will be drawn."""

Count = Annotated[int, Meta(ge=0, le=1 << 31)]

Hash32 = Annotated[int, Meta(ge=0, lt=1 << 32)]

Salt = Annotated[int, Meta(ge=0, lt=1 << SALT_BITS)]

Runs = Annotated[bytes, Meta(max_length=MAX_RUNS_BYTES)]
"""Ids, as `runs.py` packs them."""

ShortAddress = Annotated[int, Meta(ge=0, lt=1 << (8 * ADDRESS_BYTES))]
"""The last two bytes of a node id (`rules.short_address`)."""


T = TypeVar("T")


class _CachedProperty(Generic[T]):
    """As `functools.cached_property`, without its lock: a message is read in one thread."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, message: Message, owner: type) -> T:
        value: T = self._compute(message)
        message.__dict__[self._name] = value
        return value


def split_ids(ids: list[EventId]) -> Iterator[bytes]:
    """Ids as runs, in as many messages as needed."""
    for first in range(0, len(ids), IDS_PER_MESSAGE):
        yield pack_ids(ids[first : first + IDS_PER_MESSAGE])


class Data(EventMessage, frozen=True, gc=True, dict=True, tag=1):
    """One event, and the short addresses of the sender's neighbors, which this frame covers."""

    neighbors: Annotated[bytes, Meta(max_length=ADDRESS_BYTES * MAX_ADDRESSES)] = b""

    def __post_init__(self) -> None:
        if len(self.neighbors) % ADDRESS_BYTES:
            raise ValueError("half a short address")

    @_CachedProperty
    def covered_addresses(self) -> frozenset[int]:
        """The short addresses of the covered nodes as numbers."""
        return frozenset(struct.unpack(f">{len(self.neighbors) // ADDRESS_BYTES}H", self.neighbors))


class Offer(Message, frozen=True, gc=True, dict=True, tag=2):
    """The sender holds these events. A receiver that is missing one pulls it."""

    runs: Runs

    @_CachedProperty
    def ids(self) -> RunsOf:
        """To be read only; raises `BadRunsError` if the bytes are no runs."""
        return unpack(self.runs)


class HolderQuery(Offer, frozen=True, gc=True, dict=True, tag=11):
    """An offer to one neighbor that also asks which of the events the neighbor holds."""


class Hash(Message, frozen=True, gc=False, tag=12):
    """The set of known events: its hash under a salt drawn for this message, and its PinSketch (`set_hash`)."""

    salt: Salt
    value: Hash32
    sketch: Hash32


class Digest(Message, frozen=True, gc=True, dict=True, tag=4):
    """All known events with ids from `low` to `high`, and which of them the sender has evicted: one bit for each, in
    order; no bits at all if it holds everything."""

    known: Runs
    evicted: Annotated[bytes, Meta(max_length=MAX_RUNS_BYTES)] = b""
    low: EventId | None = None
    high: EventId | None = None

    @_CachedProperty
    def ids(self) -> RunsOf:
        """To be read only; raises `BadRunsError` if the bytes are no runs."""
        return unpack(self.known)


class PullRequest(Message, frozen=True, gc=True, dict=True, tag=5):
    """The sender is missing these events. `holder` is the neighbor that should answer; the sender's own address if any
    holder may."""

    runs: Runs
    holder: ShortAddress

    @_CachedProperty
    def ids(self) -> RunsOf:
        """To be read only; raises `BadRunsError` if the bytes are no runs."""
        return unpack(self.runs)


class Explorer(Message, frozen=True, gc=False, tag=6):
    """Builds a multicast tree (the explorer message of Chang's echo algorithm). Every node forwards it once."""

    source: NodeId
    number: Sequence
    """Which tree of the source this is; later ones have larger numbers."""
    stable_s: Annotated[int, Meta(ge=0, le=1 << 31)]
    """For this long no link of any node of the tree may have changed."""
    hops: Annotated[int, Meta(ge=0, le=65535)]
    parent: ShortAddress
    """The sender's parent in the tree: the next node toward the source."""
    reply: bool = False
    """The sender has not received the receiver's own explorer, and asks for it by unicast."""


class Echo(Message, frozen=True, gc=False, tag=7):
    """The filters of the sender's subtree, to its parent, when the whole subtree has answered."""

    source: NodeId
    number: Sequence
    filters: Annotated[dict[FilterText, Count], Meta(max_length=MAX_FILTERS)]
    """Each filter, and the number of links from the sender to all nodes that have it."""
    nodes: Count
    """The number of nodes of the subtree, the sender included."""


class TreeData(EventMessage, frozen=True, gc=False, tag=8):
    """One event, to a child in a multicast tree."""


class Audit(Message, frozen=True, gc=False, tag=13):
    """The events that the source has sent down its tree, from the first number to the last. Every node forwards it
    once."""

    source: NodeId
    number: Sequence
    first: Sequence
    last: Sequence
    salt: Salt
    """Drawn after the events were sent."""
    hashes: Annotated[dict[Hash32, Hash32], Meta(max_length=MAX_FILTERS)]
    """For each filter, by its 32-bit hash, the hash of the events that match it."""


class TreeEnd(Message, frozen=True, gc=False, tag=9):
    """These trees are torn down, given by source and number: their events are reconciled like all others."""

    trees: Annotated[tuple[tuple[NodeId, Sequence], ...], Meta(min_length=1, max_length=MAX_TREES)]
