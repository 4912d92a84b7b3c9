"""The messages of GPSR: beacons, and packets with the header of [GPSR00] Table 1."""

from typing import Annotated, NamedTuple

from msgspec import Meta

from carrycast.core.model import NodeId, Position, Velocity
from carrycast.core.protocol import Place
from carrycast.core.wire import Message, ParcelMessage

MAX_HOPS = 65535
MAX_NUMBER = (1 << 63) - 1
MAX_OTHERS = 63
"""Further places of one packet. A node that has more sends several packets."""


class GeoBeacon(Message, frozen=True, gc=False, tag=1):
    """A beacon: the position of the sender, and its velocity if neighbors use dead reckoning."""

    position: Position
    velocity: Velocity | None = None


class PerimeterHeader(NamedTuple):
    """The fields of a packet in perimeter mode [GPSR00 Table 1]."""

    entry_node: NodeId
    """The node at which the packet entered perimeter mode."""
    lp: Position
    """Lp: the position at which the packet entered perimeter mode."""
    lf: tuple[Annotated[float, Meta(ge=0, le=1)], Annotated[float, Meta(ge=-1e18, le=1e18)]]
    """Lf: the point of the line from Lp to the destination at which the packet entered the current face. It is a
    fraction of the line, and an order among edges that meet in the same point."""
    e0: tuple[NodeId, NodeId]
    """e0: the first edge traversed on the current face."""


class GeoPacket(ParcelMessage, frozen=True, gc=False, kw_only=True, tag=2):
    """A parcel of the layer above on its way, in greedy mode (`perimeter` is None) or in perimeter mode.

    `number` counts the packets of the origin, over all its starts. On arrival `hops` is the number of transmissions so
    far. `at` is the position of the last sender.
    """

    origin: NodeId
    number: Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
    place: Place
    hops: Annotated[int, Meta(ge=0, le=MAX_HOPS)]
    at: Position | None = None
    perimeter: PerimeterHeader | None = None


class GeoBundle(GeoPacket, frozen=True, gc=False, kw_only=True, tag=3):
    """A greedy packet for several places with the same next hop. It splits where their paths part. Beyond [GPSR00].

    Its number is that of the packet for `place`. All packets that it splits into have this number and differ by their
    places.
    """

    others: Annotated[tuple[Place, ...], Meta(min_length=1, max_length=MAX_OTHERS)]
    """The places besides `place`."""

    def split(self) -> list[GeoPacket]:
        """One packet for each place, in order and without repetitions."""
        places = dict.fromkeys((self.place, *self.others))
        return [
            GeoPacket(self.parcel, origin=self.origin, number=self.number, place=place, hops=self.hops, at=self.at)
            for place in places
        ]
