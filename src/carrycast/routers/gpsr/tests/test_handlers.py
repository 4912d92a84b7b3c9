"""GPSR handler by handler."""

import pytest

from carrycast.core.model import Failure, Position, Velocity
from carrycast.core.protocol import Link, Place
from carrycast.core.protocol.effects import CancelTimer, SetTimer
from carrycast.routers.gpsr import router as module
from carrycast.routers.gpsr.messages import GeoBeacon, GeoPacket, PerimeterHeader
from carrycast.routers.gpsr.perimeter import planarize
from carrycast.routers.gpsr.tests.bench import ME, Bench, drops, packet, receivers, sends


def test_beacons_come_every_period_give_or_take_half_of_it() -> None:
    bench = Bench(beacon_s=2.0)
    delays = []
    for _ in range(200):
        bench.now += 2.0
        bench.router.on_timer(bench.now, "beacon")
        effects = bench.port.take()
        delays += [effect.delay_s for effect in effects if isinstance(effect, SetTimer)]
    assert 1.0 <= min(delays) < 1.1
    assert 2.9 < max(delays) <= 3.0
    bench.router.on_stop(bench.now)
    assert bench.port.take() == [CancelTimer("beacon")]


def test_a_beacon_contains_only_the_position() -> None:
    bench = Bench()
    bench.host.here = Position(3.0, 4.0)
    assert bench.tick() == [GeoBeacon(Position(3.0, 4.0), None)]


def test_a_neighbor_expires_after_four_and_a_half_periods() -> None:
    bench = Bench()
    bench.neighbor(1, 50, 0)
    assert bench.router.hops_to(4.4, 1) == 1
    assert bench.router.hops_to(4.5, 1) is None
    bench.now = 4.4
    assert receivers(bench.route(Place(Position(100, 0), 0.0, 9))) == [1]
    bench.now = 4.5
    assert drops(bench.route(Place(Position(100, 0), 0.0, 9))) == ["no_neighbor"]


def test_greedy_takes_the_neighbor_nearest_to_the_target() -> None:
    bench = Bench()
    for node, x_m, y_m in ((1, 50, 0), (2, 60, 30), (3, 70, 0), (4, -70, 0)):
        bench.neighbor(node, x_m, y_m)
    (sent,) = sends(bench.hear(4, packet(200, 0, 9, hops=2)))
    assert sent.target == 3
    assert sent.message == packet(200, 0, 9, hops=3, at=Position(0, 0))


def test_of_equally_near_neighbors_the_lowest_id_is_taken() -> None:
    bench = Bench()
    bench.neighbor(2, 50, 10)
    bench.neighbor(1, 50, -10)
    assert receivers(bench.route(Place(Position(100, 0), 0.0, 9))) == [1]


def test_at_a_local_minimum_perimeter_mode_begins_counterclockwise_from_the_target() -> None:
    bench = Bench()
    bench.neighbor(1, -10, 80)
    bench.neighbor(2, -10, -80)
    (sent,) = sends(bench.route(Place(Position(100, 0), 0.0, 9)))
    assert sent.target == 1
    assert isinstance(sent.message, GeoPacket)
    assert sent.message.perimeter == (ME, Position(0, 0), (0.0, 0.0), (ME, 1))
    # It comes back from 1, which found no other way: on to 2, and from there back again.
    back = packet(100, 0, 9, at=Position(-10, 80), perimeter=sent.message.perimeter, hops=2)
    assert receivers(bench.hear(1, back)) == [2]
    again = packet(100, 0, 9, at=Position(-10, -80), perimeter=sent.message.perimeter, hops=4)
    assert drops(bench.hear(2, again)) == ["face_toured"]


def test_nearer_than_lp_a_packet_is_greedy_again() -> None:
    bench = Bench()
    bench.neighbor(1, 20, 80)
    bench.neighbor(2, 50, 0)
    header = PerimeterHeader(7, Position(-50, 0), (0.0, 0.0), (7, 8))
    (sent,) = sends(bench.hear(1, packet(100, 0, 9, at=Position(20, 80), perimeter=header)))
    assert sent.target == 2
    assert isinstance(sent.message, GeoPacket)
    assert sent.message.perimeter is None


