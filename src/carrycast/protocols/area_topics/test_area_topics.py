"""Area topics: the area of an event, and its delivery."""

import math

import pytest

from carrycast.core.model import Event, EventId, Position, Subscription, SubscriptionId
from carrycast.core.protocol import Capability, Fact, Place
from carrycast.core.protocol.effects import Deliver, Effect, Note, SendRouted
from carrycast.errors import UserError
from carrycast.protocols.area_topics.protocol import AreaEvent
from carrycast.sim.testing import IsolatedHost, Net, isolate_protocol


class PlacedHost(IsolatedHost):
    def __init__(self, here: Position | None) -> None:
        super().__init__()
        self.offers |= {Capability.POSITION}
        self.here = here

    def position(self, now: float) -> Position | None:  # type: ignore[override]
        return self.here


HERE = Position(5.0, 6.0)


def publish(attributes: dict[str, object], here: Position | None = HERE) -> list[Effect]:
    protocol, port = isolate_protocol("area_topics", host=PlacedHost(here))
    protocol.on_publish(1.0, Event(EventId(0, 0), attributes, lease_s=30.0))  # type: ignore[arg-type]
    return port.take()


@pytest.mark.parametrize(
    ("attributes", "place"),
    [
        ({"x_m": 10, "y_m": 20.0, "radius_m": 300}, Place(Position(10.0, 20.0), 300.0)),
        ({"x_m": 10.0, "y_m": 20.0}, Place(Position(10.0, 20.0), 1000.0)),
        ({"radius_m": 50.0}, Place(Position(5.0, 6.0), 50.0)),
        ({}, Place(Position(5.0, 6.0), 1000.0)),
    ],
)
def test_an_event_names_its_area_or_takes_that_of_its_publisher(attributes: dict[str, object], place: Place) -> None:
    (sent,) = publish(attributes)
    assert isinstance(sent, SendRouted)
    assert sent.target == place
    assert isinstance(sent.message, AreaEvent)
    assert sent.message.remaining_s == 30.0


@pytest.mark.parametrize(
    "attributes", [{"x_m": 1.0}, {"x_m": "1", "y_m": 2.0}, {"x_m": True, "y_m": 1.0}, {"radius_m": -1.0}]
)
def test_an_event_without_a_valid_area_is_dropped_by_name(attributes: dict[str, object]) -> None:
    assert publish(attributes) == [Note(Fact("drop", event=EventId(0, 0), reason="no_area"))]
    assert publish({}, here=None) == [Note(Fact("drop", event=EventId(0, 0), reason="no_area"))]


def test_an_event_that_comes_twice_is_delivered_once() -> None:
    protocol, port = isolate_protocol("area_topics", host=PlacedHost(None))
    protocol.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "true"))
    event = Event(EventId(3, 0), {}, lease_s=math.inf)
    for _ in range(2):
        protocol.on_packet(1.0, 3, AreaEvent(event, 0, 60.0), 4)  # type: ignore[attr-defined]
    assert port.take() == [
        Deliver(SubscriptionId(0, 0), event, 4),
        Note(Fact("drop", event=event.id, peer=3, reason="repeated")),
    ]


def test_it_is_refused_over_a_router_that_reaches_single_nodes() -> None:
    with pytest.raises(UserError, match="area_topics needs routes to areas"):
        Net(2, "area_topics", {}, {"router": {"name": "gpsr"}}, 1, [(0, 0), (1, 0)])
