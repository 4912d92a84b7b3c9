"""A request on its way to repositories, one stored event on its way back, and the end of the answers."""

from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from carrycast.core.model import EventId, FilterText, NodeId, Scalar, Subscription, SubscriptionId, check_attributes
from carrycast.core.wire import EventMessage, Message

MAX_PATH = 64
"""Farther than any tree of brokers is deep twice."""
MAX_IDS = 256
MAX_ATTEMPT = 255
MAX_HOPS = 65535
"""As far as an event message can count; a forged one may begin there."""
WHOLE = 1 << 30
"""The credit of a request: its parts share it, and when all of it has come back nothing is missing."""

Count = Annotated[int, Meta(ge=0, lt=1 << 32)]
Credit = Annotated[int, Meta(ge=1, le=WHOLE)]
PathStack = Annotated[tuple[NodeId, ...], Meta(max_length=MAX_PATH)]
"""The nodes that a request has passed, newest first; the answers go back along it."""
Ids = Annotated[tuple[EventId, ...], Meta(max_length=MAX_IDS)]


class AskId(NamedTuple):
    """An asker's own number of a request; answers to a node that has crashed since are not taken for later ones.
    `attempt` counts how often it was asked before: what repositories said then must not be added up with what they say
    now."""

    incarnation: Count
    number: Count
    attempt: Annotated[int, Meta(ge=0, le=MAX_ATTEMPT)] = 0


class Asked(Message, frozen=True, gc=False, tag=6):
    """[000 §IV] A request: a filter and the nodes that it has passed. An application's request and a subscription that
    wants its history are asked alike. `known` need not be sent: the asker has them, or will have from on the way."""

    durations: ClassVar[tuple[str, ...]] = ("remaining_s",)

    ask: AskId
    filter: FilterText
    attributes: dict[str, Scalar]
    path: PathStack
    remaining_s: Annotated[float, Meta(gt=0)]
    credit: Credit = WHOLE
    known: Ids = ()

    def __post_init__(self) -> None:
        check_attributes(self.attributes)

    def claim(self) -> Subscription | None:
        """Of the node at the end of the path; without one it is no request."""
        if not self.path:
            return None
        return Subscription(SubscriptionId(self.path[-1], 0), self.filter, attributes=self.attributes)


class Answered(EventMessage, frozen=True, gc=False, kw_only=True, tag=7):
    """[000 §IV] One stored event, and the nodes that are still to be passed."""

    ask: AskId
    path: PathStack


class AllAnswered(Message, frozen=True, gc=False, tag=8):
    """Which events there are to answer a part of a request with. They may be lost or late, so the asker checks."""

    ask: AskId
    path: PathStack
    credit: Credit
    events: Ids
