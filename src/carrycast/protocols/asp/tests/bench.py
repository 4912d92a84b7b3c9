"""One ASP broker with neighbors whose messages the test sends, and functions that make messages."""

from random import Random
from typing import TypeAlias

from carrycast.core.model import Event, EventId, Failure, NodeId, Processor, Scalar, SubscriptionId
from carrycast.core.protocol import Host, Link, RecordingPort
from carrycast.core.protocol.effects import Deliver, Note, Process, Send, SetTimer
from carrycast.core.wire import Message
from carrycast.protocols.asp.messages import (
    Announcement,
    PathKind,
    PathMessage,
    Publication,
)
from carrycast.protocols.asp.protocol import Asp
from carrycast.protocols.asp.rules import announcement_id, stream_id
from carrycast.protocols.asp.settings import AspSettings
from carrycast.sim.testing import IsolatedHost

ME = 5
SINK = SubscriptionId(ME, 0)
KELVIN = Processor("kelvin", "unit = 'C'")


def event(source: NodeId, number: int, **attributes: Scalar) -> Event:
    return Event(EventId(source, number), {"topic": "t", **attributes})


CELSIUS = event(0, 1, unit="C", value=20.5)
C = announcement_id(CELSIUS, (0,), 3)


BrokerEffect: TypeAlias = tuple[NodeId, Message] | Deliver | Process | str


def take_announcements(effects: list[BrokerEffect]) -> dict[NodeId, Announcement]:
    """Return the full announcements among some effects, by the neighbor they went to."""
    pairs = [effect for effect in effects if isinstance(effect, tuple)]
    return {target: message for target, message in pairs if isinstance(message, Announcement)}


def list_kinds(effects: list[BrokerEffect]) -> list[type[Message]]:
    """Return the types of the messages among some effects."""
    return [type(effect[1]) for effect in effects if isinstance(effect, tuple)]


class Broker:
    """One broker with some neighbors, each at a link cost of 10 ms, and its effects."""

    def __init__(self, *neighbors: NodeId, node: NodeId = ME, host: Host | None = None, **settings: object) -> None:
        self.port = RecordingPort()
        self.asp = Asp(node, AspSettings(**settings), self.port, host or IsolatedHost(), Random(1))  # type: ignore[arg-type] # by name
        for neighbor in neighbors:
            self.asp.on_link_up(0.0, Link(neighbor, "radio", 0.01))
        self.port.take()

    def hear(self, sender: NodeId, message: Message, now: float = 1.0) -> list[BrokerEffect]:
        self.asp.on_message(now, sender, message, "radio")
        return self.effects()

    def effects(self) -> list[BrokerEffect]:
        """Return sends as (target, message) and drops as their reasons, without timers and stored copies. All sends
        arrive."""
        found: list[BrokerEffect] = []
        for effect in self.port.take():
            if isinstance(effect, Send):
                if effect.token is not None:
                    self.asp.on_sent(0.0, effect.token, None)
                found.append((effect.target, effect.message))
            elif isinstance(effect, Note) and effect.fact.kind == "drop":
                found.append(effect.fact.reason)
            elif isinstance(effect, Deliver | Process):
                found.append(effect)
        return found

    def sends(self) -> list[Send]:
        """Return the sends since the last call, without an outcome; other effects are discarded."""
        return [effect for effect in self.port.take() if isinstance(effect, Send)]

    def timers(self, kind: str) -> list[float]:
        """Return the delays of the timers of a kind since the last call; other effects are discarded."""
        armed = [effect for effect in self.port.take() if isinstance(effect, SetTimer)]
        return [effect.delay_s for effect in armed if isinstance(effect.key, tuple) and effect.key[0] == kind]

    def fail(self, send: Send, failure: Failure | None = Failure.UNREACHABLE, now: float = 2.0) -> None:
        """Report that a send has failed, or with None that it has arrived."""
        assert send.token is not None
        self.asp.on_sent(now, send.token, failure)

    def take_announcements(self) -> dict[NodeId, Announcement]:
        """Return the full announcements since the last call, by the neighbor they went to; other effects are
        discarded."""
        return take_announcements(self.effects())

    @property
    def subscriber(self) -> int:
        return self.asp.broker.subscriber


def announcement(metric_s: float = 0.02, sequence: int = 1, of: Event = CELSIUS, **fields: float) -> Announcement:
    values: dict[str, object] = {"id": C, "stream": stream_id(0, ["t"]), "validity_s": 10.0, "counter": 1, **fields}
    return Announcement(of, 1, 60.0, metric_s=metric_s, sequence=sequence, **values)  # type: ignore[arg-type] # by name


def publication(counter: int, of: Event, id: int = C, hops: int = 1) -> Publication:
    return Publication(of, hops, 60.0, id=id, counter=counter)


def subscribe(subscriber: int, metric_s: float, kind: PathKind = PathKind.SUBSCRIBE, id: int = C) -> PathMessage:
    return PathMessage(id, subscriber, metric_s, kind)


def make_station() -> tuple[Broker, Event, int]:
    """Make a broker that has converted the announcement to Kelvin; returns the result and its id too."""
    broker = Broker(1, 2, 3)
    broker.asp.on_processor(0.0, KELVIN)
    assert Process("kelvin", b"", (CELSIUS,), 1) in broker.hear(1, announcement(0.05))
    kelvin = Event(EventId(ME, 1), {"topic": "t", "unit": "K", "value": 293.65}, derived_from=(CELSIUS.id,))
    broker.asp.on_processed(1.1, 1, b"", [kelvin], 0.2, "")
    return broker, kelvin, announcement_id(kelvin, (C,), 3)
