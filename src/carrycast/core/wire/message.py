"""The base of everything that one node says to another."""

import enum
from typing import Annotated, ClassVar, Self

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, Subscription

LEASE_EXPIRED = "lease_over"
"""The reason of the drop of a message that has waited longer than it was good for."""

_replace = msgspec.structs.replace


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
    durations: ClassVar[tuple[str, ...]] = ()
    """The fields that say how long something is good for, counted from when the message was handed to its port. Worlds
    take the time off them that the message waits on its way: protocols only state them."""

    def age_by(self, waited_s: float) -> Self | None:
        """The message after it has waited; None if one of its durations is over."""
        if waited_s == 0.0 or not self.durations:
            return self
        left_s = {name: getattr(self, name) - waited_s for name in self.durations}
        # Written so that what is not a number, for endless waits come from hostile nodes, is over too.
        if not all(value > 0 for value in left_s.values()):
            return None
        return _replace(self, **left_s)

    def claim(self) -> Subscription | None:
        """What a message that asks for events asks for, and in whose name, as if that node had subscribed: nodes with
        keys look whether it may. None for one that asks for nothing, or carries subscriptions as they are."""
        return None

    def merge_with(self, other: "Message") -> "Message | None":
        """One message that says what this one and another of its type say; None if there is none, or it would be too
        long. Worlds may send it in their place, if both were said at the same time to the same node."""
        return None


def classify(message: Message) -> tuple[Traffic, EventId | None]:
    """What a message counts as, and the event it carries, if it does."""
    if isinstance(message, EventMessage):
        return Traffic.DATA, message.event.id
    if isinstance(message, ParcelMessage):
        return message.parcel.traffic, message.parcel.event
    return message.traffic, None


MAX_HOPS = 65_535


def hops_after(hops: int, more: int = 1) -> int:
    """So many transmissions later. A count that somebody has driven to its end stays there: one beyond it would be
    refused by everybody, and the event with it."""
    return min(hops + more, MAX_HOPS)


class EventMessage(Message, frozen=True, gc=False):
    """The base of messages that carry one event.

    `hops` counts the transmissions that the event has behind it when the message arrives; through a router the sender
    cannot know them, and the receiver adds what the router reports. `remaining_s` is what is left
    of the event's lease at the moment of sending: durations travel, points in time do not.
    """

    traffic: ClassVar[Traffic] = Traffic.DATA
    durations: ClassVar[tuple[str, ...]] = ("remaining_s",)

    event: Event
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)]
    remaining_s: Annotated[float, Meta(gt=0)]

    def age_by(self, waited_s: float) -> Self | None:
        """As of every message; spelled out, since on a contended radio nearly every event waits."""
        if waited_s == 0.0 or len(self.durations) > 1:
            return super().age_by(waited_s)
        left_s = self.remaining_s - waited_s
        return _replace(self, remaining_s=left_s) if left_s > 0 else None


class Parcel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a router carries for the layer above: an encoded message, and what the trace should count it as.

    `waited_s` adds up how long it has waited on its way, and the message within is as much older when it is handed up.
    Worlds add the time in their queues. A router adds, by `age_by`, how long it kept a parcel until it sent it on, and
    until it learned that a sending had failed.
    """

    body: bytes
    traffic: Traffic
    event: EventId | None = None
    waited_s: Annotated[float, Meta(ge=0)] = 0.0

    def age_by(self, waited_s: float) -> Self:
        """The parcel after it has waited."""
        return _replace(self, waited_s=self.waited_s + waited_s)


class ParcelMessage(Message, frozen=True, gc=False):
    """The base of a router's messages that carry a parcel. Its traffic is that of what it carries."""

    parcel: Parcel

    def age_by(self, waited_s: float) -> Self | None:
        """The parcel grows older; whether its message is over is for its receiver to see."""
        mine = super().age_by(waited_s)
        return mine if mine is None or waited_s == 0.0 else _replace(mine, parcel=self.parcel.age_by(waited_s))
