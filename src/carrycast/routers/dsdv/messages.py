"""The messages of DSDV. A sequence number has 63 bits: the incarnation of the destination, then a counter. The
destination itself issues even numbers; an odd number says that a route over a broken link is lost."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import NodeId
from carrycast.core.parts import RoutedPacket
from carrycast.core.wire import Message

COUNTER_BITS = 32
MAX_SEQUENCE = 2**63 - 1
INFINITE = 255
"""The metric of a destination that cannot be reached."""

MAX_ENTRIES = 96
"""Routes in one update: with up to 15 bytes each they fit in a frame of 1,500 bytes, the "network protocol data unit"
of [DSDV94, Route Advertisements]."""


class AdvertisedRoute(NamedTuple):
    """A route in an update [DSDV94, Route Advertisements]: the destination, the number of hops from the sender, and the
    sequence number "as originally stamped by the destination"."""

    destination: NodeId
    metric: Annotated[int, Meta(ge=0, le=INFINITE)]
    sequence: Annotated[int, Meta(ge=0, le=MAX_SEQUENCE)]


class RouteUpdate(Message, frozen=True, gc=False, tag=1):
    """A full dump, a part of one, or an incremental update."""

    routes: Annotated[tuple[AdvertisedRoute, ...], Meta(max_length=MAX_ENTRIES)]


class DataPacket(RoutedPacket, frozen=True, gc=False, kw_only=True, tag=2):
    """A parcel of the layer above on its way."""
