"""A small protocol above a router: it brings each event where the event says, and writes down what became of it."""

from random import Random
from typing import NamedTuple

from carrycast.core.model import Event, NodeId, Position
from carrycast.core.protocol import Host, Place, Port, Protocol, Settings, UsesRouter
from carrycast.core.wire import EventMessage, Message


class Letter(EventMessage, frozen=True, gc=False, tag=1):
    """An event for one node."""


class Arrival(NamedTuple):
    """One letter that came."""

    origin: NodeId
    number: int
    hops: int


class Courier(Protocol, UsesRouter):
    """`{"to": 5}` is for a node; `{"x": 1.0, "y": 2.0, "radius": 0.0}` for a place, with `to` for a node there."""

    name = "courier"
    summary = "brings each event to the one node or place that it names"
    messages = (Letter,)

    def __init__(self, node: NodeId, settings: Settings, port: Port, host: Host, rng: Random) -> None:
        super().__init__(node, settings, port, host, rng)
        self.arrived: list[Arrival] = []
        self.refused: list[int] = []

    def on_publish(self, now: float, event: Event) -> None:
        said = event.attributes
        target: NodeId | Place
        if "x" in said:
            at = Position(float(said["x"]), float(said["y"]))
            node = int(said["to"]) if "to" in said else None
            target = Place(at, float(said.get("radius", 0.0)), node)
        else:
            target = int(said["to"])
        self.port.route(target, Letter(event, 0, event.lease_s))

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        assert isinstance(message, Letter)
        self.arrived.append(Arrival(origin, message.event.id.sequence, hops))

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        assert isinstance(message, Letter)
        self.refused.append(message.event.id.sequence)
