"""One node alone, and the words to make its inputs short."""

from carrycast.core.model import (
    AccessPolicy,
    Area,
    Event,
    EventId,
    NodeId,
    Position,
    Scalar,
    Subscription,
    SubscriptionId,
)
from carrycast.core.model.roads import Road, RoadMap
from carrycast.core.protocol import Place
from carrycast.core.protocol.effects import Broadcast, Effect, Note, SendRouted
from carrycast.core.wire import Message
from carrycast.protocols.topic_holder.messages import SubscriptionEntry
from carrycast.protocols.topic_holder.protocol import TopicHolder
from carrycast.sim.testing import IsolatedHost, isolate_protocol

ME = 1
HERE = Position(10.0, 20.0)
JAM = "s:jam"


class Ground(IsolatedHost):
    """A node among nodes 0 to 9, on a square of a kilometer with one road, at a place that a test sets."""

    def __init__(self, here: Position | None = HERE) -> None:
        super().__init__()
        self.here = here
        self.nodes: tuple[NodeId, ...] = tuple(range(10))

    def position(self, now: float) -> Position:
        return self.here  # type: ignore[return-value]

    def directory(self, role: str) -> tuple[NodeId, ...]:
        return self.nodes if role == "all" else ()

    @property
    def area(self) -> Area:
        return Area(1000.0, 1000.0)

    def road_map(self) -> RoadMap:
        places = (Position(0.0, 500.0), Position(1000.0, 500.0))
        road = Road(id="a", nodes=("w", "e"), places=places, lanes=1)
        return RoadMap(name="one", width_m=1000.0, height_m=1000.0, lane_m=4.0, safety_m=50.0, roads=(road,))


def jam(source: NodeId = 8, access: str | None = None, sequence: int = 1, **attributes: Scalar) -> Event:
    policy = None if access is None else AccessPolicy(access)
    return Event(EventId(source, sequence), {"topic": "jam", **attributes}, lease_s=100.0, access=policy)


def subscription(node: NodeId, filter: str = "topic = 'jam'", number: int = 1, **attributes: Scalar) -> Subscription:
    return Subscription(SubscriptionId(node, number), filter, attributes=attributes)


def entry(wanted: Subscription, position: Position | None = None, count: int = 1) -> SubscriptionEntry:
    return SubscriptionEntry(wanted, position, (0, count))


class Bench:
    """Node 1."""

    def __init__(self, here: Position | None = HERE, **settings: object) -> None:
        self.host = Ground(here)
        protocol, self.port = isolate_protocol("topic_holder", ME, self.host, 1, **settings)
        assert isinstance(protocol, TopicHolder)
        self.node = protocol

    def get(self, now: float, origin: NodeId, message: Message, hops: int = 2) -> list[Effect]:
        """A packet comes; what follows."""
        self.node.on_packet(now, origin, message, hops)
        return self.port.take()

    def hear(self, now: float, sender: NodeId, message: Message) -> list[Effect]:
        self.node.on_message(now, sender, message, "radio")
        return self.port.take()

    def tick(self, now: float, key: str) -> list[Effect]:
        self.node.on_timer(now, key)
        return self.port.take()


def routed(effects: list[Effect]) -> list[tuple[NodeId | Place, Message]]:
    return [(effect.target, effect.message) for effect in effects if isinstance(effect, SendRouted)]


def broadcast(effects: list[Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Broadcast)]


def drops(effects: list[Effect]) -> list[str]:
    return [effect.fact.reason for effect in effects if isinstance(effect, Note) and effect.fact.kind == "drop"]
