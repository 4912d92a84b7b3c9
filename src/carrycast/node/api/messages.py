"""The messages of the client API: requests, responses and notifications, one JSON object a line.

docs/client-api.md documents them, so that clients can be written in any language. Payloads are base64, as JSON has no
bytes.
"""

from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.core.model import (
    MAX_NODE_ID,
    MAX_STATE_BYTES,
    EventId,
    FilterText,
    Position,
    Scalar,
    SubscriptionId,
    Velocity,
)
from carrycast.core.protocol import GUARANTEED, MAY_END
from carrycast.node.event_feed import ActiveSubscription, FeedEvent

MAX_LINE_BYTES = 1 << 19
"""More than any event needs that fits in a datagram: JSON takes at most six bytes for one. A longer line ends the
connection."""
MAX_REPLY_BYTES = 1 << 22
"""The longest line that a client accepts; a status with thousands of neighbors fits."""

Lease = Annotated[float, Meta(gt=0)]
Level = Literal["accepted", "stored", "held"]
"""The delivery guarantee of a publication (docs/guarantees.md)."""
Busy = Literal["wait", "refuse"]
Number = Annotated[int, Meta(ge=0, le=MAX_NODE_ID)]

MAX_POSITIONS = 1024
"""Positions of one acknowledgement."""


class ApiRequest(msgspec.Struct, frozen=True, tag_field="op", kw_only=True, forbid_unknown_fields=True):
    """The base of all requests; the response carries the same `id`."""

    id: Number = 0


class PublishRequest(ApiRequest, frozen=True, tag="publish"):
    """Publish an event. The response comes when the node has it (`accepted`), has it on its disk (`stored`), or when
    `copies` neighbors have acknowledged that they hold it too, at the latest after `patience_s` (`held`)."""

    attributes: dict[str, Scalar]
    payload: bytes = b""
    lease_s: Lease | None = None
    access: FilterText | None = None
    level: Level = "accepted"
    copies: Annotated[int, Meta(ge=1, le=64)] = 1
    patience_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0
    busy: Busy = "wait"
    """What happens while the node is busy. If the publication waits, so do all later requests of this client."""


class SubscribeRequest(ApiRequest, frozen=True, tag="subscribe"):
    """Subscribe; a `DeliveryNotification` follows for each event. With a name the subscription outlives the
    connection."""

    filter: FilterText
    name: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    lease_s: Lease | None = None
    attributes: dict[str, Scalar] = {}
    processor: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    state: Annotated[bytes, Meta(max_length=MAX_STATE_BYTES)] = b""
    history: bool = False
    acknowledge: bool = False
    """With a name: events stay in the backlog until they are acknowledged, not only until they were sent."""


class AcknowledgeRequest(ApiRequest, frozen=True, tag="acknowledge"):
    """The client has the events at these positions of a named subscription; they are not delivered again."""

    subscription: SubscriptionId
    positions: Annotated[list[Number], Meta(max_length=MAX_POSITIONS)]


class UnsubscribeRequest(ApiRequest, frozen=True, tag="unsubscribe"):
    """End a subscription of this connection."""

    subscription: SubscriptionId


class MoveRequest(ApiRequest, frozen=True, tag="position"):
    """Set the position of the node; None if it is unknown."""

    position: Position | None
    velocity: Velocity = Velocity(0.0, 0.0)


class AdvertiseRequest(ApiRequest, frozen=True, tag="advertise"):
    """Advertise events that will be published here, or (`stored`) that the node stores; until the connection ends."""

    filter: FilterText
    stored: bool = False


class RetrieveRequest(ApiRequest, frozen=True, tag="request"):
    """Request stored events; a `RetrievedEvent` follows for each, then `RequestClosed`."""

    filter: FilterText
    patience_s: Annotated[float, Meta(gt=0, le=3600)] = 10.0


class CommandRequest(ApiRequest, frozen=True, tag="command"):
    """Send a command to an application of the node; `CommandResponse` is its reply."""

    application: Annotated[str, Meta(min_length=1, max_length=128)]
    verb: Annotated[str, Meta(max_length=128)]
    body: dict[str, object] = {}


class StatusRequest(ApiRequest, frozen=True, tag="status"):
    """Request the status of the node."""


class WatchRequest(ApiRequest, frozen=True, tag="watch"):
    """Read the event feed after a number; without one, from now on, with the present state."""

    after: Number | None = None


class ApiResponse(msgspec.Struct, frozen=True, tag_field="answer", kw_only=True):
    """The base of all responses and notifications."""

    id: int = 0


class PublishResponse(ApiResponse, frozen=True, tag="published"):
    """The id of the event, and at level `held` how many neighbors hold it."""

    event: EventId
    held: int | None = None


class SubscribeResponse(ApiResponse, frozen=True, tag="subscribed"):
    """The id of the subscription."""

    subscription: SubscriptionId


class AcknowledgeResponse(ApiResponse, frozen=True, tag="acknowledged"):
    """The acknowledgement is on the node's disk: the events are not delivered again."""


