"""The messages of publishers, subscribers and holders [003 §3.2]."""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from carrycast.core.model import Position, Subscription
from carrycast.core.wire import EventMessage, Message

MAX_ENTRIES = 512
"""Entries in one message; a longer list is sent in several."""

Topic = Annotated[str, Meta(min_length=1, max_length=5000)]
"""A topic as `rules.topic_key` writes it."""
Count = Annotated[int, Meta(ge=0, lt=1 << 31)]


class SubscriptionEntry(msgspec.Struct, frozen=True, array_like=True):
    """[003 §2, §3.2.1] A subscription in a message: subscriber, predicate, attributes, and the subscriber's position.

    `version` orders the refreshes of one subscriber: the incarnation of its node, then a counter.
    """

    subscription: Subscription
    position: Position | None
    version: tuple[Count, Count]


class Refresh(Message, frozen=True, gc=False, tag=1):
    """[003 §3.2.1] A subscription, to the holder of its topic; [003 §3.5] and from there to the holder's neighbors."""

    topic: Topic
    entry: SubscriptionEntry


class Publication(EventMessage, frozen=True, gc=False, tag=2):
    """[003 §3.2.1] An event, to the broker of its topic."""


class Notification(EventMessage, frozen=True, gc=False, tag=3):
    """[003 §3.2] An event, to the node of an eligible subscriber."""


class Advertise(Message, frozen=True, gc=False, tag=4):
    """[003 §3.2.2] A publisher's advertisement to the rendezvous node, which answers with the list of subscriptions."""

    topic: Topic
    position: Position | None


class SubscriptionList(Message, frozen=True, gc=False, tag=5):
    """[003 §3.2.2] The list of subscriptions of a topic, without evaluation. `more`: another part follows."""

    topic: Topic
    entries: Annotated[tuple[SubscriptionEntry, ...], Meta(max_length=MAX_ENTRIES)]
    more: bool = False


class HandOverEntry(msgspec.Struct, frozen=True, array_like=True):
    """A subscription of a table, and how much earlier it expires than the last one in the message."""

    entry: SubscriptionEntry
    earlier_s: Annotated[float, Meta(ge=0)]


class HandOver(Message, frozen=True, gc=False, tag=6):
    """The table of a holder that has left the topic's place. Beyond [003 §3.4], which has no hand-over."""

    durations: ClassVar[tuple[str, ...]] = ("remaining_s",)

    topic: Topic
    entries: Annotated[tuple[HandOverEntry, ...], Meta(min_length=1, max_length=MAX_ENTRIES)]
    remaining_s: Annotated[float, Meta(gt=0)]
    """The time for which the last of them is valid."""

    def valid_entries(self) -> Iterator[tuple[SubscriptionEntry, float]]:
        """The entries that are still valid, and for how long."""
        for one in self.entries:
            if one.earlier_s < self.remaining_s:
                yield one.entry, self.remaining_s - one.earlier_s


def split_entries(entries: Iterable[SubscriptionEntry], most_bytes: int) -> list[list[SubscriptionEntry]]:
    """Split a list so that each part fits a message; one empty part if there are no entries."""
    parts: list[list[SubscriptionEntry]] = [[]]
    room_bytes = most_bytes
    for entry in entries:
        size_bytes = len(msgspec.msgpack.encode(entry.subscription))
        if parts[-1] and (size_bytes > room_bytes or len(parts[-1]) == MAX_ENTRIES):
            parts.append([])
            room_bytes = most_bytes
        parts[-1].append(entry)
        room_bytes -= size_bytes
    return parts
