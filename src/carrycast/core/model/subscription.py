"""Who wants what: subscriptions, advertisements, requests."""

from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.model.event import FOREVER_S, MAX_TEXT_LENGTH, Scalar, check_attributes
from carrycast.core.model.identity import AdvertisementId, NodeId, Position, ProcessorId, RequestId, SubscriptionId

MAX_STATE_BYTES = 1 << 20
"""State travels with a processor that moves, so it has the limit of a payload."""

FilterText = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """(subscriber, filter, lease). The filter is its text, as it travels; `carrycast.core.matching` reads it."""

    id: SubscriptionId
    filter: FilterText
    lease_s: Annotated[float, Meta(gt=0)] = FOREVER_S
    attributes: dict[str, Scalar] = {}
    """What access policies are asked about."""
    position: Position | None = None
    history: bool = False
    """Whether stored events from before the subscription are wanted."""
    processor: ProcessorId | None = None
    """What the events are to pass through on their way; the filter then selects its inputs."""
    state: Annotated[bytes, Meta(max_length=MAX_STATE_BYTES)] = b""
    """With what state that processor begins."""

    def __post_init__(self) -> None:
        check_attributes(self.attributes)

    @property
    def subscriber(self) -> NodeId:
        """The node whose application subscribed."""
        return self.id.subscriber


class Advertisement(msgspec.Struct, frozen=True, array_like=True):
    """A statement that events of a filter will come from here, or (`stored`) that this node's protocol is to keep them
    for later and to answer requests for them."""

    id: AdvertisementId
    filter: FilterText
    stored: bool = False
    lease_s: Annotated[float, Meta(gt=0)] = FOREVER_S


class Request(msgspec.Struct, frozen=True, array_like=True):
    """Retrieval of stored events; each answer carries one of them."""

    id: RequestId
    filter: FilterText
    patience_s: Annotated[float, Meta(gt=0)] = 10.0
    attributes: dict[str, Scalar] = {}
    """What access policies of stored events are asked about."""
    elsewhere: bool = False
    """Whether other nodes are to be asked even if this one keeps such events itself: a repository that catches up."""

    def __post_init__(self) -> None:
        check_attributes(self.attributes)


class Processor(msgspec.Struct, frozen=True, array_like=True):
    """A function from events to events that may be placed on a path: its name, what it takes, what it is worth.

    The function itself stays with the host, which runs it; only its name and its state travel.
    """

    id: ProcessorId
    filter: FilterText
    inputs: Annotated[int, Meta(ge=1, le=64)] = 1
    """How many events it takes at a time; more than one for an aggregate."""
    cost_s: Annotated[float, Meta(ge=0)] = 0.0
    """What the host expects one call to take, before it has measured it."""
