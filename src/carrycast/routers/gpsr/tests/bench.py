"""One GPSR router alone at a position, and short functions that make its inputs."""

import math

from carrycast.core.model import EventId, NodeId, Position, Velocity
from carrycast.core.protocol import Capability, Place
from carrycast.core.protocol.effects import Broadcast, Effect, Note, Send, SetTimer
from carrycast.core.wire import Message, Parcel, Traffic
from carrycast.routers.gpsr.messages import GeoBeacon, GeoPacket, PerimeterHeader
from carrycast.routers.gpsr.router import Gpsr
from carrycast.sim.testing import IsolatedHost, isolate_router

ME = 0
EVENT = EventId(9, 1)
NOWHERE = Position(math.nan, math.nan)


class PlacedHost(IsolatedHost):
    """A host with the position and velocity that a test sets."""

    def __init__(self, x_m: float = 0.0, y_m: float = 0.0) -> None:
        super().__init__()
        self.offers |= {Capability.POSITION, Capability.VELOCITY}
        self.here = Position(x_m, y_m)
        self.moves = Velocity(0.0, 0.0)

    def position(self, now: float) -> Position:
        return self.here

    def velocity(self, now: float) -> Velocity:
        return self.moves


def parcel() -> Parcel:
    return Parcel(b"x", Traffic.DATA, EVENT)


def packet(
    x_m: float,
    y_m: float,
    node: NodeId | None = None,
    *,
    origin: NodeId = 5,
    number: int = 1,
    hops: int = 1,
    at: Position | None = None,
    perimeter: PerimeterHeader | None = None,
    radius_m: float = 0.0,
) -> GeoPacket:
    place = Place(Position(x_m, y_m), radius_m, node)
    return GeoPacket(parcel(), origin=origin, number=number, place=place, hops=hops, at=at, perimeter=perimeter)


class Bench:
    """Node 0 at the origin of the plane."""

    def __init__(self, *, incarnation: int = 1, **settings: object) -> None:
        self.host = PlacedHost()
        self.host.incarnation = incarnation
        router, self.port, self.upcalls = isolate_router("gpsr", ME, self.host, 1, **settings)
        assert isinstance(router, Gpsr)
        self.router = router
        self.now = 0.0
        self.port.take()

    def hear(self, sender: NodeId, message: Message) -> list[Effect]:
        self.router.on_message(self.now, sender, message, "radio")
        return self.port.take()

    def neighbor(self, node: NodeId, x_m: float, y_m: float, velocity: Velocity | None = None) -> list[Effect]:
        return self.hear(node, GeoBeacon(Position(x_m, y_m), velocity))

    def route(self, target: NodeId | Place) -> list[Effect]:
        self.router.on_route(self.now, target, parcel())
        return self.port.take()

    def tick(self, after_s: float = 1.0) -> list[Message]:
        """Let the beacon timer expire; return the broadcast messages."""
        self.now += after_s
        self.router.on_timer(self.now, "beacon")
        effects = self.port.take()
        assert sum(isinstance(effect, SetTimer) for effect in effects) == 1
        return [effect.message for effect in effects if isinstance(effect, Broadcast)]


def sends(effects: list[Effect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def receivers(effects: list[Effect]) -> list[NodeId]:
    return [effect.target for effect in sends(effects)]


def drops(effects: list[Effect]) -> list[str]:
    return [effect.fact.reason for effect in effects if isinstance(effect, Note) and effect.fact.kind == "drop"]
