"""The messages of a hand-over: the carrier offers ids, the other asks for those that it has not met and gets them."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import EventId
from carrycast.core.parts.copies import MAX_COPIES
from carrycast.core.parts.subscription_exchange import SubscriptionUpdate
from carrycast.core.wire import EventMessage, Message

MAX_IDS = 1024
"""Ids in one message: about 20 kB at the most, so that it fits in a datagram. More ids travel in more messages."""

Ids = Annotated[tuple[EventId, ...], Meta(max_length=MAX_IDS)]


class CopyOffer(Message, frozen=True, gc=False, tag=2):
    """These I would give you: ask for what you have not met."""

    ids: Ids


class CopyRequest(Message, frozen=True, gc=False, tag=3):
    """These I have not met: send them. It answers each offer, so that who offered knows that the others were met."""

    ids: Ids


class CopyTransfer(EventMessage, frozen=True, gc=False, tag=4):
    """One event, as asked for, and how many copies of it are now the receiver's to hand on: 0 if it is for it alone."""

    copies: Annotated[int, Meta(ge=0, le=MAX_COPIES)] = 0


class CustodyTransfer(CopyTransfer, frozen=True, gc=False, tag=20):
    """The same, of an event that its sender promised to keep: it lets go of it when its custody is confirmed."""


class CustodySignal(Message, frozen=True, gc=False, tag=21):
    """These were entrusted to this node, and are on its disk: it keeps them as their sender did."""

    ids: Ids


MESSAGES = (SubscriptionUpdate, CopyOffer, CopyRequest, CopyTransfer, CustodyTransfer, CustodySignal)
