"""The message in a parcel is aged by the waiting time of the parcel."""

from random import Random
from typing import ClassVar

import pytest

from carrycast.core.model import Event, EventId, NodeId, Position
from carrycast.core.protocol import Place, Protocol, RecordingPort, Router, Settings, Stack, StackPlan, UsesRouter
from carrycast.core.protocol.effects import Note
from carrycast.core.protocol.port import Fact
from carrycast.core.wire import EventMessage, Layer, Message, Parcel, Traffic, classify
from carrycast.routers.aodv.messages import Packet
from carrycast.routers.gpsr.messages import GeoPacket
from carrycast.sim.testing import IsolatedHost

EVENT = Event(EventId(7, 1), {})


class Carried(EventMessage, frozen=True, tag=1):
    """An event."""


class Top(Protocol, UsesRouter):
    """Remembers what it is handed."""

    name = "top"
    messages = (Carried,)
    handed: ClassVar[list[tuple[str, Message]]] = []

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None:
        self.handed.append((f"from {origin}", message))

    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None:
        self.handed.append((f"not to {target}", message))


class Beneath(Router):
    """Gives everything back."""

    name = "beneath"

    def on_route(self, now: float, target: NodeId | Place, parcel: Parcel) -> None:
        self.up.report_unreachable(target, parcel)


@pytest.fixture
def ports() -> dict[Layer, RecordingPort]:
    return {layer: RecordingPort() for layer in Layer}


@pytest.fixture
def stack(ports: dict[Layer, RecordingPort]) -> Stack:
    Top.handed.clear()
    plan = StackPlan(Top, Settings(), Beneath, Settings())
    return Stack(
        plan, 3, ports.__getitem__, lambda layer: IsolatedHost(), lambda layer: Random(1), ("radio",), lambda *_: 0.0
    )


def parcel(stack: Stack, waited_s: float) -> Parcel:
    message = Carried(EVENT, 1, 5.0)
    return Parcel(stack.plan.codecs[Layer.DISSEMINATION].encode(message), message.traffic, EVENT.id, waited_s)


def test_what_waited_is_handed_up_and_back_with_what_remains(stack: Stack) -> None:
    stack.deliver_packet(7, parcel(stack, 0.0), 2)
    stack.deliver_packet(7, parcel(stack, 1.5), 2)
    stack.report_unreachable(9, parcel(stack, 2.0))
    stack.on_timer(0.0, Layer.ROUTING, "whatever comes next")
    assert Top.handed == [
        ("from 7", Carried(EVENT, 1, 5.0)),
        ("from 7", Carried(EVENT, 1, 3.5)),
        ("not to 9", Carried(EVENT, 1, 3.0)),
    ]


@pytest.mark.parametrize("waited_s", [5.0, 100.0])
def test_what_waited_longer_than_its_lease_is_dropped_by_name(
    waited_s: float, stack: Stack, ports: dict[Layer, RecordingPort]
) -> None:
    stack.deliver_packet(7, parcel(stack, waited_s), 2)
    stack.report_unreachable(9, parcel(stack, waited_s))
    stack.on_timer(0.0, Layer.ROUTING, "whatever comes next")
    assert Top.handed == []
    drops = [Note(Fact("drop", EVENT.id, peer, "lease_over")) for peer in (7, 3)]
    assert ports[Layer.DISSEMINATION].take() == drops


def test_a_packet_counts_as_what_it_carries() -> None:
    parcel = Parcel(b"x", Traffic.DATA, EventId(1, 2))
    packets = [
        Packet(parcel, origin=1, destination=2, hops=1),
        GeoPacket(parcel, origin=1, number=1, place=Place(Position(1.0, 2.0), 5.0, 6), hops=1),
    ]
    assert [classify(packet) for packet in packets] == [(Traffic.DATA, EventId(1, 2))] * 2
