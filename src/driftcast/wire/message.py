"""The base of everything that one node says to another."""

import enum
from typing import Annotated, ClassVar

import msgspec
from msgspec import Meta

from driftcast.model import Event, EventId


class Traffic(enum.IntEnum):
    """What a message counts as in the trace: content, talk about content, or looking for neighbors."""

    DATA = 0
    CONTROL = 1
    DISCOVERY = 2


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One message type of one layer. A subclass gives itself a number: `class Summary(Message, tag=1)`.

    The number is what travels, so it is never given to another type of the same layer later. Instances are frozen and
    refer to no other message, so the simulator may hand the same object to many receivers.
    """

    traffic: ClassVar[Traffic] = Traffic.CONTROL


def carried(message: Message) -> tuple[Traffic, EventId | None]:
    """What a message counts as, and the event it carries, if it does."""
    if isinstance(message, EventMessage):
        return Traffic.DATA, message.event.id
    if isinstance(message, ParcelMessage):
        return message.parcel.traffic, message.parcel.event
    return message.traffic, None


class EventMessage(Message, frozen=True, gc=False):
    """The base of messages that carry one event.

    `hops` counts the transmissions that the event has behind it when the message arrives; through a router the sender
    cannot know them, and the receiver adds what the router reports. `remaining_s` is what is left
    of the event's lease at the moment of sending: durations travel, points in time do not.
    """

    traffic: ClassVar[Traffic] = Traffic.DATA

    event: Event
    hops: Annotated[int, Meta(ge=0, le=65535)]
    remaining_s: Annotated[float, Meta(gt=0)]


class Parcel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a router carries for the layer above: an encoded message, and what the trace should count it as."""

    body: bytes
    traffic: Traffic
    event: EventId | None = None


class ParcelMessage(Message, frozen=True, gc=False):
    """The base of a router's messages that carry a parcel. Its traffic is that of what it carries."""

    parcel: Parcel
