"""Bad input: each a drop with a name, and tables that do not grow with it."""

import math

import pytest

from carrycast.core.model import Failure, Position, Velocity
from carrycast.core.protocol import Place
from carrycast.core.wire import Codec, DecodeError, Layer, Message
from carrycast.routers.gpsr.messages import GeoBeacon, GeoPacket, PerimeterHeader
from carrycast.routers.gpsr.tests.bench import ME, NOWHERE, Bench, drops, packet, receivers, sends


@pytest.mark.parametrize(
    "position",
    [Position(math.nan, 0), Position(0, math.inf), Position(-math.inf, 0), Position(1e9, 0), Position(10_001, 0)],
)
def test_an_absurd_position_is_rejected(position: Position) -> None:
    bench = Bench()
    assert drops(bench.hear(1, GeoBeacon(position))) == ["absurd_position"]
    assert drops(bench.hear(1, packet(0, 0, ME, at=position))) == ["absurd_position"]
    assert len(bench.router.table) == 0


@pytest.mark.parametrize("velocity", [Velocity(math.nan, 0), Velocity(math.inf, 0), Velocity(0, -1e9)])
def test_an_absurd_velocity_is_rejected(velocity: Velocity) -> None:
    bench = Bench(dead_reckoning=True)
    assert drops(bench.neighbor(1, 50, 0, velocity)) == ["absurd_velocity"]
    assert len(bench.router.table) == 0


def test_a_flood_of_neighbors_is_bounded_in_memory() -> None:
    bench = Bench(max_neighbors=10)
    reasons = [drops(bench.neighbor(node, 50, node % 90)) for node in range(1, 101)]
    assert reasons == [[]] * 10 + [["table_full"]] * 90
    assert len(bench.router.table) == 10
    bench.now = 5.0
    bench.route(Place(Position(100, 0), 0.0, 9))
    assert drops(bench.neighbor(50, 50, 0)) == [], "and when they are silent there is room again"


def test_a_node_without_a_position_sends_no_beacon_and_forwards_nothing() -> None:
    bench = Bench()
    bench.neighbor(1, 50, 0)
    bench.host.here = NOWHERE
    assert bench.tick() == []
    target = Place(Position(100, 0))
    assert drops(bench.route(target)) == ["no_position"]
    assert bench.upcalls.given_up == [(target, b"x")]
    assert drops(bench.hear(1, packet(100, 0))) == ["no_position"]
    assert drops(bench.neighbor(2, 50, 0)) == [], "but it may listen"
    bench.host.here = Position(0, 0)
    assert len(bench.tick()) == 1


def test_a_packet_for_an_invalid_position_is_dropped() -> None:
    bench = Bench()
    assert drops(bench.hear(1, packet(math.nan, 0))) == ["no_position"]


def test_a_packet_with_too_many_hops_is_dropped() -> None:
    bench = Bench(max_hops=10)
    bench.neighbor(1, 50, 0)
    assert drops(bench.hear(2, packet(100, 0, 9, hops=10))) == ["hops_exhausted"]
    assert receivers(bench.hear(2, packet(100, 0, 9, number=2, hops=9))) == [1]
    far = Bench(max_hops=10_000)
    far.neighbor(1, 50, 0)
    assert drops(far.hear(2, packet(100, 0, 9, hops=10_000))) == ["hops_exhausted"]


def test_a_packet_that_arrives_with_its_last_hop_is_delivered() -> None:
    """Its target takes it, and so does whoever ends up nearest to a place: neither sends it on."""
    bench = Bench(max_hops=10)
    bench.hear(2, packet(100, 0, ME, hops=10))
    bench.neighbor(1, -50, 0)
    bench.hear(1, packet(5, 0, number=2, hops=10, radius_m=20.0))
    assert [hops for _, _, hops in bench.upcalls.packets] == [10, 10]


def test_a_forged_perimeter_header_does_no_harm() -> None:
    bench = Bench()
    bench.neighbor(1, -10, 80)
    bench.neighbor(2, -10, -80)
    for header in (
        PerimeterHeader(ME, Position(100, 0), (1.0, 1e18), (ME, 2)),
        PerimeterHeader(3, Position(1e9, -1e9), (0.0, 0.0), (ME, ME)),
        PerimeterHeader(3, Position(100, 0), (0.5, 0.0), (3, 4)),
    ):
        effects = bench.hear(1, packet(100, 0, 9, at=Position(-10, 80), perimeter=header))
        assert drops(effects) == ["face_toured"] or len(sends(effects)) == 1


def test_a_perimeter_packet_from_an_unknown_position_enters_perimeter_mode_again() -> None:
    bench = Bench()
    bench.neighbor(1, -10, 80)
    header = PerimeterHeader(7, Position(0, 0), (0.0, 0.0), (7, 8))
    (sent,) = sends(bench.hear(6, packet(100, 0, 9, perimeter=header)))
    assert isinstance(sent.message, GeoPacket)
    assert sent.message.perimeter == (ME, Position(0, 0), (0.0, 0.0), (ME, 1))


def test_a_tour_whose_e0_no_longer_exists_still_ends() -> None:
    bench = Bench()
    for node, x_m, y_m in ((1, -10, 80), (2, -80, 10), (3, -10, -80)):
        bench.neighbor(node, x_m, y_m)
    (sent,) = sends(bench.route(Place(Position(100, 0), 0.0, 9)))
    assert isinstance(sent.message, GeoPacket)
    header = sent.message.perimeter
    assert header is not None
    assert header.e0 == (ME, 1)
    bench.router.on_sent(0.0, 1, Failure.UNREACHABLE)
    bench.port.take()
    (onward,) = sends(bench.hear(3, packet(100, 0, 9, at=Position(-10, -80), perimeter=header)))
    assert isinstance(onward.message, GeoPacket)
    assert onward.message.perimeter is not None
    assert onward.message.perimeter.e0 == (ME, onward.target)


@pytest.mark.parametrize(
    "message",
    [
        GeoBeacon(Position(math.nan, 0)),
        GeoBeacon(Position(math.inf, 0)),
        GeoBeacon(Position(2e9, 0)),
        GeoBeacon(Position(0, 0), Velocity(math.nan, 0)),
        packet(math.nan, 0),
        packet(0, 0, radius_m=-1.0),
        packet(0, 0, radius_m=math.nan),
        packet(0, 0, hops=65536),
        packet(0, 0, perimeter=PerimeterHeader(1, Position(0, 0), (1.5, 0.0), (1, 2))),
        packet(0, 0, perimeter=PerimeterHeader(1, Position(0, 0), (0.5, math.nan), (1, 2))),
        packet(0, 0, perimeter=PerimeterHeader(-1, Position(0, 0), (0.5, 0.0), (1, 2))),
    ],
)
def test_absurd_fields_do_not_survive_decoding(message: Message) -> None:
    codec = Codec(Layer.ROUTING, "gpsr", (GeoBeacon, GeoPacket))
    with pytest.raises(DecodeError):
        codec.decode(codec.encode(message))
