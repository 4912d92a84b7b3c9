"""What publishers, subscribers and holders say to each other [003 §3.2]."""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from carrycast.core.model import Position, Subscription
from carrycast.core.wire import EventMessage, Message

MAX_ENTRIES = 512
"""In one list; a table may have more, and then goes in several."""

Topic = Annotated[str, Meta(min_length=1, max_length=5000)]
"""A topic as `rules.topic_key` writes it."""
Count = Annotated[int, Meta(ge=0, lt=1 << 31)]


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """[003 §2, §3.2.1] A subscription as it travels: subscriber, predicate, attributes, and where the subscriber was.

    `version` orders what one subscriber says of it: the start of its node, then a counter.
    """

    subscription: Subscription
    position: Position | None
    version: tuple[Count, Count]


class Refresh(Message, frozen=True, gc=False, tag=1):
    """[003 §3.2.1] A subscription on its way to its topic's holder; [003 §3.5] and from there to those around it."""

    topic: Topic
    entry: Entry


class ToHolder(EventMessage, frozen=True, gc=False, tag=2):
    """[003 §3.2.1] An event on its way to the broker of its topic."""


class ToSubscriber(EventMessage, frozen=True, gc=False, tag=3):
    """[003 §3.2] An event for the node of an eligible subscriber."""


class Advertise(Message, frozen=True, gc=False, tag=4):
    """[003 §3.2.2] A publisher's advertisement to the rendezvous node: whoever holds the topic, send me the list."""

    topic: Topic
    position: Position | None


class Subscribers(Message, frozen=True, gc=False, tag=5):
    """[003 §3.2.2] The list of subscriptions of a topic, without evaluation. `more`: it goes on in another message."""

    topic: Topic
    entries: Annotated[tuple[Entry, ...], Meta(max_length=MAX_ENTRIES)]
    more: bool = False


class Handed(msgspec.Struct, frozen=True, array_like=True):
    """A subscription out of a table, and how much earlier it ends than the last of those handed over with it."""

    entry: Entry
    earlier_s: Annotated[float, Meta(ge=0)]


class HandOver(Message, frozen=True, gc=False, tag=6):
    """A holder has left the topic's place, and this is what it held. Beyond [003 §3.4], which hands over nothing."""

    durations: ClassVar[tuple[str, ...]] = ("remaining_s",)

    topic: Topic
    handed: Annotated[tuple[Handed, ...], Meta(min_length=1, max_length=MAX_ENTRIES)]
    remaining_s: Annotated[float, Meta(gt=0)]
    """How long the last of them stands."""

    def standing(self) -> Iterator[tuple[Entry, float]]:
        """Those that still stand, and for how long."""
        for one in self.handed:
            if one.earlier_s < self.remaining_s:
                yield one.entry, self.remaining_s - one.earlier_s


def parts(entries: Iterable[Entry], most_bytes: int) -> list[list[Entry]]:
    """A list cut so that each part fits a message; one part, empty, if there is nothing to tell."""
    cut: list[list[Entry]] = [[]]
    room_bytes = most_bytes
    for entry in entries:
        size_bytes = len(msgspec.msgpack.encode(entry.subscription))
        if cut[-1] and (size_bytes > room_bytes or len(cut[-1]) == MAX_ENTRIES):
            cut.append([])
            room_bytes = most_bytes
        cut[-1].append(entry)
        room_bytes -= size_bytes
    return cut
