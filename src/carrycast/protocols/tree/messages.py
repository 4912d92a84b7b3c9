"""What brokers and clients of the tree say to each other: who wants and who keeps what, and how the tree stands."""

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


class Told(NamedTuple):
    """One filter, and how far away the nearest node is that it comes from: 1 for the sender itself."""

    filter: FilterText
    hops: Annotated[int, Meta(ge=1, le=MAX_DEPTH)] = 1


Filters = Annotated[tuple[Told, ...], Meta(max_length=BATCH)]
Texts = Annotated[tuple[FilterText, ...], Meta(max_length=BATCH)]


class Subscribe(Message, frozen=True, gc=False, tag=1):
    """[000 §IV] Send me events of these filters."""

    filters: Filters


class Unsubscribe(Message, frozen=True, gc=False, tag=2):
    """[000 §IV] No longer."""

    filters: Texts


class Advertise(Message, frozen=True, gc=False, tag=3):
    """[000 §IV] Events of these filters are stored on my side of the tree."""

    filters: Filters


class Unadvertise(Message, frozen=True, gc=False, tag=4):
    """[000 §IV] No longer."""

    filters: Texts


class Publish(EventMessage, frozen=True, gc=False, tag=5):
    """[000 §IV] An event along the reverse paths of subscriptions."""


class Table(Message, frozen=True, gc=False, tag=9):
    """[000 §V] All my subscriptions, or all my advertisements, in pieces: to a new neighbor, or when asked."""

    stored: bool
    """Whether they are advertisements."""
    first: bool
    last: bool
    filters: Filters


class Digest(Message, frozen=True, gc=False, tag=10):
    """What you should hold of me, as sums of hashes; so that a message that was lost is noticed."""

    subscriptions: Digest64
    advertisements: Digest64


class Resend(Message, frozen=True, gc=False, tag=11):
    """I do not hold what you have told me: send your tables again."""


class Group(Message, frozen=True, gc=False, tag=12):
    """[000 §V] Where I stand in the tree: its leader, the newest round of it that I know, how deep, under whom."""

    leader: NodeId
    incarnation: Count
    round: Count
    depth: Depth
    parent: NodeId | None


class Ids(Message, frozen=True, gc=False, tag=13):
    """Recovery: the events I have seen of late, named by source and sequence; ask for those that you missed."""

    events: Annotated[tuple[tuple[NodeId, NodeId], ...], Meta(max_length=256)]


class Want(Message, frozen=True, gc=False, tag=14):
    """Recovery: send me these."""

    events: Annotated[tuple[tuple[NodeId, NodeId], ...], Meta(max_length=256)]
