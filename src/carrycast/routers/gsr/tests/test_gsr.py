"""GSR: its handlers on a map of two streets and a block, and vehicles in a town."""

import math

import pytest

from carrycast.core.model import EventId, Failure, NodeId, Position, Road, RoadMap
from carrycast.core.protocol import Capability, Link, Place
from carrycast.core.protocol.effects import Broadcast, Effect, Note, Send, SetTimer
from carrycast.core.wire import Message, Parcel, Traffic
from carrycast.errors import UserError
from carrycast.routers.gsr.messages import StreetBeacon, StreetPacket
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario import Scenario, parse_scenario
from carrycast.sim.testing import IsolatedHost, isolate_router

NORTH_WEST, NORTH_EAST = Position(0.0, 400.0), Position(400.0, 400.0)
SOUTH_WEST, SOUTH_EAST = Position(0.0, 0.0), Position(400.0, 0.0)
CORNERS = {"nw": NORTH_WEST, "ne": NORTH_EAST, "se": SOUTH_EAST, "sw": SOUTH_WEST}


def piece(one: str, other: str) -> Road:
    return Road(id=f"{one}-{other}", nodes=(one, other), places=(CORNERS[one], CORNERS[other]), lanes=1)


BLOCK = RoadMap(
    name="block",
    width_m=400.0,
    height_m=400.0,
    lane_m=4.0,
    safety_m=10.0,
    roads=(piece("sw", "nw"), piece("nw", "ne"), piece("ne", "se"), piece("se", "sw")),
)


class StreetHost(IsolatedHost):
    def __init__(self, x_m: float, y_m: float) -> None:
        super().__init__()
        self.offers |= {Capability.POSITION, Capability.MAP}
        self.here: Position | None = Position(x_m, y_m)

    def position(self, now: float) -> Position | None:  # type: ignore[override]
        return self.here

    def road_map(self) -> RoadMap:
        return BLOCK


class Bench:
    """Node 0 at a place of the block, with neighbors at others."""

    def __init__(
        self, x_m: float, y_m: float, neighbors: dict[NodeId, tuple[float, float]], **settings: object
    ) -> None:
        self.host = StreetHost(x_m, y_m)
        self.router, self.port, self.upcalls = isolate_router("gsr", 0, self.host, 1, **settings)
        for node, place in neighbors.items():
            self.hear(node, StreetBeacon(Position(*place)))
        self.port.take()

    def hear(self, sender: NodeId, message: Message, now: float = 0.0) -> list[Effect]:
        self.router.on_message(now, sender, message, "radio")
        return self.port.take()

    def route(self, target: NodeId | Place) -> list[Effect]:
        self.router.on_route(0.0, target, Parcel(b"x", Traffic.DATA, EventId(9, 1)))
        return self.port.take()


def packet(place: Place, crossings: tuple[Position, ...] = (), hops: int = 1, number: int = 1) -> StreetPacket:
    parcel = Parcel(b"x", Traffic.DATA, EventId(9, 1))
    return StreetPacket(parcel, origin=7, number=number, place=place, crossings=crossings, hops=hops)


def sent(effects: list[Effect]) -> list[tuple[NodeId, tuple[Position, ...]]]:
    return [
        (effect.target, effect.message.crossings)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, StreetPacket)
    ]


def drops(effects: list[Effect]) -> list[str]:
    return [effect.fact.reason for effect in effects if isinstance(effect, Note) and effect.fact.kind == "drop"]


TARGET = Place(Position(400.0, 150.0), 20.0)


def test_a_packet_goes_along_streets_and_not_through_the_block() -> None:
    """Node 2 is nearer to the target as the crow flies, but node 1 is on the shortest way, over the south."""
    bench = Bench(0.0, 100.0, {1: (0.0, 40.0), 2: (0.0, 150.0)})
    assert sent(bench.route(TARGET)) == [(1, (SOUTH_WEST, SOUTH_EAST))]


def test_a_crossing_is_passed_when_a_neighbor_is_in_the_next_street() -> None:
    bench = Bench(0.0, 80.0, {1: (0.0, 40.0), 2: (60.0, 0.0)})
    assert sent(bench.route(TARGET)) == [(2, (SOUTH_EAST,))]
    bench = Bench(0.0, 20.0, {2: (60.0, 0.0)})
    assert sent(bench.route(TARGET)) == [(2, (SOUTH_EAST,))], "a node on the crossing has passed it"


def test_an_empty_street_is_avoided() -> None:
    bench = Bench(0.0, 100.0, {2: (0.0, 200.0)})
    effects = bench.route(TARGET)
    assert sent(effects) == [(2, (NORTH_WEST, NORTH_EAST))]
    assert [effect.fact.kind for effect in effects if isinstance(effect, Note)] == ["detour"]
    bench = Bench(0.0, 100.0, {2: (0.0, 200.0)}, detours=0)
    assert drops(bench.route(TARGET)) == ["street_empty"]


