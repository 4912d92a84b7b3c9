"""What the parts of the router share: who the node is, its sequence number, its routes, its sends under way."""

from collections.abc import Sequence
from typing import NamedTuple

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Fact, Place, Port, Token
from carrycast.core.wire import Message, Parcel
from carrycast.routers.aodv.messages import MAX_NUMBER, Packet
from carrycast.routers.aodv.rules import MAX_JUMP, first_number, is_plausible
from carrycast.routers.aodv.settings import AodvSettings
from carrycast.routers.aodv.table import RouteTable


class AodvPacketInTransit(NamedTuple):
    """A packet on its way through this node."""

    packet: Packet
    asked: NodeId | Place
    """The target in the words of the layer above, for packets of this node's own."""
    sender: NodeId | None
    """The neighbor it came from; None for an own one."""
    since: float
    """When this node got it. How long it has been here is not yet on its parcel."""
    until: float
    """It waits for a route no longer than that, all its waits together."""

    def parcel(self, now: float) -> Parcel:
        """What it carries, as old as it is by now."""
        parcel = self.packet.parcel
        return parcel.age_by(now - self.since) if now > self.since else parcel


class Station:
    """One node."""

    def __init__(self, node: NodeId, settings: AodvSettings, port: Port, incarnation: int) -> None:
        self.node = node
        self.settings = settings
        self.port = port
        self.table = RouteTable(node, settings.delete_period_s, settings.max_routes)
        self.sequence = first_number(incarnation)
        self.last_broadcast_s = 0.0
        self._tokens = 0
        self._under_way: dict[Token, tuple[NodeId, Sequence[AodvPacketInTransit]]] = {}

    # [RFC 6.1]
    def raise_sequence(self, least: int = 0) -> int:
        """The own number, one higher, or as high as somebody already believes it to be."""
        self.sequence = min(max(self.sequence + 1, least), MAX_NUMBER)
        return self.sequence

    def is_forged(self, now: float, target: NodeId, sequence: int) -> bool:
        """Whether a sequence number is one that its node cannot have reached."""
        if target == self.node:
            # Of itself a node knows: others add to its number only for breaks that it has not heard of.
            return sequence > self.sequence + MAX_JUMP
        route = self.table.known(now, target)
        return route is not None and route.sequence > 0 and not is_plausible(sequence, route.sequence)

    def send(self, neighbor: NodeId, message: Message, carried: Sequence[AodvPacketInTransit] = ()) -> None:
        """To a neighbor, with an outcome."""
        self._tokens += 1
        self._under_way[self._tokens] = (neighbor, carried)
        self.port.send(neighbor, message, token=self._tokens)

    def sent(self, token: Token) -> tuple[NodeId, Sequence[AodvPacketInTransit]]:
        """What an outcome is about: to whom, and the packets in it, none if it was a control message."""
        return self._under_way.pop(token)

    def broadcast(self, now: float, message: Message) -> None:
        """To all in reach; it stands for a HELLO."""
        self.last_broadcast_s = now
        self.port.broadcast(message)

    def drop(self, reason: str, peer: NodeId | None = None, event: EventId | None = None) -> None:
        """Say why something goes no further."""
        self.port.note(Fact("drop", event=event, peer=peer, reason=reason))
