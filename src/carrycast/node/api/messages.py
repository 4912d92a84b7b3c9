"""What a client and a node say to each other: JSON, one object a line.

Documented in docs/live.md, so that clients can be written in any language. Payloads are base64, as JSON has no bytes.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.model import MAX_NODE_ID, EventId, FilterText, Position, Scalar, SubscriptionId, Velocity
from carrycast.core.model.subscription import MAX_STATE_BYTES
from carrycast.core.protocol.retention import GUARANTEED, MAY_END
from carrycast.node.event_feed import ActiveSubscription, FeedEvent

MAX_LINE_BYTES = 1 << 19
"""More than any event needs that fits a datagram: JSON writes a byte of it with six at most. A longer line ends the
connection."""
MAX_REPLY_BYTES = 1 << 22
"""What a client takes from its node in one line, a status with thousands of neighbors included."""

Lease = Annotated[float, Meta(gt=0)]
Level = Literal["accepted", "stored", "held"]
"""What is true when a publication is answered for."""
Busy = Literal["wait", "refuse"]
Number = Annotated[int, Meta(ge=0, le=MAX_NODE_ID)]


MAX_POSITIONS = 1024


class ApiRequest(msgspec.Struct, frozen=True, tag_field="op", kw_only=True, forbid_unknown_fields=True):
    """The base of what a client asks; the answer carries the same `id`."""

    id: Number = 0


class PublishRequest(ApiRequest, frozen=True, tag="publish"):
    """Publish an event. The answer comes when the node has it (`accepted`), has it on its disk (`stored`), or when so
    many neighbors have said that they hold it too, or after so long (`held`)."""

    attributes: dict[str, Scalar]
    payload: bytes = b""
    lease_s: Lease | None = None
    access: FilterText | None = None
    level: Level = "accepted"
    copies: Annotated[int, Meta(ge=1, le=64)] = 1
    patience_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    busy: Busy = "wait"
    """What becomes of it while the node cannot keep up; if it waits, so does all that this client asks after it."""


class SubscribeRequest(ApiRequest, frozen=True, tag="subscribe"):
    """Subscribe; `Delivered` follows for each event. With a name the subscription outlives the connection."""

    filter: FilterText
    name: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    lease_s: Lease | None = None
    attributes: dict[str, Scalar] = {}
    processor: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    state: Annotated[bytes, Meta(max_length=MAX_STATE_BYTES)] = b""
    history: bool = False
    acknowledge: bool = False
    """Of a named one: events wait until they are acknowledged, not only until they were written to the client."""


class AcknowledgeRequest(ApiRequest, frozen=True, tag="acknowledge"):
    """The client has the events at these positions of a named subscription, and they are not to come again."""

    subscription: SubscriptionId
    positions: Annotated[list[Number], Meta(max_length=MAX_POSITIONS)]


class UnsubscribeRequest(ApiRequest, frozen=True, tag="unsubscribe"):
    """End a subscription of this connection."""

    subscription: SubscriptionId


class MoveRequest(ApiRequest, frozen=True, tag="position"):
    """The node is somewhere else now; without a position it no longer knows where."""

    position: Position | None
    velocity: Velocity = Velocity(0.0, 0.0)


class AdvertiseRequest(ApiRequest, frozen=True, tag="advertise"):
    """Events of a filter will come from here, or (`stored`) are to be kept by the node; until the connection ends."""

    filter: FilterText
    stored: bool = False


class RetrieveRequest(ApiRequest, frozen=True, tag="request"):
    """Ask for stored events; `Answered` follows for each, then `Closed`."""

    filter: FilterText
    patience_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0


class CommandRequest(ApiRequest, frozen=True, tag="command"):
    """Tell an application of the node to do something; `Commanded` brings what it says."""

    application: Annotated[str, Meta(min_length=1, max_length=128)]
    verb: Annotated[str, Meta(max_length=128)]
    body: dict[str, object] = {}


class StatusRequest(ApiRequest, frozen=True, tag="status"):
    """How is the node?"""


class WatchRequest(ApiRequest, frozen=True, tag="watch"):
    """What happened to events at the node, from a number on; without one, from now on, and how things stand."""

    after: Number | None = None


class ApiResponse(msgspec.Struct, frozen=True, tag_field="answer", kw_only=True):
    """The base of what a node answers."""

    id: int = 0


class PublishResponse(ApiResponse, frozen=True, tag="published"):
    """The id that the event was given, and at level `held` how many neighbors hold it."""

    event: EventId
    held: int | None = None


class SubscribeResponse(ApiResponse, frozen=True, tag="subscribed"):
    """The id that the subscription was given, or has."""

    subscription: SubscriptionId


class AcknowledgeResponse(ApiResponse, frozen=True, tag="acknowledged"):
    """It is on the node's disk that the client has them: they do not come again."""


class UnsubscribeResponse(ApiResponse, frozen=True, tag="unsubscribed"):
    """The subscription has ended. Without a question (`id` 0) it is one of this connection whose lease is over."""

    subscription: SubscriptionId | None = None


class AdvertiseResponse(ApiResponse, frozen=True, tag="advertised"):
    """It stands."""


class MoveResponse(ApiResponse, frozen=True, tag="moved"):
    """The node takes that for its position from now on."""


