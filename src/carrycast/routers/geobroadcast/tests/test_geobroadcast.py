"""Geographic broadcast: its formulas, its handlers, and areas of small networks."""

import math
from random import Random

import networkx as nx
import pytest

from carrycast.core.model import EventId, Position
from carrycast.core.protocol import Capability, Place
from carrycast.core.protocol.effects import Broadcast, CancelTimer, Effect, Note, SetTimer
from carrycast.core.wire import Parcel, Traffic
from carrycast.routers.geobroadcast.messages import GeoBroadcastPacket
from carrycast.routers.geobroadcast.rules import ForwardingAlgorithm, progress_m, select_forwarding, timeout_s
from carrycast.routers.geobroadcast.settings import GeoBroadcastSettings
from carrycast.sim.testing import IsolatedHost, Net, isolate_router

CENTER = Position(1000.0, 0.0)


class PlacedHost(IsolatedHost):
    def __init__(self, x_m: float, y_m: float = 0.0) -> None:
        super().__init__()
        self.offers |= {Capability.POSITION}
        self.here: Position | None = Position(x_m, y_m)

    def position(self, now: float) -> Position | None:  # type: ignore[override]
        return self.here


def packet(at_m: float, number: int = 1, hops_left: int = 9, radius_m: float = 100.0) -> GeoBroadcastPacket:
    return GeoBroadcastPacket(
        Parcel(b"x", Traffic.DATA, EventId(9, 1)),
        origin=7,
        number=number,
        center=CENTER,
        radius_m=radius_m,
        hops_left=hops_left,
        hops=10 - hops_left,
        at=Position(at_m, 0.0),
    )


class Bench:
    def __init__(self, x_m: float, **settings: object) -> None:
        self.host = PlacedHost(x_m)
        self.router, self.port, self.upcalls = isolate_router("geobroadcast", 0, self.host, 1, **settings)
        self.port.take()

    def hear(self, message: GeoBroadcastPacket, now: float = 1.0, sender: int = 3) -> list[Effect]:
        self.router.on_message(now, sender, message, "radio")
        return self.port.take()


def waits(effects: list[Effect]) -> list[float]:
    return [effect.delay_s for effect in effects if isinstance(effect, SetTimer)]


def drops(effects: list[Effect]) -> list[str]:
    return [effect.fact.reason for effect in effects if isinstance(effect, Note)]


@pytest.mark.parametrize(("distance", "expected"), [(0.0, 0.1), (500.0, 0.0505), (1000.0, 0.001), (1500.0, 0.001)])
def test_the_timeout_falls_linearly_with_the_distance(distance: float, expected: float) -> None:
    """[GN, annexes E.3, F.3, H] TO_CBF_MIN 1 ms, TO_CBF_MAX 100 ms, DIST_MAX 1000 m."""
    assert timeout_s(GeoBroadcastSettings(), distance) == pytest.approx(expected)


def test_progress_is_the_difference_of_the_distances_to_the_center() -> None:
    assert progress_m(Position(200.0, 0.0), Position(0.0, 0.0), CENTER) == 200.0
    assert progress_m(Position(-50.0, 0.0), Position(0.0, 0.0), CENTER) == -50.0


@pytest.mark.parametrize(
    ("here_m", "sender_m", "expected"),
    [
        (950.0, 0.0, ForwardingAlgorithm.AREA),
        (950.0, 1050.0, ForwardingAlgorithm.AREA),
        (900.0, 0.0, ForwardingAlgorithm.AREA),
        (899.0, 0.0, ForwardingAlgorithm.LINE),
        (899.0, 901.0, ForwardingAlgorithm.NONE),
    ],
)
def test_the_algorithm_is_selected_by_both_places(
    here_m: float, sender_m: float, expected: ForwardingAlgorithm
) -> None:
    """[GN, annex D]"""
    assert select_forwarding(Position(here_m, 0.0), Position(sender_m, 0.0), CENTER, 100.0) is expected


