"""The data model: immutable values that every layer uses. No input or output."""

from carrycast.core.model.event import FOREVER_S, AccessPolicy, Attributes, Event, Scalar, check_attributes
from carrycast.core.model.failure import Failure
from carrycast.core.model.identity import (
    MAX_NODE_ID,
    AdvertisementId,
    Area,
    EventId,
    NodeId,
    Position,
    ProcessorId,
    RequestId,
    SubscriptionId,
    Velocity,
)
from carrycast.core.model.roads import RoadMap
from carrycast.core.model.subscription import Advertisement, FilterText, Processor, Request, Subscription

__all__ = [
    "FOREVER_S",
    "MAX_NODE_ID",
    "AccessPolicy",
    "Advertisement",
    "AdvertisementId",
    "Area",
    "Attributes",
    "Event",
    "EventId",
    "Failure",
    "FilterText",
    "NodeId",
    "Position",
    "Processor",
    "ProcessorId",
    "Request",
    "RequestId",
    "RoadMap",
    "Scalar",
    "Subscription",
    "SubscriptionId",
    "Velocity",
    "check_attributes",
]
