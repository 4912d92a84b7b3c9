"""The messages of an anti-entropy session: a summary vector, a request, and a transfer for each event."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Self

from msgspec import Meta

from carrycast.core.model import EventId
from carrycast.core.wire import EventMessage, Message

MAX_IDS = 1024
"""Ids in one message: at most about 20 kB, so that it fits in a datagram. More ids travel in more messages."""

Ids = Annotated[tuple[EventId, ...], Meta(max_length=MAX_IDS)]


def split_ids(ids: Sequence[EventId]) -> Iterator[tuple[EventId, ...]]:
    """As many ids at a time as fit in a message."""
    return (tuple(ids[first : first + MAX_IDS]) for first in range(0, len(ids), MAX_IDS))


class IdsMessage(Message, frozen=True, gc=False):
    """The base of messages that are lists of ids; two of them can be joined."""

    ids: Ids

    def merge_with(self, other: Message) -> Self | None:
        assert isinstance(other, IdsMessage)
        ids = self.ids + other.ids
        return type(self)(ids) if len(ids) <= MAX_IDS else None


class SummaryVector(IdsMessage, frozen=True, gc=False, tag=1):
    """The sender holds these events. The receiver requests those that it is missing."""


class TransferRequest(IdsMessage, frozen=True, gc=False, tag=2):
    """The sender is missing these events. Without ids: it asks for the whole summary vector again."""


class HolderQuery(IdsMessage, frozen=True, gc=False, tag=4):
    """Asks which of these events the receiver holds. A `SummaryVector` of those answers it."""


class Transfer(EventMessage, frozen=True, gc=False, tag=3):
    """One event, as requested."""
