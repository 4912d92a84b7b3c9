"""Subscriptions, advertisements, requests and processors."""

from typing import Annotated

import msgspec
from msgspec import Meta

from carrycast.core.model.event import FOREVER_S, MAX_TEXT_LENGTH, Scalar, check_attributes
from carrycast.core.model.identity import AdvertisementId, NodeId, Position, ProcessorId, RequestId, SubscriptionId

MAX_STATE_BYTES = 1 << 20
"""State moves with its processor in one message, so it has the limit of a payload."""

FilterText = Annotated[str, Meta(max_length=MAX_TEXT_LENGTH)]


class Subscription(msgspec.Struct, frozen=True, array_like=True):
    """A subscription: subscriber, filter and lease. The filter is text; `carrycast.core.matching` parses it."""

    id: SubscriptionId
    filter: FilterText
    lease_s: Annotated[float, Meta(gt=0)] = FOREVER_S
    attributes: dict[str, Scalar] = {}
    """The subscriber's attributes, which access policies test."""
    position: Position | None = None
    history: bool = False
    """Whether events stored before the subscription are delivered too."""
    processor: ProcessorId | None = None
    """The processor to apply; the filter then selects its inputs, and its results are delivered."""
    state: Annotated[bytes, Meta(max_length=MAX_STATE_BYTES)] = b""
    """The initial state of that processor."""

    def __post_init__(self) -> None:
        check_attributes(self.attributes)

    @property
    def subscriber(self) -> NodeId:
        """The node whose application subscribed."""
        return self.id.subscriber


class Advertisement(msgspec.Struct, frozen=True, array_like=True):
    """States that events of a filter will be published here, or (`stored`) that this node stores such events and
    answers requests for them."""

    id: AdvertisementId
    filter: FilterText
    stored: bool = False
    lease_s: Annotated[float, Meta(gt=0)] = FOREVER_S


class Request(msgspec.Struct, frozen=True, array_like=True):
    """A request for stored events; each answer carries one event."""

    id: RequestId
    filter: FilterText
    patience_s: Annotated[float, Meta(gt=0)] = 10.0
    attributes: dict[str, Scalar] = {}
    """The requester's attributes, which access policies test."""
    elsewhere: bool = False
    """Whether to ask other nodes even if this node stores such events itself, as a repository that catches up does."""

    def __post_init__(self) -> None:
        check_attributes(self.attributes)


class Processor(msgspec.Struct, frozen=True, array_like=True):
    """A function from events to events that may run on the path of events: its name, inputs and expected cost.

    The host runs the function; only its name and its state are sent.
    """

    id: ProcessorId
    filter: FilterText
    inputs: Annotated[int, Meta(ge=1, le=64)] = 1
    """The number of events per call; more than one for an aggregate."""
    cost_s: Annotated[float, Meta(ge=0)] = 0.0
    """The expected time of a call, before it is measured."""
