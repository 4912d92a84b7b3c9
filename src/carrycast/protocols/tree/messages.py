"""The messages of brokers and clients: subscriptions, advertisements, events, the state of the tree, and recovery."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import FilterText, NodeId
from carrycast.core.wire import EventMessage, Message

BATCH = 32
"""Filters in one message: 32 of usual length are about 1,500 bytes."""
MAX_DEPTH = 255

Digest64 = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
Count = Annotated[int, Meta(ge=0, lt=1 << 31)]
Depth = Annotated[int, Meta(ge=0, le=MAX_DEPTH)]


class ForwardedFilter(NamedTuple):
    """A filter, and the distance of its nearest origin in hops: 1 for the sender itself."""

    filter: FilterText
    hops: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = 1


Filters = Annotated[tuple[ForwardedFilter, ...], Meta(max_length=BATCH)]
Texts = Annotated[tuple[FilterText, ...], Meta(max_length=BATCH)]


class Subscribe(Message, frozen=True, gc=False, tag=1):
    """[000 §IV] Subscribes to these filters."""

    filters: Filters


class Unsubscribe(Message, frozen=True, gc=False, tag=2):
    """[000 §IV] Withdraws subscriptions."""

    filters: Texts


class Advertise(Message, frozen=True, gc=False, tag=3):
    """[000 §IV] Advertises stored events: events that match these filters are stored on the sender's side of the
    tree."""

    filters: Filters


class Unadvertise(Message, frozen=True, gc=False, tag=4):
    """[000 §IV] Withdraws advertisements."""

    filters: Texts


class Publish(EventMessage, frozen=True, gc=False, tag=5):
    """[000 §IV] An event along the reverse paths of subscriptions."""


class TableTransfer(Message, frozen=True, gc=False, tag=9):
    """[000 §V] All subscriptions, or all advertisements, of the sender in parts: to a new neighbor, or when
    requested."""

    stored: bool
    """Whether they are advertisements."""
    first: bool
    last: bool
    filters: Filters


class Digest(Message, frozen=True, gc=False, tag=10):
    """Digests of the filters that were forwarded to the receiver (sums of hashes), so that a lost message is
    noticed."""

    subscriptions: Digest64
    advertisements: Digest64


class TableRequest(Message, frozen=True, gc=False, tag=11):
    """The receiver's digest differs from the filters that the sender has: requests its tables again."""


class GroupHello(Message, frozen=True, gc=False, tag=12):
    """[000 §V] The sender's position in the tree (MAODV's Group Hello): leader, newest known round of it, depth and
    parent."""

    leader: NodeId
    incarnation: Count
    round: Count
    depth: Depth
    parent: NodeId | None


class RecoveryDigest(Message, frozen=True, gc=False, tag=13):
    """Recovery: recent events that the receiver is interested in, by source and sequence number."""

    events: Annotated[tuple[tuple[NodeId, NodeId], ...], Meta(max_length=256)]


class RecoveryRequest(Message, frozen=True, gc=False, tag=14):
    """Recovery: the events that the sender has missed."""

    events: Annotated[tuple[tuple[NodeId, NodeId], ...], Meta(max_length=256)]