def test_a_face_changes_where_its_next_edge_would_cross_the_line() -> None:
    # Entered at (-100, 0), 210 m from the target; this node is above the line, and its next edge leads below it.
    bench = Bench()
    bench.host.here = Position(-20, 200)
    bench.neighbor(1, -150, 150)
    bench.neighbor(2, -10, -40)
    bench.neighbor(3, 90, 250)
    header = PerimeterHeader(7, Position(-100, 0), (0.0, 0.0), (7, 1))
    (sent,) = sends(bench.hear(1, packet(110, 0, 9, at=Position(-150, 150), perimeter=header)))
    assert sent.target == 3, "past the edge to 2"
    assert isinstance(sent.message, GeoPacket)
    changed = sent.message.perimeter
    assert changed is not None
    assert changed.e0 == (ME, 3)
    # The edge to 2 crosses at x = -20 + 10 * 200 / 240.
    assert changed.lf[0] == pytest.approx((100 - 20 + 2000 / 240) / 210)


def test_an_unreachable_neighbor_is_removed_and_the_packet_is_forwarded_again() -> None:
    bench = Bench()
    bench.neighbor(1, 90, 0)
    bench.neighbor(2, 60, 0)
    (first,) = sends(bench.hear(3, packet(200, 0, 9)))
    assert (first.target, first.token) == (1, 1)
    bench.router.on_sent(0.0, 1, Failure.UNREACHABLE)
    (second,) = sends(bench.port.take())
    assert second.target == 2
    assert isinstance(second.message, GeoPacket)
    assert second.message.hops == 2, "a send that failed is no hop"
    bench.router.on_sent(0.0, 2, Failure.UNREACHABLE)
    assert drops(bench.port.take()) == ["no_neighbor"]
    assert bench.upcalls.given_up == [], "it is not this node's own"


def test_a_full_queue_drops_the_packet_and_keeps_the_neighbor() -> None:
    bench = Bench()
    bench.neighbor(1, 90, 0)
    target = Place(Position(200, 0), 0.0, 9)
    bench.route(target)
    bench.router.on_sent(0.0, 1, Failure.QUEUE_FULL)
    assert drops(bench.port.take()) == ["queue_full"]
    assert bench.upcalls.given_up == [(target, b"x")]
    assert bench.router.hops_to(0.0, 1) == 1


def test_a_lost_link_removes_its_neighbor() -> None:
    bench = Bench()
    link = Link(1, "radio", 0.001)
    bench.router.on_link_up(0.0, link)
    bench.neighbor(1, 90, 0)
    bench.router.on_link_down(0.0, link, Failure.SILENT)
    assert bench.router.hops_to(0.0, 1) is None


def test_a_node_without_a_position_is_reached_only_if_it_is_a_neighbor() -> None:
    bench = Bench()
    assert drops(bench.route(4)) == ["position_unknown"]
    assert bench.upcalls.given_up == [(4, b"x")]
    bench.neighbor(4, 90, 0)
    assert receivers(bench.route(4)) == [4]


def test_packets_carry_positions_unless_piggybacking_is_off() -> None:
    bench = Bench()
    bench.hear(4, packet(200, 0, ME, at=Position(30, 40)))
    assert bench.router.table.position(0.0, 4) == Position(30, 40)
    assert bench.upcalls.packets == [(5, b"x", 1)]
    bench = Bench(piggyback=False)
    bench.neighbor(1, 90, 0)
    bench.hear(4, packet(200, 0, ME, at=Position(30, 40)))
    assert bench.router.hops_to(0.0, 4) is None
    (sent,) = sends(bench.route(Place(Position(200, 0), 0.0, 9)))
    assert isinstance(sent.message, GeoPacket)
    assert sent.message.at is None


def test_a_packet_replaces_a_beacon_but_not_two_in_a_row() -> None:
    bench = Bench(suppress_beacons=True)
    bench.neighbor(1, 90, 0)
    said = []
    for _ in range(4):
        bench.route(1)
        said.append(len(bench.tick()))
    assert said == [0, 1, 0, 1]
    assert len(bench.tick()) == 1, "without packets there is a beacon each time"


def test_planar_neighbors_are_computed_only_when_the_table_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return planarize(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "planarize", counted)
    bench = Bench()
    bench.neighbor(1, -10, 80)
    for _ in range(5):
        bench.route(Place(Position(100, 0), 0.0, 9))
        bench.neighbor(1, -10, 80)
    assert len(calls) == 1, "a beacon that says the same changes nothing"
    bench.neighbor(1, -10, 81)
    bench.route(Place(Position(100, 0), 0.0, 9))
    assert len(calls) == 2


