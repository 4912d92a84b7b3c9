"""Retrieval of stored events: a store that outlives a crash, and the two messages between asker and store."""

from typing import Annotated

import msgspec
from msgspec import Meta

from driftcast.matching import serves
from driftcast.model import (
    Event,
    EventId,
    FilterText,
    NodeId,
    RequestId,
    Scalar,
    Subscription,
    SubscriptionId,
    check_attributes,
)
from driftcast.protocol import DurableStore
from driftcast.wire import EventMessage, Message

from .rounds import Count, Round

_PREFIX = b"event:"

PathStack = Annotated[tuple[NodeId, ...], Meta(max_length=64)]
"""The nodes that a request has passed, newest first; the answers go back along it."""


class Asked(Message, frozen=True, gc=False, tag=6):
    """[000 §IV] A request on its way to one store.

    `ask` is the asker's own number: an application's request and a subscription that wants history are asked alike.
    """

    ask: Round
    filter: FilterText
    attributes: dict[str, Scalar]
    path: PathStack
    remaining_s: Annotated[float, Meta(gt=0)]

    def __post_init__(self) -> None:
        check_attributes(self.attributes)


class Answered(EventMessage, frozen=True, gc=False, kw_only=True, tag=7):
    """[000 §IV] One stored event on its way back."""

    ask: Round
    path: PathStack


class AllAnswered(Message, frozen=True, gc=False, tag=8):
    """How many answers there are. They may be lost or come later, so the asker counts them before it closes."""

    ask: Round
    path: PathStack
    answers: Count


class Open:
    """A request of this node's own, until all its answers are here or its patience is over."""

    def __init__(self, wanted_by: RequestId | SubscriptionId) -> None:
        self.wanted_by = wanted_by
        self.taken: set[EventId] = set()
        self.expected: int | None = None

    @property
    def complete(self) -> bool:
        """Whether every answer has come."""
        return len(self.taken) == self.expected


class _Kept(msgspec.Struct, frozen=True, array_like=True):
    event: Event
    until: float


class StoredEvents:
    """What a repository keeps. Ends of leases are points of the node's own clock, which runs on over a crash."""

    def __init__(self, store: DurableStore) -> None:
        self._store = store
        self._decode = msgspec.msgpack.Decoder(_Kept).decode

    def keep(self, now: float, event: Event, remaining_s: float) -> bool:
        """Keep an event until its lease ends; False if it is kept already."""
        key = self._key(event.id)
        if self._store.get(key) is not None:
            return False
        self._store.put(key, msgspec.msgpack.encode(_Kept(event, now + remaining_s)))
        return True

    def wanted(self, now: float, asked: Asked) -> list[tuple[Event, float]]:
        """The events that the asker may see, with what is left of their leases; those at their end go."""
        # Eligibility is spoken of in subscriptions; a request is one to what is already here.
        asker = asked.path[-1] if asked.path else 0
        subscription = Subscription(SubscriptionId(asker, 0), asked.filter, attributes=asked.attributes)
        found = []
        for key, value in list(self._store.items(_PREFIX)):
            kept = self._decode(value)
            if kept.until <= now:
                self._store.delete(key)
            elif serves(kept.event, subscription):
                found.append((kept.event, kept.until - now))
        return found

    @staticmethod
    def _key(event: EventId) -> bytes:
        return _PREFIX + event.source.to_bytes(8) + event.sequence.to_bytes(8)
