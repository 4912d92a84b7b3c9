"""What GPSR says: beacons, and packets with the header of [GPSR00] Table 1."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import NodeId, Position, Velocity
from carrycast.core.protocol import Place
from carrycast.core.wire import Message, ParcelMessage

MAX_HOPS = 65535
MAX_NUMBER = (1 << 63) - 1
MAX_OTHERS = 63
"""More places in one packet; who has more sends several."""


class Here(Message, frozen=True, gc=False, tag=1):
    """A beacon: where the sender is, and how it moves if others shall reckon with it."""

    position: Position
    velocity: Velocity | None = None


class Tour(NamedTuple):
    """What a packet in perimeter mode remembers."""

    entry: NodeId
    """The node at which it entered the mode,"""
    entered: Position
    """and where that was: Lp."""
    progress: tuple[Annotated[float, Meta(ge=0, le=1)], Annotated[float, Meta(ge=-1e18, le=1e18)]]
    """Where on the line from there to the target it entered the face it is on: Lf, as a share of the line, and an order
    among edges that meet there."""
    first: tuple[NodeId, NodeId]
    """The first edge of this face: e0."""


class GeoPacket(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=2):
    """What the layer above wants brought. Greedy without a tour, else in perimeter mode.

    `number` is of its origin's packets, of all its starts; `hops` counts the transmissions behind it when it arrives;
    `at` is where its last sender was.
    """

    origin: NodeId
    number: Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
    place: Place
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)]
    at: Position | None = None
    tour: Tour | None = None


class GeoBundle(GeoPacket, frozen=True, gc=False, kw_only=True, tag=3):
    """A greedy packet for several places whose ways are one so far; it splits where they part. Beyond [GPSR00].

    Its number is that of the packet for `place`; all that it splits into have it, and differ by their places.
    """

    others: Annotated[tuple[Place, ...], Meta(min_length=1, max_length=MAX_OTHERS)]
    """Besides `place`."""

    def packets(self) -> list[GeoPacket]:
        """One for each place, as they came; a place named twice is one."""
        places = dict.fromkeys((self.place, *self.others))
        return [
            GeoPacket(self.parcel, origin=self.origin, number=self.number, place=place, hops=self.hops, at=self.at)
            for place in places
        ]
