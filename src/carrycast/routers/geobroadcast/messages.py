"""The packet of geographic broadcast [EN 302 636-4-1, 9.8.5]."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import NodeId, Position
from carrycast.core.wire import ParcelMessage

MAX_NUMBER = (1 << 63) - 1


class GeoBroadcastPacket(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=1):
    """A parcel of the layer above for all nodes in a circle. On arrival `hops` is the number of transmissions so far.

    Deviation: `at`, the position of the sender, is in the packet. GeoNetworking takes it from the sender's beacons.
    """

    origin: NodeId
    number: Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
    """The sequence number, over all starts of the origin."""
    center: Position
    radius_m: Annotated[float, Meta(ge=0, le=1e9)]
    hops_left: Annotated[int, Meta(ge=0, le=255)]
    """RHL, the remaining hop limit."""
    hops: Annotated[int, Meta(ge=1, le=255)]
    at: Position