def test_a_node_within_the_radius_delivers_and_so_does_the_nearest() -> None:
    near = Bench(395.0, 160.0, {1: (400.0, 100.0)})
    near.hear(1, packet(TARGET))
    assert near.upcalls.packets == [(7, b"x", 1)]
    nearest = Bench(400.0, 250.0, {1: (400.0, 330.0)})
    nearest.hear(1, packet(TARGET))
    assert nearest.upcalls.packets == [(7, b"x", 1)]


def test_a_packet_for_a_neighbor_is_sent_to_it() -> None:
    bench = Bench(0.0, 100.0, {5: (40.0, 0.0)})
    assert sent(bench.route(Place(SOUTH_EAST, 0.0, 5)))[0][0] == 5
    assert sent(bench.route(5))[0][0] == 5


def test_a_neighbor_that_cannot_be_reached_is_removed_and_the_packet_goes_another_way() -> None:
    bench = Bench(0.0, 100.0, {1: (0.0, 40.0), 2: (0.0, 60.0)})
    assert sent(bench.route(TARGET)) == [(1, (SOUTH_WEST, SOUTH_EAST))]
    bench.router.on_sent(0.5, 1, Failure.UNREACHABLE)
    assert sent(bench.port.take()) == [(2, (SOUTH_WEST, SOUTH_EAST))]
    bench.router.on_link_down(0.6, Link(2, "radio", 0.001), Failure.SILENT)
    bench.router.on_sent(0.7, 2, Failure.QUEUE_FULL)
    assert drops(bench.port.take()) == ["queue_full"]
    assert bench.upcalls.given_up == [(TARGET, b"x")]


def test_neighbors_expire_and_beacons_carry_the_place() -> None:
    bench = Bench(0.0, 100.0, {1: (0.0, 40.0)})
    bench.hear(9, packet(Place(SOUTH_EAST, 0.0, 9)), now=4.6)
    assert len(bench.router.table) == 0  # type: ignore[attr-defined]
    bench.router.on_timer(5.0, "beacon")
    timer, beacon = bench.port.take()
    assert isinstance(timer, SetTimer)
    assert 0.5 <= timer.delay_s <= 1.5
    assert beacon == Broadcast(StreetBeacon(Position(0.0, 100.0)))


def test_packets_and_beacons_are_dropped_by_name() -> None:
    bench = Bench(0.0, 100.0, {1: (0.0, 40.0)}, max_hops=4, max_neighbors=1)
    assert drops(bench.hear(1, packet(TARGET, (SOUTH_WEST,), hops=4))) == ["hops_exhausted"]
    assert drops(bench.hear(1, packet(Place(Position(0.0, 200.0), 0.0, 8)))) == ["local_minimum"]
    assert drops(bench.hear(1, packet(Place(Position(math.nan, 0.0))))) == ["no_position"]
    assert drops(bench.hear(2, StreetBeacon(Position(1.0, 1.0)))) == ["table_full"]
    assert drops(bench.hear(1, StreetBeacon(Position(math.inf, 1.0)))) == ["absurd_position"]
    assert drops(bench.route(77)) == ["position_unknown"]
    here = Place(Position(0.0, 100.0), 5.0)
    bench.hear(1, packet(here, number=8))
    assert drops(bench.hear(1, packet(here, number=8))) == ["repeated"]


def town(protocol: dict[str, object], **tables: object) -> Scenario:
    return parse_scenario(
        {
            "duration_s": 40.0,
            "nodes": 80,
            "area_m": [1000.0, 1000.0],
            "mobility": {"model": "manhattan", "map": "city", "speed_min_mps": 1.0, "speed_max_mps": 15.0},
            "radio": {"model": "disk", "range_m": 200.0},
            "discovery": {"mode": "none"},
            "protocol": protocol,
            "flow": [{"from": 15, "rate_per_s": 1.0, "from_s": 5.0}],
            **tables,
        },
        "town",
    )


def test_flows_in_a_town_arrive_nearly_as_often_as_there_is_a_path_and_over_as_few_hops() -> None:
    found = run(town({"name": "unicast", "variant": "geographic", "router": "gsr"}), 2).metrics
    bound = run(town({"name": "unicast", "router": "shortest_path"}), 2).metrics
    assert float(found["flow_delivery_ratio"] or 0) > 0.75 * float(bound["flow_delivery_ratio"] or 1)
    assert float(found["flow_hops_mean"] or 99) < 1.2 * float(bound["flow_hops_mean"] or 0)


def test_it_is_refused_without_a_map() -> None:
    with pytest.raises(UserError, match="router: gsr needs map"):
        town(
            {"name": "unicast", "variant": "geographic", "router": "gsr"},
            mobility={"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": 15.0},
        )


def test_topic_holders_run_above_it() -> None:
    scenario = town(
        {"name": "topic_holder", "variant": "broker_gpsr", "router": "gsr"},
        flow=[],
        subscribe=[{"nodes": "30%", "filter": "topic = {topic}", "draw": {"topic": {"integers": [1, 3]}}}],
        publish=[{"count": 40, "from_s": 15.0, "attributes": {"topic": {"integers": [1, 3]}}}],
    )
    ratio = run(scenario, 1).metrics["delivery_ratio"]
    assert ratio is not None
    assert ratio > 0.5
