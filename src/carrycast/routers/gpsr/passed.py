"""Which packets have come by, so that a copy of one, or one that goes in a circle, is known as such."""

from carrycast.core.model import NodeId
from carrycast.routers.gpsr.messages import GeoPacket


class PassedPackets:
    """The packets of the last while. Those of two periods are kept, the older of which is forgotten at once.

    A period ends after `kept_s`, or sooner with `most` packets; so there are never more than twice as many.
    """

    def __init__(self, kept_s: float, most: int, loops_pass: bool) -> None:
        self._kept_s = kept_s
        self._most = most
        self._loops_pass = loops_pass
        self._recent: set[object] = set()
        self._older: set[object] = set()
        self._turn = float("-inf")

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def comes_first(self, now: float, sender: NodeId, packet: GeoPacket) -> bool:
        """Whether a packet comes this way for the first time, on the same tour of the same face.

        A tour is over before it takes an edge twice, and greedy packets only come nearer; so one that comes again is a
        copy, or its way is a circle that neighbors with different views have made. A packet may pass a node many times.
        """
        hops = packet.hops if self._loops_pass else 0
        return self._add(now, (packet.origin, packet.number, packet.place, sender, packet.tour, hops))

    def ends_first(self, now: float, packet: GeoPacket) -> bool:
        """Whether a packet is handed to the layer above here for the first time, whichever ways its copies came."""
        return self._add(now, (packet.origin, packet.number, packet.place))

    def _add(self, now: float, key: object) -> bool:
        recent = self._recent
        if now >= self._turn or len(recent) >= self._most:
            # Both, if there was nothing for so long.
            self._older = recent if now < self._turn + self._kept_s else set()
            self._recent = recent = set()
            self._turn = now + self._kept_s
        if key in recent or key in self._older:
            return False
        recent.add(key)
        return True
