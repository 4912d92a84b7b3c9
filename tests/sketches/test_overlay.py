"""002: the overlay of brokers."""

from random import Random

from driftcast.protocol import RecordingPort
from driftcast.protocol.effects import (
    Broadcast,
    Route,
    SetTimer,
)

from . import overlay, relocation
from .fake_host import FakeHost
from .rounds import Round

BROKERS = {"broker": (5, 6)}


def test_a_broker_searches_its_ring_and_tells_its_overlay_neighbors() -> None:
    port = RecordingPort()
    host = FakeHost(roles=("broker",), nodes_by_role=BROKERS)
    node = overlay.Overlay(5, overlay.OverlaySettings(), port, host, Random(0))
    node.on_timer(20.0, "update")
    assert port.take() == [
        Broadcast(overlay.RingQuery(5, Round(1, 1), 3, 1)),
        SetTimer("ring", 0.5),
        SetTimer("update", 20.0),
    ]
    node.on_packet(20.1, 6, overlay.RingAnswer(Round(1, 1), 2, 0.3), 2)
    node.on_timer(20.5, "ring")
    assert port.take() == [Route(6, overlay.Topology((overlay.Item(5, Round(1, 1), ((6, 2),)),)))]


def test_a_client_reports_a_nearer_broker_to_its_home_broker() -> None:
    port = RecordingPort()
    host = FakeHost(roles=("broker",), nodes_by_role=BROKERS)
    host.busy = 0.25
    settings = overlay.OverlaySettings()
    client = overlay.Overlay(1, settings, port, FakeHost(nodes_by_role=BROKERS), Random(0))
    other_port = RecordingPort()
    other = overlay.Overlay(6, settings, other_port, host, Random(0))
    client.on_timer(20.0, "update")
    [query] = port.take_messages()
    other.on_message(20.0, 1, query, "radio")
    answer, onward = other_port.take()
    assert answer == Route(1, overlay.RingAnswer(Round(1, 1), 1, 0.25))
    assert onward == Broadcast(overlay.RingQuery(1, Round(1, 1), 2, 2))
    client.on_packet(20.1, 6, overlay.RingAnswer(Round(1, 1), 1, 0.25), 1)
    client.on_timer(20.5, "ring")
    assert port.take() == [Route(5, relocation.Nearest(6))]
