"""The base classes of messages between nodes."""

import enum
from typing import Annotated, ClassVar, Self

import msgspec
from msgspec import Meta

from carrycast.core.model import Event, EventId, Subscription

LEASE_EXPIRED = "lease_over"
"""The drop reason of a message that waited longer than one of its durations."""

_replace = msgspec.structs.replace


class Traffic(enum.IntEnum):
    """The traffic class of a message in the trace: events, control messages, or neighbor discovery."""

    DATA = 0
    CONTROL = 1
    DISCOVERY = 2


class Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message type of one layer. Each subclass has a tag: `class Summary(Message, tag=1)`.

    The tag is part of the wire format, so it is never reused for another type of the same layer. Instances are
    immutable, so the simulator may pass the same object to many receivers.
    """

    traffic: ClassVar[Traffic] = Traffic.CONTROL
    durations: ClassVar[tuple[str, ...]] = ()
    """The fields that are durations from the moment the message is passed to its port. Environments subtract the time
    that the message waits in queues."""

    def age_by(self, waited_s: float) -> Self | None:
        """The message after a waiting time; None if one of its durations has expired."""
        if waited_s == 0.0 or not self.durations:
            return self
        left_s = {name: getattr(self, name) - waited_s for name in self.durations}
        # Written so that NaN, from the infinite waits of malicious nodes, counts as expired.
        if not all(value > 0 for value in left_s.values()):
            return None
        return _replace(self, **left_s)

    def claim(self) -> Subscription | None:
        """The subscription that a message implies, such as a request for events: nodes with keys verify that its
        subscriber is authorized. None for messages that request nothing, or contain whole subscriptions."""
        return None

    def merge_with(self, other: "Message") -> "Message | None":
        """A message with the content of this one and another of its type; None if they cannot be merged, or would be
        too long. Environments may send it instead of both, if both are sent at the same time to the same node."""
        return None


def classify(message: Message) -> tuple[Traffic, EventId | None]:
    """The traffic class of a message, and the id of the event it carries, if any."""
    if isinstance(message, EventMessage):
        return Traffic.DATA, message.event.id
    if isinstance(message, ParcelMessage):
        return message.parcel.traffic, message.parcel.event
    return message.traffic, None


MAX_HOPS = 65_535


def hops_after(hops: int, more: int = 1) -> int:
    """The hop count after more transmissions. It saturates: a count beyond the limit would be rejected together with
    its event."""
    return min(hops + more, MAX_HOPS)


class EventMessage(Message, frozen=True, gc=False):
    """The base of messages that carry one event.

    `hops` is the number of transmissions of the event when the message arrives; through a router, the receiver adds the
    hops that the router reports. `remaining_s` is the remaining lease at the time of sending: messages carry durations,
    never points in time.
    """

    traffic: ClassVar[Traffic] = Traffic.DATA
    durations: ClassVar[tuple[str, ...]] = ("remaining_s",)

    event: Event
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)]
    remaining_s: Annotated[float, Meta(gt=0)]

    def age_by(self, waited_s: float) -> Self | None:
        """A faster version for one duration: on a contended radio nearly every event waits."""
        if waited_s == 0.0 or len(self.durations) > 1:
            return super().age_by(waited_s)
        left_s = self.remaining_s - waited_s
        return _replace(self, remaining_s=left_s) if left_s > 0 else None


class Parcel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An encoded message that a router carries for the layer above, with its traffic class for the trace.

    `waited_s` is the total waiting time, by which the message is aged on delivery. Environments add the time in their
    queues. A router adds, by `age_by`, how long it held a parcel before sending it or learning that a send failed.
    """

    body: bytes
    traffic: Traffic
    event: EventId | None = None
    waited_s: Annotated[float, Meta(ge=0)] = 0.0

    def age_by(self, waited_s: float) -> Self:
        """The parcel after a waiting time."""
        return _replace(self, waited_s=self.waited_s + waited_s)


class ParcelMessage(Message, frozen=True, gc=False):
    """The base of a router's messages that carry a parcel. Its traffic class is that of the parcel."""

    parcel: Parcel

    def age_by(self, waited_s: float) -> Self | None:
        """The parcel is aged; its receiver checks whether its message has expired."""
        mine = super().age_by(waited_s)
        return mine if mine is None or waited_s == 0.0 else _replace(mine, parcel=self.parcel.age_by(waited_s))
