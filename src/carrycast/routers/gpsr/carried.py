"""What a node knows of a packet beside what is written in it."""

from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.core.protocol import Place
from carrycast.core.wire import Parcel
from carrycast.routers.gpsr.messages import GeoPacket


class GeoPacketInTransit(NamedTuple):
    """A packet at this node, as it came."""

    packet: GeoPacket
    asked: NodeId | Place
    """The target in the words of the layer above, as far as this node knows them."""
    sender: NodeId | None
    """The neighbor it came from; None for an own one."""
    since: float
    """When this node got it. How long it has been here is not yet on its parcel."""

    def parcel(self, now: float) -> Parcel:
        """What it carries, as old as it is by now."""
        parcel = self.packet.parcel
        return parcel.age_by(now - self.since) if now > self.since else parcel