class DeliveryNotification(ApiResponse, frozen=True, tag="delivered"):
    """An event for a subscription of this connection. Belongs to no question."""

    subscription: SubscriptionId
    event: EventId
    attributes: dict[str, Scalar]
    payload: bytes
    time_s: float
    lease_s: float | None
    hops: int
    derived_from: list[EventId] = []
    position: int | None = None
    """Of a named subscription: what to acknowledge."""
    again: bool = False
    """It may have been delivered before."""


class GapNotification(ApiResponse, frozen=True, tag="gap"):
    """The results of a subscription of this connection do not go on where they were. Belongs to no question.

    `processor_restarted`: its broker is lost, and the processor began again elsewhere without its state.
    `node_restarted`: the same, because the node of the subscription started again."""

    subscription: SubscriptionId
    reason: str


class RetrievedEvent(ApiResponse, frozen=True, tag="answered"):
    """A stored event for a request."""

    event: EventId
    attributes: dict[str, Scalar]
    payload: bytes
    time_s: float
    lease_s: float | None
    hops: int


class RequestClosed(ApiResponse, frozen=True, tag="closed"):
    """No more answers will come; `complete` if these were all there are. Without a question (`id` 0) it is about the
    history of a subscription of this connection; told again if the rest comes after it was not complete."""

    complete: bool
    subscription: SubscriptionId | None = None


class CommandResponse(ApiResponse, frozen=True, tag="commanded"):
    """What an application says to a command."""

    body: dict[str, object]


class RetentionReport(msgspec.Struct, frozen=True):
    """Of the events of one level: accepted = kept + all that were removed, by reason, since the store was made; without
    a retention log since the node started."""

    accepted: int
    kept: int
    removed: dict[str, int]
    log_bytes: int = 0
    """What the kept ones take in the retention log."""

    def flaw(self, level: str) -> str | None:
        """What does not add up, or is kept no longer for a reason that the contract does not name."""
        removed = sum(self.removed.values())
        if self.accepted != self.kept + removed:
            return f"{level}: {self.accepted} events accepted, {self.kept} kept and {removed} removed"
        broken = [reason for reason in self.removed if level in GUARANTEED and reason not in MAY_END]
        return f"{level}: events were removed as {', '.join(broken)}" if broken else None


class Status(ApiResponse, frozen=True, tag="status"):
    """How the node is."""

    name: str
    node: int
    protocol: str
    address: str
    """Of the first interface."""
    interfaces: dict[str, str]
    """Where the node hears over each."""
    uptime_s: float
    neighbors: list[int]
    links: dict[str, float]
    """`neighbor/interface` and what the link costs, in seconds."""
    subscriptions: int
    counts: dict[str, int]
    drops: dict[str, int]
    position: Position | None = None
    """Where it takes itself to be, if it has been told."""
    waiting: dict[str, int] = {}
    """What waits: `send/INTERFACE` messages to neighbors, `clients` events for subscribers that are away, `buffer`
    those that the protocol keeps for others."""
    retention: dict[str, RetentionReport] = {}
    """What became of events, by level: `stored` and `accepted` of this node, `custody` and `carried` of others."""
    certificate_ends_s: float | None = None
    """When the node's certificate ends, in seconds since 1970, if it has one."""
    names: dict[int, str] = {}
    """What the directory of the node calls its neighbors."""
    details: dict[str, str] = {}
    """What the protocol says of itself: `overlay` its home broker, and where modulators run."""


class WatchResponse(ApiResponse, frozen=True, tag="watched"):
    """What happened. Asking again with `next` goes on from there; `missed` is what was forgotten in between."""

    time_s: float
    """The node's clock, which sightings have."""
    next: int
    missed: int
    sightings: list[FeedEvent]
    frames: int
    """Sent since the node started, without beacons."""
    subscriptions: list[ActiveSubscription] | None = None
    """Those that stand, if they are others than in the last answer."""
    holds: list[str] | None = None
    """The events that the node stores, in a first answer."""


class ErrorResponse(ApiResponse, frozen=True, tag="refused"):
    """The question could not be served; one line that says why. `wrong_use` tells the two kinds of errors apart."""

    message: str
    wrong_use: bool


AnyRequest: TypeAlias = (
    PublishRequest
    | SubscribeRequest
    | AcknowledgeRequest
    | UnsubscribeRequest
    | AdvertiseRequest
    | MoveRequest
    | RetrieveRequest
    | CommandRequest
    | StatusRequest
    | WatchRequest
)
AnyResponse: TypeAlias = (
    PublishResponse
    | SubscribeResponse
    | AcknowledgeResponse
    | UnsubscribeResponse
    | AdvertiseResponse
    | MoveResponse
    | DeliveryNotification
    | GapNotification
    | RetrievedEvent
    | RequestClosed
    | CommandResponse
    | Status
    | WatchResponse
    | ErrorResponse
)


class _Numbered(msgspec.Struct):
    id: Number = 0


_numbered = msgspec.json.Decoder(_Numbered)


def question_number(line: bytes) -> int:
    """The number of a question that is not understood, for whoever waits for its answer; 0 if it has none."""
    try:
        return _numbered.decode(line).id
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0
