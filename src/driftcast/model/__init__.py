"""Frozen values that every layer speaks of. No input or output."""

from driftcast.model.area import Area
from driftcast.model.event import FOREVER_S, AccessPolicy, Attributes, Event, Scalar, check_attributes
from driftcast.model.failure import Failure
from driftcast.model.identity import (
    MAX_NODE_ID,
    AdvertisementId,
    EventId,
    NodeId,
    Position,
    ProcessorId,
    RequestId,
    SubscriptionId,
    Velocity,
)
from driftcast.model.roads import RoadMap
from driftcast.model.subscription import Advertisement, FilterText, Processor, Request, Subscription

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
