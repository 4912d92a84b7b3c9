"""The queue of `ns2`, which puts first what routers say of their own accord."""

import pytest

from carrycast.core.wire import Layer, Message, Parcel, ParcelMessage, Traffic
from carrycast.sim.radio.dot11 import CsmaRadio
from carrycast.sim.radio.medium import Frame
from tests.validation.cell import Blank, Cell, close_together


class Packet(ParcelMessage, frozen=True, tag=2):
    """What a router carries for others."""


PACKET = Packet(Parcel(b"", Traffic.DATA))


def handed(radio: CsmaRadio, *said: tuple[str, Layer, Message]) -> tuple[Cell, list[str]]:
    """The order in which node 0's broadcasts were on the air, handed over all at once, by their names."""
    cell, names = Cell(radio, close_together(2)), {}
    for token, (name, layer, message) in enumerate(said):
        frame = Frame(0, None, layer, message, bytes(100), token, 0)
        names[id(frame)] = name
        cell.medium.transmit(frame)
    cell.run(1)
    return cell, [names[id(frame)] for _, frame, _ in cell.heard]


SAID = (
    ("first", Layer.DISSEMINATION, Blank()),
    ("event", Layer.DISSEMINATION, Blank()),
    ("packet", Layer.ROUTING, PACKET),
    ("beacon", Layer.DISCOVERY, Blank()),
    ("request", Layer.ROUTING, Blank()),
    ("reply", Layer.ROUTING, Blank()),
)


@pytest.mark.parametrize(
    ("settings", "order"),
    [
        # [ns-2.35: queue/priqueue.cc, recvHighPriority] At the head of the queue: of several the last comes first.
        ({"preset": "ns2"}, ["first", "reply", "request", "event", "packet", "beacon"]),
        ({"preset": "ns2", "routing_first": False}, [name for name, _, _ in SAID]),
        ({}, [name for name, _, _ in SAID]),
        ({"routing_first": True}, ["first", "reply", "request", "event", "packet", "beacon"]),
    ],
)
def test_what_a_router_says_goes_ahead_of_what_waits_but_not_of_what_is_sent(
    settings: dict[str, object], order: list[str]
) -> None:
    assert handed(CsmaRadio(**settings), *SAID)[1] == order  # type: ignore[arg-type]


def test_alone_it_is_sent_like_anything_else() -> None:
    assert handed(CsmaRadio(preset="ns2"), SAID[4])[1] == ["request"]


def test_in_a_full_queue_it_takes_the_place_of_the_last() -> None:
    cell, order = handed(CsmaRadio(preset="ns2", queue=2), *SAID[:3], SAID[4])
    assert order == ["first", "request", "event"]
    assert [(node, reason) for _, node, reason in cell.losses] == [(0, "queue_full")]
    assert [(token, failure) for _, token, failure in cell.outcomes] == [(2, "queue_full")], "told, and not at once"
    # Of those that go ahead, too, the one that waited longest is last.
    assert handed(CsmaRadio(preset="ns2", queue=1), SAID[0], SAID[4], SAID[5])[1] == ["first", "reply"]