class UnsubscribeResponse(ApiResponse, frozen=True, tag="unsubscribed"):
    """The subscription has ended. As a notification (`id` 0): the lease of a subscription of this connection has
    expired."""

    subscription: SubscriptionId | None = None


class AdvertiseResponse(ApiResponse, frozen=True, tag="advertised"):
    """The advertisement is active."""


class MoveResponse(ApiResponse, frozen=True, tag="moved"):
    """The node uses the new position."""


class DeliveryNotification(ApiResponse, frozen=True, tag="delivered"):
    """Notification: an event of a subscription of this connection."""

    subscription: SubscriptionId
    event: EventId
    attributes: dict[str, Scalar]
    payload: bytes
    time_s: float
    lease_s: float | None
    hops: int
    derived_from: list[EventId] = []
    position: int | None = None
    """Of a named subscription: the number to acknowledge."""
    again: bool = False
    """It may have been delivered before."""


class GapNotification(ApiResponse, frozen=True, tag="gap"):
    """Notification: the results of a subscription of this connection do not continue where they were.

    `processor_restarted`: the broker of the processor was lost, and it was restarted elsewhere without its state.
    `node_restarted`: the same, because the node of the subscription has restarted."""

    subscription: SubscriptionId
    reason: str


class RetrievedEvent(ApiResponse, frozen=True, tag="answered"):
    """A stored event of a request."""

    event: EventId
    attributes: dict[str, Scalar]
    payload: bytes
    time_s: float
    lease_s: float | None
    hops: int


class RequestClosed(ApiResponse, frozen=True, tag="closed"):
    """The end of a request; `complete` if it returned all stored events. As a notification (`id` 0): the end of the
    history of a subscription; it is sent again if the rest arrives after an incomplete end."""

    complete: bool
    subscription: SubscriptionId | None = None


class CommandResponse(ApiResponse, frozen=True, tag="commanded"):
    """The reply of an application to a command."""

    body: dict[str, object]


class RetentionReport(msgspec.Struct, frozen=True):
    """The events of one level: accepted = kept + removed, by reason, since the store was created; without a retention
    log since the node started."""

    accepted: int
    kept: int
    removed: dict[str, int]
    log_bytes: int = 0
    """The size of the kept events in the retention log."""

    def flaw(self, level: str) -> str | None:
        """Why the account is wrong: it does not add up, or events were removed for a reason that the guarantee
        excludes."""
        removed = sum(self.removed.values())
        if self.accepted != self.kept + removed:
            return f"{level}: {self.accepted} events accepted, {self.kept} kept and {removed} removed"
        broken = [reason for reason in self.removed if level in GUARANTEED and reason not in MAY_END]
        return f"{level}: events were removed as {', '.join(broken)}" if broken else None


class Status(ApiResponse, frozen=True, tag="status"):
    """The status of the node."""

    name: str
    node: int
    protocol: str
    address: str
    """Of the first interface."""
    interfaces: dict[str, str]
    """The address of each interface."""
    uptime_s: float
    neighbors: list[int]
    links: dict[str, float]
    """`neighbor/interface`, and the cost of the link in seconds."""
    subscriptions: int
    counts: dict[str, int]
    drops: dict[str, int]
    position: Position | None = None
    """The position that it was told, if any."""
    waiting: dict[str, int] = {}
    """Queues: `send/INTERFACE` messages to neighbors, `clients` events in backlogs, `buffer` events that the protocol
    carries for other nodes."""
    retention: dict[str, RetentionReport] = {}
    """Retention by level: `stored` and `accepted` events of this node, `custody` and `carried` events of others."""
    certificate_ends_s: float | None = None
    """When the node's certificate ends, in seconds since 1970, if it has one."""
    names: dict[int, str] = {}
    """The names of neighbors in the node's directory."""
    details: dict[str, str] = {}
    """A report of the protocol: for `overlay` its home broker, and where modulators run."""


class WatchResponse(ApiResponse, frozen=True, tag="watched"):
    """A part of the event feed. Reading after `next` continues it; `missed` events were no longer buffered."""

    time_s: float
    """The node's clock, as in the feed events."""
    next: int
    missed: int
    events: list[FeedEvent] = msgspec.field(name="sightings")
    frames: int
    """Frames sent since the node started, without beacons."""
    subscriptions: list[ActiveSubscription] | None = None
    """The active subscriptions, if they have changed since the last response."""
    holds: list[str] | None = None
    """The events that the node stores, in the first response."""


class ErrorResponse(ApiResponse, frozen=True, tag="refused"):
    """The request failed; one line says why. `wrong_use` distinguishes a UserError from a WorkError."""

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


class _RequestId(msgspec.Struct):
    id: Number = 0


_id_decoder = msgspec.json.Decoder(_RequestId)


def read_request_id(line: bytes) -> int:
    """The id of a request that cannot be decoded, for the error response; 0 if it has none."""
    try:
        return _id_decoder.decode(line).id
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0
