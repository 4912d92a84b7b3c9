"""The messages of retrieval: a request to repositories, a response with one stored event, and the end of responses."""

from typing import Annotated, ClassVar, NamedTuple

from msgspec import Meta

from carrycast.core.model import EventId, FilterText, NodeId, Scalar, Subscription, SubscriptionId, check_attributes
from carrycast.core.wire import EventMessage, Message

MAX_PATH = 64
"""Twice the depth of any tree of brokers."""
MAX_IDS = 256
MAX_ATTEMPT = 255
MAX_HOPS = 65535
"""The largest hop count of an event message. Counts saturate there, since a forged message may start with it."""
WHOLE = 1 << 30
"""The credit of a request. Its parts share the credit, and the request is complete when all of it has returned."""

Count = Annotated[int, Meta(ge=0, lt=1 << 32)]
Credit = Annotated[int, Meta(ge=1, le=WHOLE)]
PathStack = Annotated[tuple[NodeId, ...], Meta(max_length=MAX_PATH)]
"""The nodes that a request has passed, newest first. Responses return along this path."""
Ids = Annotated[tuple[EventId, ...], Meta(max_length=MAX_IDS)]


class RetrievalId(NamedTuple):
    """A requester's number of a request. The incarnation tells requests before and after a crash apart. `attempt`
    counts repetitions, because the credits of different attempts must not be added up."""

    incarnation: Count
    number: Count
    attempt: Annotated[int, Meta(ge=0, le=MAX_ATTEMPT)] = 0


class RetrievalRequest(Message, frozen=True, gc=False, tag=6):
    """[000 §IV] A request: a filter and the nodes that it has passed. Requests of applications and of subscriptions
    with history are sent alike. Events in `known` need not be sent: the requester has them, or a node on the path sends
    them."""

    durations: ClassVar[tuple[str, ...]] = ("remaining_s",)

    ask: RetrievalId
    filter: FilterText
    attributes: dict[str, Scalar]
    path: PathStack
    remaining_s: Annotated[float, Meta(gt=0)]
    credit: Credit = WHOLE
    known: Ids = ()

    def __post_init__(self) -> None:
        check_attributes(self.attributes)

    def claim(self) -> Subscription | None:
        """The subscription of the node at the end of the path; None without a path."""
        if not self.path:
            return None
        return Subscription(SubscriptionId(self.path[-1], 0), self.filter, attributes=self.attributes)


class RetrievalResponse(EventMessage, frozen=True, gc=False, kw_only=True, tag=7):
    """[000 §IV] One stored event, and the remaining nodes of the path."""

    ask: RetrievalId
    path: PathStack


class ResponseEnd(Message, frozen=True, gc=False, tag=8):
    """The ids of all events that answer a part of a request, by which the requester detects lost or late responses."""

    ask: RetrievalId
    path: PathStack
    credit: Credit
    events: Ids