def test_a_node_outside_contends_with_its_progress_and_delivers_nothing() -> None:
    bench = Bench(250.0)
    assert waits(bench.hear(packet(0.0))) == [pytest.approx(0.1 - 0.099 * 0.25)]
    assert bench.upcalls.packets == []
    assert waits(bench.hear(packet(500.0, number=2))) == [], "a node without progress stays silent"


def test_a_node_inside_delivers_and_contends_with_its_distance() -> None:
    bench = Bench(950.0)
    assert waits(bench.hear(packet(1050.0))) == [pytest.approx(0.1 - 0.099 * 0.1)]
    assert bench.upcalls.packets == [(7, b"x", 1)]


def test_when_the_time_is_over_the_packet_goes_on_with_its_age_and_the_new_place() -> None:
    bench = Bench(250.0)
    bench.hear(packet(0.0))
    bench.router.on_timer(1.075, ("contend", EventId(7, 1)))
    (sent,) = bench.port.take()
    assert isinstance(sent, Broadcast)
    assert isinstance(sent.message, GeoBroadcastPacket)
    assert (sent.message.hops, sent.message.hops_left, sent.message.at) == (2, 8, Position(250.0, 0.0))
    assert sent.message.parcel.waited_s == pytest.approx(0.075)


def test_a_node_that_hears_another_forward_stays_silent_for_good() -> None:
    bench = Bench(250.0)
    bench.hear(packet(0.0))
    assert bench.hear(packet(300.0, hops_left=8), sender=4) == [CancelTimer(("contend", EventId(7, 1)))]
    assert bench.hear(packet(0.0)) == []


def test_packets_are_dropped_by_name() -> None:
    bench = Bench(250.0, max_waiting=1)
    assert drops(bench.hear(packet(0.0, number=1, hops_left=0))) == ["hops_exhausted"]
    bench.hear(packet(0.0, number=2))
    assert drops(bench.hear(packet(0.0, number=3))) == ["buffer_full"]
    assert drops(bench.hear(packet(math.nan, number=4))) == ["no_position"]
    bench.router.on_route(1.0, 5, Parcel(b"y", Traffic.DATA))
    assert drops(bench.port.take()) == ["node_without_place"]
    bench.host.here = None
    bench.router.on_route(1.0, Place(CENTER, 10.0), Parcel(b"z", Traffic.DATA))
    assert drops(bench.port.take()) == ["no_position"]
    bench.router.on_timer(1.1, ("contend", EventId(7, 2)))
    assert drops(bench.port.take()) == ["no_position"]
    assert bench.upcalls.given_up == [(5, b"y"), (Place(CENTER, 10.0), b"z")]


def test_all_nodes_of_an_area_get_an_event_and_few_send_it() -> None:
    """A corridor to an area with 40 nodes: all inside deliver, none outside, and most stay silent."""
    rng = Random(4)
    corridor = [(100.0 * step, 200.0) for step in range(10)]
    inside = [(1200.0 + rng.uniform(-150, 150), 200.0 + rng.uniform(-150, 150)) for _ in range(40)]
    places = [*corridor, *inside]
    tables = {"radio": {"range_m": 250.0}, "router": {"name": "geobroadcast", "max_distance_m": 250.0}}
    net = Net(len(places), "area_topics", {}, tables, 1, places)
    for node in range(len(places)):
        net.subscribe(node)
    net.run(1)
    event = net.publish(0, {"x_m": 1200.0, "y_m": 200.0, "radius_m": 220.0})
    net.run(5)
    graph = nx.Graph((a, b) for a in range(len(places)) for b in range(a) if math.dist(places[a], places[b]) <= 250.0)
    assert nx.is_connected(graph)
    for node, place in enumerate(places):
        expected = [event] if math.dist(place, (1200.0, 200.0)) <= 220.0 or node == 0 else []
        assert net.list_delivered(node) == expected, f"node {node} at {place}"
    assert net.count_sent("GeoBroadcastPacket") < 25, "flooding needs 50"
