"""The messages of Plumtree."""

from typing import Annotated, NamedTuple, Self

from msgspec import Meta

from carrycast.core.model import EventId
from carrycast.core.wire import EventMessage, Message

MAX_ANNOUNCED = 1024
"""Announcements in one message: at most about 24 kB, so that it fits in a datagram. More travel in more messages."""

Round = Annotated[int, Meta(ge=0, le=65_535)]


class Gossip(EventMessage, frozen=True, gc=False, tag=1):
    """[Alg. 1] GOSSIP: an event. Its round is its hop count."""


class Announcement(NamedTuple):
    """An event that the sender of an IHAVE has, and the round in which the receiver would get it from there."""

    event: EventId
    round: Round


class IHave(Message, frozen=True, gc=False, tag=2):
    """[Alg. 1] IHAVE: announces events to lazy neighbors."""

    announced: Annotated[tuple[Announcement, ...], Meta(max_length=MAX_ANNOUNCED)]

    def merge_with(self, other: Message) -> Self | None:
        assert isinstance(other, IHave)
        both = self.announced + other.announced
        return type(self)(both) if len(both) <= MAX_ANNOUNCED else None


class Graft(Message, frozen=True, gc=False, tag=3):
    """[Alg. 2] GRAFT: the link becomes a part of the tree. With an event, the receiver sends it."""

    event: EventId | None = None


class Prune(Message, frozen=True, gc=False, tag=4):
    """[Alg. 1] PRUNE: the link leaves the tree."""
