"""Packets that wait for a route, oldest first [RFC 6.3]."""

from carrycast.core.model import NodeId
from carrycast.routers.aodv.station import AodvPacketInTransit


class Waiting:
    """A bounded queue over all destinations. The bound is small, so looking through it is cheap."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._packets: list[AodvPacketInTransit] = []

    def __len__(self) -> int:
        return len(self._packets)

    def add(self, carried: AodvPacketInTransit) -> AodvPacketInTransit | None:
        """One more; the oldest, if it had to make room."""
        self._packets.append(carried)
        return self._packets.pop(0) if len(self._packets) > self._most else None

    def age_by(self, now: float) -> list[AodvPacketInTransit]:
        """Those that have waited too long, taken out."""
        over = [carried for carried in self._packets if carried.until <= now]
        if over:
            self._packets = [carried for carried in self._packets if carried.until > now]
        return over

    def take(self, target: NodeId) -> list[AodvPacketInTransit]:
        """Those for a destination, taken out."""
        found = [carried for carried in self._packets if carried.packet.target == target]
        if found:
            self._packets = [carried for carried in self._packets if carried.packet.target != target]
        return found

    def targets(self) -> list[NodeId]:
        """Whom packets wait for, each once, the oldest first."""
        return list(dict.fromkeys(carried.packet.target for carried in self._packets))
