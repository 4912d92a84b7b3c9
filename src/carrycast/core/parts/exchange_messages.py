"""The messages of a store-carry-forward exchange: a carrier offers ids, its neighbor requests those it has not
received."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import EventId
from carrycast.core.parts.copies import MAX_COPIES
from carrycast.core.parts.subscription_exchange import SubscriptionUpdate
from carrycast.core.wire import EventMessage, Message

MAX_IDS = 1024
"""Ids in one message: at most 20 kB, so that it fits in a datagram. More ids are sent in several messages."""

Ids = Annotated[tuple[EventId, ...], Meta(max_length=MAX_IDS)]


class CopyOffer(Message, frozen=True, gc=False, tag=2):
    """Offers events by id; the receiver requests those it has not received."""

    ids: Ids


class CopyRequest(Message, frozen=True, gc=False, tag=3):
    """Requests offered events. It answers every offer, even with no id: then the receiver has them all."""

    ids: Ids


class CopyTransfer(EventMessage, frozen=True, gc=False, tag=4):
    """A requested event, and how many copies of it the receiver may distribute: 0 if it is only for the receiver."""

    copies: Annotated[int, Meta(ge=0, le=MAX_COPIES)] = 0


class CustodyTransfer(CopyTransfer, frozen=True, gc=False, tag=20):
    """A guaranteed event: the sender deletes it when the receiver has accepted custody."""


class CustodySignal(Message, frozen=True, gc=False, tag=21):
    """Custody signal (RFC 5050, 6.3): the sender has accepted custody of these events, which are on its disk."""

    ids: Ids


MESSAGES = (SubscriptionUpdate, CopyOffer, CopyRequest, CopyTransfer, CustodyTransfer, CustodySignal)