def test_dead_reckoning_extrapolates_positions() -> None:
    bench = Bench(dead_reckoning=True)
    bench.neighbor(1, 50, 0, Velocity(-20.0, 0.0))
    bench.neighbor(2, 40, 0, Velocity(20.0, 0.0))
    target = Place(Position(200, 0), 0.0, 9)
    assert receivers(bench.route(target)) == [1]
    bench.now = 1.0
    assert receivers(bench.route(target)) == [2]
    assert bench.router.table.position(1.0, 2) == Position(60, 0)
    bench.hear(2, packet(0, 0, ME, at=Position(70, 0)))
    assert bench.router.table.position(2.0, 2) == Position(90, 0), "a packet corrects the place and keeps the velocity"
    bench.host.moves = Velocity(3.0, 0.0)
    assert bench.tick() == [GeoBeacon(Position(0, 0), Velocity(3.0, 0.0))]


def test_beacons_are_skipped_while_the_estimate_is_accurate() -> None:
    bench = Bench(beacon_skips=3)
    said = [len(bench.tick()) for _ in range(9)]
    assert said == [1, 0, 0, 0, 1, 0, 0, 0, 1], "standing still: one in four"
    bench.host.here = Position(25.0, 0.0)
    assert len(bench.tick()) == 1, "25 m off: too much"
    bench.neighbor(1, 50, 0)
    assert len(bench.tick()) == 1, "somebody new, who knows nothing yet"
    assert len(bench.tick()) == 0


def test_with_dead_reckoning_a_node_of_constant_velocity_skips_beacons_too() -> None:
    bench = Bench(variant="predictive")
    bench.host.moves = Velocity(40.0, 0.0)
    said = []
    for second in range(1, 9):
        bench.host.here = Position(40.0 * second, 0.0)
        said.append(len(bench.tick()))
    assert said == [1, 0, 0, 0, 1, 0, 0, 0]
    bench.host.here = Position(40.0 * 8, 30.0)
    assert len(bench.tick()) == 1, "it has turned"


def test_a_neighbor_that_may_skip_beacons_is_kept_for_longer() -> None:
    bench = Bench(beacon_skips=3)
    bench.neighbor(1, 50, 0)
    assert bench.router.hops_to(17.9, 1) == 1
    assert bench.router.hops_to(18.0, 1) is None


def test_a_parcel_includes_the_time_until_a_send_failed() -> None:
    bench = Bench()
    bench.neighbor(1, 90, 0)
    bench.neighbor(2, 60, 0)
    (first,) = sends(bench.hear(3, packet(200, 0, 9)))
    assert isinstance(first.message, GeoPacket)
    assert first.message.parcel.waited_s == 0.0
    bench.router.on_sent(1.5, 1, Failure.UNREACHABLE)
    (second,) = sends(bench.port.take())
    assert isinstance(second.message, GeoPacket)
    assert second.message.parcel.waited_s == 1.5


def test_positions_in_overheard_packets_are_used() -> None:
    bench = Bench(overhear=True)
    bench.router.on_overheard(0.0, 1, packet(100, 0, 9, at=Position(50, 0)), "radio")
    assert bench.port.take() == [], "nothing else comes of it"
    assert receivers(bench.route(Place(Position(100, 0), 0.0, 9))) == [1]
    bench.router.on_overheard(0.0, 2, packet(100, 0, 9), "radio")
    bench.router.on_overheard(0.0, 3, GeoBeacon(Position(60, 0)), "radio")
    bench.router.on_overheard(0.0, 4, packet(100, 0, 9, at=Position(1e7, 0)), "radio")
    assert drops(bench.port.take()) == ["absurd_position"]
    assert list(bench.router.table) == [1]


def test_where_packets_are_overheard_each_replaces_a_beacon() -> None:
    bench = Bench(overhear=True, suppress_beacons=True)
    bench.neighbor(1, 50, 0)
    assert len(bench.tick()) == 1
    for _ in range(3):
        bench.route(1)
        assert bench.tick() == []
    assert len(bench.tick()) == 1
