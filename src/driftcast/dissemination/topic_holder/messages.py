"""What publishers, subscribers and holders say to each other [003 §3.2]."""

from typing import Annotated

import msgspec
from msgspec import Meta

from driftcast.model import Position, Subscription
from driftcast.wire import EventMessage, Message

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
