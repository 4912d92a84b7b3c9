"""Identifiers, positions and areas. Ids are numbers: sets and dictionaries of them have the same order everywhere."""

from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

MAX_NODE_ID = 2**63 - 1
"""63 bits rather than 64: the largest number that fits the signed integers of SQL, Arrow and Spark."""

NodeId: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_NODE_ID)]
"""A node: a number from 0 to MAX_NODE_ID. Simulated nodes are 0 to n-1; a live node's is a hash of its key."""

Sequence: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_NODE_ID)]
"""A node's own counter."""

Coordinate: TypeAlias = Annotated[float, Meta(ge=-1e9, le=1e9)]
"""Meters, or meters per second. The bounds also reject NaN."""


class EventId(NamedTuple):
    """An event: its source and the source's own counter, which needs no agreement between nodes."""

    source: NodeId
    sequence: Sequence

    def __str__(self) -> str:
        return f"{self.source}:{self.sequence}"


class SubscriptionId(NamedTuple):
    """A subscription: the subscribing node and that node's own counter."""

    subscriber: NodeId
    sequence: Sequence

    def __str__(self) -> str:
        return f"{self.subscriber}:{self.sequence}"


class AdvertisementId(NamedTuple):
    """An advertisement: the advertising node and that node's own counter."""

    advertiser: NodeId
    sequence: Sequence

    def __str__(self) -> str:
        return f"{self.advertiser}:{self.sequence}"


class RequestId(NamedTuple):
    """A request for stored events: the requesting node and that node's own counter."""

    requester: NodeId
    sequence: Sequence

    def __str__(self) -> str:
        return f"{self.requester}:{self.sequence}"


ProcessorId: TypeAlias = str
"""A processor is known by the name under which its function was registered."""


class Position(NamedTuple):
    """A place in the plane, in meters."""

    x_m: Coordinate
    y_m: Coordinate


class Velocity(NamedTuple):
    """Speed along both axes, in meters per second."""

    x_mps: Coordinate
    y_mps: Coordinate


Extent = Annotated[float, Meta(gt=0, le=1e9, description="meters")]


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rectangle from (0, 0) to (width_m, height_m) in which nodes move."""

    width_m: Extent
    height_m: Extent
