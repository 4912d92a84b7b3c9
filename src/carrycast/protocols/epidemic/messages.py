"""What epidemic nodes say to each other."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Self

from msgspec import Meta

from carrycast.core.model import EventId
from carrycast.core.wire import EventMessage, Message

MAX_IDS = 1024
"""Ids in one message: about 20 kB at the most, so that it fits in a datagram. More ids travel in more messages."""

Ids = Annotated[tuple[EventId, ...], Meta(max_length=MAX_IDS)]


def messages_of(ids: Sequence[EventId]) -> Iterator[tuple[EventId, ...]]:
    """As many ids at a time as fit in a message."""
    return (tuple(ids[first : first + MAX_IDS]) for first in range(0, len(ids), MAX_IDS))


class IdsMessage(Message, frozen=True, gc=False):
    """The base of messages that list ids, and may as well list others too."""

    ids: Ids

    def merge_with(self, other: Message) -> Self | None:
        assert isinstance(other, IdsMessage)
        ids = self.ids + other.ids
        return type(self)(ids) if len(ids) <= MAX_IDS else None


class Summary(IdsMessage, frozen=True, gc=False, tag=1):
    """These I hold: ask for what you lack."""


class Ask(IdsMessage, frozen=True, gc=False, tag=2):
    """These I lack: send them. Without any: tell me again of all that you hold."""


class Check(IdsMessage, frozen=True, gc=False, tag=4):
    """Which of these do you hold? A `Summary` answers, of those that are."""


class Transfer(EventMessage, frozen=True, gc=False, tag=3):
    """One event, as asked for."""
