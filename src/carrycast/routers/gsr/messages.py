"""The messages of GSR: beacons, and packets with the crossings on their way."""

from typing import Annotated

from msgspec import Meta

from carrycast.core.model import NodeId, Position
from carrycast.core.parts import Segment
from carrycast.core.protocol import Place
from carrycast.core.wire import Message, ParcelMessage
from carrycast.routers.gsr.settings import MAX_DETOURS

MAX_CROSSINGS = 256
"""Crossings in one packet: with 18 bytes each, they take 4.6 kB. A longer way is cut, and computed again at its end."""
MAX_NUMBER = (1 << 63) - 1


class StreetBeacon(Message, frozen=True, gc=False, tag=1):
    """A beacon: the position of the sender."""

    position: Position


class StreetPacket(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=2):
    """A parcel on its way. On arrival `hops` is the number of transmissions so far."""

    origin: NodeId
    number: Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
    place: Place
    crossings: Annotated[tuple[Position, ...], Meta(max_length=MAX_CROSSINGS)]
    """The crossings that are still to pass, in order."""
    closed: Annotated[tuple[Segment, ...], Meta(max_length=MAX_DETOURS)] = ()
    """Pieces of road on which the packet found nobody."""
    hops: Annotated[int, Meta(ge=0, le=255)]
