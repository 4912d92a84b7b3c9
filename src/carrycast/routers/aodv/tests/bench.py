"""One AODV router alone, and short functions that make its inputs."""

from carrycast.core.model import EventId, NodeId
from carrycast.core.protocol import Place
from carrycast.core.protocol.effects import Broadcast, Effect, Note, Send
from carrycast.core.wire import Message, Parcel, Traffic
from carrycast.routers.aodv.messages import Packet, RouteReply, RouteRequest
from carrycast.routers.aodv.router import Aodv
from carrycast.sim.testing import IsolatedHost, isolate_router

ME = 0
EVENT = EventId(9, 1)


def parcel(body: bytes = b"x") -> Parcel:
    return Parcel(body, Traffic.DATA, EVENT)


def packet(origin: NodeId, destination: NodeId, hops: int = 1) -> Packet:
    return Packet(parcel(), origin=origin, destination=destination, hops=hops)


def request(
    originator: NodeId,
    destination: NodeId,
    *,
    sequence: int = 1,
    rreq_id: int = 1,
    asked: int = 0,
    hops: int = 0,
    ttl: int = 5,
    gratuitous: bool = False,
    destination_only: bool = False,
) -> RouteRequest:
    return RouteRequest(originator, sequence, rreq_id, destination, asked, hops, ttl, gratuitous, destination_only)


def reply(
    originator: NodeId, destination: NodeId, sequence: int = 1, hops: int = 0, lifetime_ms: int = 6000
) -> RouteReply:
    return RouteReply(originator, destination, sequence, hops, lifetime_ms)


class Bench:
    """Node 0, without jitter unless a test sets it."""

    def __init__(self, incarnation: int = 0, **settings: object) -> None:
        host = IsolatedHost()
        host.incarnation = incarnation
        router, self.port, self.upcalls = isolate_router("aodv", ME, host, 1, **{"forward_jitter_s": 0.0, **settings})
        assert isinstance(router, Aodv)
        self.router = router
        self.now = 0.0
        self.port.take()

    def hear(self, sender: NodeId, message: Message) -> list[Effect]:
        """Receive a message; return the effects."""
        self.router.on_message(self.now, sender, message, "radio")
        return self.port.take()

    def route(self, target: NodeId | Place, body: bytes = b"x") -> list[Effect]:
        self.router.on_route(self.now, target, parcel(body))
        return self.port.take()

    def add_route(self, target: NodeId, via: NodeId, hops: int, sequence: int = 10, lifetime_ms: int = 6000) -> None:
        """Add a route by a RREP."""
        self.hear(via, reply(ME, target, sequence, hops - 1, lifetime_ms))


def sent_messages(effects: list[Effect]) -> list[tuple[NodeId | None, Message]]:
    """The messages that were sent, with their receivers; None for a broadcast."""
    found: list[tuple[NodeId | None, Message]] = []
    for effect in effects:
        if isinstance(effect, Send):
            found.append((effect.target, effect.message))
        elif isinstance(effect, Broadcast):
            found.append((None, effect.message))
    return found


def drops(effects: list[Effect]) -> list[str]:
    return [effect.fact.reason for effect in effects if isinstance(effect, Note) and effect.fact.kind == "drop"]
