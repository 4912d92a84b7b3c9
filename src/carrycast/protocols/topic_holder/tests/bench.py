"""One node, and functions that make its inputs and select its effects."""

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


class BenchHost(IsolatedHost):
    """A host among nodes 0 to 9, on a square kilometer with one road, at a position that a test sets."""

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


def make_jam(source: NodeId = 8, access: str | None = None, sequence: int = 1, **attributes: Scalar) -> Event:
    policy = None if access is None else AccessPolicy(access)
    return Event(EventId(source, sequence), {"topic": "jam", **attributes}, lease_s=100.0, access=policy)


def make_subscription(
    node: NodeId, filter: str = "topic = 'jam'", number: int = 1, **attributes: Scalar
) -> Subscription:
    return Subscription(SubscriptionId(node, number), filter, attributes=attributes)


def make_entry(subscription: Subscription, position: Position | None = None, count: int = 1) -> SubscriptionEntry:
    return SubscriptionEntry(subscription, position, (0, count))


class Bench:
    """Node 1, whose inputs come from the test."""

    def __init__(self, here: Position | None = HERE, **settings: object) -> None:
        self.host = BenchHost(here)
        protocol, self.port = isolate_protocol("topic_holder", ME, self.host, 1, **settings)
        assert isinstance(protocol, TopicHolder)
        self.node = protocol

    def receive(self, now: float, origin: NodeId, message: Message, hops: int = 2) -> list[Effect]:
        """Pass a routed packet to the node, and return its effects."""
        self.node.on_packet(now, origin, message, hops)
        return self.port.take()

    def hear(self, now: float, sender: NodeId, message: Message) -> list[Effect]:
        self.node.on_message(now, sender, message, "radio")
        return self.port.take()

    def tick(self, now: float, key: str) -> list[Effect]:
        self.node.on_timer(now, key)
        return self.port.take()


def list_routed(effects: list[Effect]) -> list[tuple[NodeId | Place, Message]]:
    return [(effect.target, effect.message) for effect in effects if isinstance(effect, SendRouted)]


def list_broadcasts(effects: list[Effect]) -> list[Message]:
    return [effect.message for effect in effects if isinstance(effect, Broadcast)]


def list_drops(effects: list[Effect]) -> list[str]:
    return [effect.fact.reason for effect in effects if isinstance(effect, Note) and effect.fact.kind == "drop"]
