"""Copies of packets, and packets that go in a circle."""

from carrycast.core.model import Failure, Position
from carrycast.core.protocol import Place
from carrycast.routers.gpsr.messages import GeoPacket, PerimeterHeader
from carrycast.routers.gpsr.packets import SeenPackets
from carrycast.routers.gpsr.tests.bench import ME, Bench, drops, packet, receivers, sends

TOUR = PerimeterHeader(7, Position(400, 0), (0.0, 0.0), (7, 8))


def between() -> Bench:
    """A node with one neighbor on either side, far from any target."""
    bench = Bench()
    bench.neighbor(1, -50, 100)
    bench.neighbor(2, -50, -100)
    return bench


def test_a_duplicate_packet_is_dropped() -> None:
    for stop_loops in (True, False):
        bench = Bench(stop_loops=stop_loops)
        bench.neighbor(1, 50, 0)
        assert receivers(bench.hear(2, packet(100, 0, 9))) == [1]
        assert drops(bench.hear(2, packet(100, 0, 9))) == ["repeated"]
        assert receivers(bench.hear(2, packet(100, 0, 9, number=2))) == [1], "another packet of the same origin"
        assert receivers(bench.hear(2, packet(100, 0, 9, origin=6))) == [1]


def test_a_tour_may_pass_a_node_on_each_of_its_edges() -> None:
    bench = between()
    first = bench.hear(1, packet(800, 0, 9, at=Position(-50, 100), perimeter=TOUR, hops=3))
    assert receivers(first) == [2]
    back = bench.hear(2, packet(800, 0, 9, at=Position(-50, -100), perimeter=TOUR, hops=9))
    assert receivers(back) == [1]


def test_a_packet_that_takes_the_same_edge_on_the_same_tour_is_in_a_loop() -> None:
    bench = between()
    round_trips = [packet(800, 0, 9, at=Position(-50, 100), perimeter=TOUR, hops=hops) for hops in (3, 6, 9)]
    assert [drops(bench.hear(1, trip)) for trip in round_trips] == [[], ["repeated"], ["repeated"]]
    onward = TOUR._replace(lf=(0.5, 0.0))
    assert drops(bench.hear(1, packet(800, 0, 9, at=Position(-50, 100), perimeter=onward, hops=12))) == [], (
        "another face"
    )


def test_without_stop_loops_a_packet_in_a_loop_uses_up_its_hops() -> None:
    bench = Bench(stop_loops=False, max_hops=10)
    bench.neighbor(1, -50, 100)
    bench.neighbor(2, -50, -100)
    round_trips = [packet(800, 0, 9, at=Position(-50, 100), perimeter=TOUR, hops=hops) for hops in (3, 6, 6, 9, 12)]
    assert [drops(bench.hear(1, trip)) for trip in round_trips] == [[], [], ["repeated"], [], ["hops_exhausted"]]


def test_the_layer_above_gets_a_packet_once_by_whatever_paths_it_comes() -> None:
    bench = Bench()
    for sender, hops in ((1, 2), (3, 5)):
        bench.hear(sender, packet(0, 0, ME, hops=hops))
    assert [hops for _, _, hops in bench.upcalls.packets] == [2]


def test_a_restarted_node_does_not_repeat_packet_numbers() -> None:
    numbers = []
    for incarnation in (1, 2):
        bench = Bench(incarnation=incarnation)
        bench.neighbor(1, 50, 0)
        for _ in range(2):
            (sent,) = sends(bench.route(Place(Position(100, 0), 0.0, 9)))
            assert isinstance(sent.message, GeoPacket)
            numbers.append(sent.message.number)
    assert len(set(numbers)) == 4


def test_a_packet_that_is_forwarded_again_is_no_duplicate() -> None:
    bench = Bench()
    bench.neighbor(1, 90, 0)
    bench.neighbor(2, 60, 0)
    bench.hear(3, packet(200, 0, 9))
    bench.router.on_sent(0.0, 1, Failure.UNREACHABLE)
    assert receivers(bench.port.take()) == [2]


def test_packets_are_remembered_for_a_while_and_never_more_than_twice_the_maximum() -> None:
    seen = SeenPackets(10.0, 100, allow_loops=False)
    assert seen.add_arrival(0.0, 1, packet(0, 0))
    assert not seen.add_arrival(9.0, 1, packet(0, 0))
    # The period of its coming is over, and the next one not.
    assert not seen.add_arrival(19.9, 1, packet(0, 0))
    assert seen.add_arrival(31.0, 1, packet(0, 0))
    for number in range(2, 1000):
        assert seen.add_arrival(31.0, 1, packet(0, 0, number=number))
        assert len(seen) <= 200
    assert not seen.add_arrival(31.0, 1, packet(0, 0, number=950))
    assert seen.add_arrival(31.0, 1, packet(0, 0, number=5)), "a flood makes room for itself"
