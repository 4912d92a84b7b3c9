"""What epidemic nodes say to each other."""

from typing import Annotated

from msgspec import Meta

from driftcast.model import EventId
from driftcast.wire import EventMessage, Message

MAX_IDS = 1024
"""Ids in one message: about 20 kB at the most, so that it fits in a datagram. More ids travel in more messages."""

Ids = Annotated[tuple[EventId, ...], Meta(max_length=MAX_IDS)]


class Summary(Message, frozen=True, gc=False, tag=1):
    """These I hold: ask for what you lack."""

    ids: Ids


class Ask(Message, frozen=True, gc=False, tag=2):
    """These I lack: send them."""

    ids: Ids


class Check(Message, frozen=True, gc=False, tag=4):
    """Which of these do you hold? A `Summary` answers, of those that are."""

    ids: Ids


class Transfer(EventMessage, frozen=True, gc=False, tag=3):
    """One event, as asked for."""
