"""Packets at a node: packets in transit, and the recognition of packets that come again."""

from typing import NamedTuple

from carrycast.core.model import NodeId
from carrycast.core.protocol import Place
from carrycast.core.wire import Parcel
from carrycast.routers.gpsr.messages import GeoPacket


class GeoPacketInTransit(NamedTuple):
    """A packet on its way through this node, as it was received."""

    packet: GeoPacket
    target: NodeId | Place
    """The target as the layer above of this node gave it."""
    previous_hop: NodeId | None
    """The neighbor that sent the packet; None if this node is its origin."""
    received_at: float
    """When this node got the packet. The parcel does not yet include the time since then."""

    def aged_parcel(self, now: float) -> Parcel:
        """The parcel, with the time that it has spent at this node."""
        parcel = self.packet.parcel
        return parcel.age_by(now - self.received_at) if now > self.received_at else parcel


class SeenPackets:
    """The packets that came by recently, to recognize duplicates and loops.

    The packets of two periods are kept, and the older period is forgotten as a whole. A period ends after `period_s`,
    or earlier with `max_packets` packets; so there are never more than twice as many.
    """

    def __init__(self, period_s: float, max_packets: int, allow_loops: bool) -> None:
        self._period_s = period_s
        self._max_packets = max_packets
        self._allow_loops = allow_loops
        self._recent: set[object] = set()
        self._older: set[object] = set()
        self._period_end = float("-inf")

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def add_arrival(self, now: float, sender: NodeId, packet: GeoPacket) -> bool:
        """Remember the arrival of a packet. False if it came from the same neighbor on the same face before.

        A packet may pass a node many times. But a tour of a face ends before it takes an edge twice, and greedy packets
        only come nearer. So a packet that comes over the same edge again is a duplicate, or it is in a loop that
        neighbors with different neighbor tables have caused.
        """
        hops = packet.hops if self._allow_loops else 0
        return self._add(now, (packet.origin, packet.number, packet.place, sender, packet.perimeter, hops))

    def add_delivery(self, now: float, packet: GeoPacket) -> bool:
        """Remember the delivery of a packet to the layer above. False if it was delivered before, by whatever path."""
        return self._add(now, (packet.origin, packet.number, packet.place))

    def _add(self, now: float, key: object) -> bool:
        recent = self._recent
        if now >= self._period_end or len(recent) >= self._max_packets:
            # After more than a period without packets, both are forgotten.
            self._older = recent if now < self._period_end + self._period_s else set()
            self._recent = recent = set()
            self._period_end = now + self._period_s
        if key in recent or key in self._older:
            return False
        recent.add(key)
        return True
