"""DSDV handler by handler: what each update makes a node send, and each drop with its name."""

import pytest

from carrycast.core.model import EventId, Failure, NodeId, Position
from carrycast.core.protocol import Place
from carrycast.core.protocol.effects import Broadcast, Effect, Note, Send, SetTimer
from carrycast.core.wire import Parcel, Traffic
from carrycast.routers.dsdv.messages import INFINITE, MAX_ENTRIES, AdvertisedRoute, DataPacket, RouteUpdate
from carrycast.routers.dsdv.route_table import average_settling_s, is_better_route
from carrycast.routers.dsdv.router import Dsdv
from carrycast.sim.testing import IsolatedHost, isolate_router

ME = 0
Routes = list[tuple[NodeId, int, int]]


def parcel(body: bytes = b"x") -> Parcel:
    return Parcel(body, Traffic.DATA, EventId(9, 1))


class Bench:
    """Node 0, without jitter."""

    def __init__(self, incarnation: int = 0, **settings: object) -> None:
        host = IsolatedHost()
        host.incarnation = incarnation
        router, self.port, self.upcalls = isolate_router(
            "dsdv", ME, host, 1, **{"trigger_jitter_s": 0.0, "jitter": 0.0, **settings}
        )
        assert isinstance(router, Dsdv)
        self.router = router
        self.now = 0.0
        self.port.take()

    def hear(self, sender: NodeId, *routes: tuple[NodeId, int, int]) -> list[Effect]:
        """An update of a neighbor: destination, metric, sequence number."""
        update = RouteUpdate(tuple(AdvertisedRoute(*route) for route in routes))
        self.router.on_message(self.now, sender, update, "radio")
        return self.port.take()

    def timer(self, key: str) -> Routes:
        """Let a timer fire; the routes that are sent."""
        self.router.on_timer(self.now, key)
        return sent_routes(self.port.take())

    def packet(self, sender: NodeId, origin: NodeId, destination: NodeId, hops: int = 1) -> list[Effect]:
        packet = DataPacket(parcel(), origin=origin, destination=destination, hops=hops)
        self.router.on_message(self.now, sender, packet, "radio")
        return self.port.take()

    def route(self, target: NodeId | Place, body: bytes = b"x") -> list[Effect]:
        self.router.on_route(self.now, target, parcel(body))
        return self.port.take()


def sent_routes(effects: list[Effect]) -> Routes:
    found: Routes = []
    for effect in effects:
        if isinstance(effect, Broadcast):
            assert isinstance(effect.message, RouteUpdate)
            found.extend((route.destination, route.metric, route.sequence) for route in effect.message.routes)
    return found


def triggers(effects: list[Effect]) -> list[float]:
    return [effect.delay_s for effect in effects if isinstance(effect, SetTimer) and effect.key == "trigger"]


def sends(effects: list[Effect]) -> list[Send]:
    return [effect for effect in effects if isinstance(effect, Send)]


def drops(effects: list[Effect]) -> list[str]:
    return [effect.fact.reason for effect in effects if isinstance(effect, Note) and effect.fact.kind == "drop"]


def test_a_more_recent_number_wins_and_of_equal_numbers_the_smaller_metric() -> None:
    assert is_better_route(4, 9, 2, 1)
    assert is_better_route(4, 2, 4, 3)
    assert not is_better_route(4, 3, 4, 3)
    assert not is_better_route(2, 1, 4, 9)


def test_the_settling_time_is_a_weighted_average() -> None:
    assert average_settling_s(6.0, 2.0, 0.875) == pytest.approx(5.5)


def test_the_table_of_the_papers_example() -> None:
    """[DSDV94, Table 2 and 3] MH1 moves from the range of MH2 to that of MH7: its number is newer over MH6."""
    bench = Bench()
    bench.hear(2, (2, 0, 128), (1, 1, 406), (6, 2, 76))
    bench.hear(6, (6, 0, 78))
    assert bench.router.hops_to(0.0, 1) == 2
    bench.hear(6, (6, 0, 80), (1, 2, 516))
    entry = bench.router.table.find(1)
    assert entry is not None
    assert (entry.next_hop, entry.metric, entry.sequence) == (6, 3, 516)


def test_a_new_destination_is_advertised_at_once_and_a_full_dump_has_all() -> None:
    bench = Bench()
    assert triggers(bench.hear(1, (1, 0, 10), (5, 2, 20))) == [0.0]
    assert bench.timer("trigger") == [(ME, 0, 2), (1, 1, 10), (5, 3, 20)]
    assert bench.timer("trigger") == [], "nothing has changed since"
    assert bench.timer("dump") == [(ME, 0, 2), (1, 1, 10), (5, 3, 20)]
    assert bench.timer("dump") == [(ME, 0, 4), (1, 1, 10), (5, 3, 20)], "own numbers are even"


def test_a_new_number_with_the_same_metric_is_no_significant_change() -> None:
    for trigger_on, expected in (("metric", []), ("sequence", [0.0])):
        bench = Bench(trigger_on=trigger_on, min_trigger_s=0.001)
        bench.hear(1, (1, 0, 10))
        bench.timer("trigger")
        bench.now = 5.0
        assert triggers(bench.hear(1, (1, 0, 12))) == expected
        assert bench.timer("dump") == [(ME, 0, 2), (1, 1, 12)]


def test_a_changed_metric_is_used_at_once_and_advertised_when_it_has_settled() -> None:
    bench = Bench(settling_s=4.0, settling_weight=1.0)
    bench.hear(1, (1, 0, 10), (5, 1, 20))
    bench.timer("trigger")
    bench.now = 10.0
    assert triggers(bench.hear(2, (2, 0, 6), (5, 4, 22)))[0] == 0.0, "node 2 is new"
    assert bench.router.hops_to(10.0, 5) == 5
    assert (5, 2, 20) in bench.timer("dump"), "others are told the route before"
    bench.now = 11.0
    bench.hear(1, (5, 1, 22))
    assert bench.router.find_next_hop(11.0, 5) == 1
    assert (5, 2, 22) in bench.timer("dump"), "the better one came in time: nothing to settle"


def test_a_metric_that_stays_worse_is_advertised_after_twice_the_settling_time() -> None:
    bench = Bench(settling_s=4.0, settling_weight=1.0)
    bench.hear(1, (1, 0, 10), (5, 1, 20))
    bench.timer("trigger")
    bench.now = 10.0
    assert triggers(bench.hear(1, (5, 4, 22))) == [8.0]
    bench.now = 18.0
    assert bench.timer("trigger") == [(ME, 0, 2), (5, 5, 22)]


def test_triggered_updates_have_a_shortest_interval() -> None:
    bench = Bench(min_trigger_s=1.0)
    bench.hear(1, (1, 0, 10))
    bench.timer("trigger")
    bench.now = 0.25
    assert triggers(bench.hear(2, (2, 0, 10))) == [0.75]


def test_a_broken_link_makes_the_metric_infinite_and_the_number_odd() -> None:
    bench = Bench()
    bench.hear(1, (1, 0, 10), (5, 2, 20))
    bench.timer("trigger")
    bench.now = 2.0
    (sent,) = sends(bench.route(5))
    assert sent.token is not None
    bench.router.on_sent(2.0, sent.token, Failure.UNREACHABLE)
    assert triggers(bench.port.take()) == [0.0]
    assert bench.timer("trigger") == [(ME, 0, 2), (1, INFINITE, 11), (5, INFINITE, 21)]
    assert bench.router.hops_to(2.0, 5) is None
    bench.hear(2, (2, 0, 4), (5, 3, 20))
    assert bench.router.hops_to(2.0, 5) is None, "an old route is not used again"
    (again,) = sends(bench.hear(2, (5, 3, 22)))
    assert again.target == 2, "the packet has waited for the route"


def test_a_neighbor_that_is_silent_is_lost_after_three_intervals() -> None:
    bench = Bench()
    bench.hear(1, (1, 0, 10), (5, 2, 20))
    bench.now = 44.9
    assert bench.router.hops_to(44.9, 5) == 3
    bench.now = 45.0
    assert bench.router.hops_to(45.0, 5) is None
    assert (5, INFINITE, 21) in bench.timer("dump")
    bench.now = 150.0
    bench.timer("dump")
    assert len(bench.router.table) == 0


def test_a_lost_route_is_answered_with_a_better_one() -> None:
    bench = Bench()
    bench.hear(1, (1, 0, 10), (5, 1, 20))
    bench.hear(2, (2, 0, 4))
    bench.timer("trigger")
    bench.now = 3.0
    assert triggers(bench.hear(2, (5, INFINITE, 19))) == [0.0]
    assert bench.timer("trigger") == [(ME, 0, 2), (5, 2, 20)]


def test_whose_reports_of_a_break_are_used() -> None:
    for reports, left in (("all", None), ("next_hop", 2)):
        bench = Bench(break_reports=reports)
        bench.hear(1, (1, 0, 10), (5, 1, 20))
        bench.hear(2, (5, INFINITE, 21))
        assert bench.router.hops_to(0.0, 5) == left
        bench.hear(1, (5, INFINITE, 21))
        assert bench.router.hops_to(0.0, 5) is None


def test_a_report_that_this_node_is_lost_raises_its_own_number() -> None:
    bench = Bench()
    bench.hear(1, (1, 0, 10), (ME, INFINITE, 41))
    assert bench.timer("dump")[0] == (ME, 0, 42)


def test_a_neighbor_that_has_restarted_has_lost_its_routes() -> None:
    bench = Bench()
    bench.hear(1, (1, 0, 10), (5, 2, 20))
    bench.hear(1, (1, 0, (1 << 32) + 2))
    assert bench.router.hops_to(0.0, 1) == 1
    assert bench.router.hops_to(0.0, 5) is None


def test_a_node_that_has_restarted_forwards_nothing_until_routes_over_it_have_expired() -> None:
    bench = Bench(incarnation=1)
    bench.router.on_start(0.0)
    assert ("reboot", 45.0) in [(e.key, e.delay_s) for e in bench.port.take() if isinstance(e, SetTimer)]
    bench.hear(1, (1, 0, 10), (5, 2, 20))
    assert bench.router.hops_to(0.0, 1) == 1
    assert bench.router.hops_to(0.0, 5) is None
    assert bench.timer("dump") == [(ME, 0, (1 << 32) + 2)]
    assert drops(bench.packet(1, 7, 5)) == ["rebooted"]
    bench.timer("reboot")
    bench.hear(1, (5, 2, 20))
    assert [sent.target for sent in sends(bench.packet(1, 7, 5))] == [1]


def test_many_changes_are_a_full_dump_in_several_packets() -> None:
    bench = Bench()
    bench.hear(1, (1, 0, 10), *((node, 1, 20) for node in range(2, MAX_ENTRIES)))
    bench.hear(1, *((node, 1, 20) for node in range(MAX_ENTRIES, MAX_ENTRIES + 20)))
    bench.router.on_timer(0.0, "trigger")
    packets = [effect for effect in bench.port.take() if isinstance(effect, Broadcast)]
    assert len(packets) == 2
    assert len(sent_routes(list(packets))) == MAX_ENTRIES + 20


# Drops.


def test_packets_are_dropped_by_name() -> None:
    bench = Bench(max_hops=4, buffer=1, buffer_s=3.0)
    bench.hear(1, (1, 0, 10))
    assert drops(bench.packet(1, 5, 9)) == ["no_route"]
    assert drops(bench.packet(1, ME, 9)) == ["packet_returned"]
    assert drops(bench.packet(1, 5, 9, hops=4)) == ["hops_exhausted"]
    assert drops(bench.route(Place(Position(1.0, 1.0)))) == ["place_without_node"]
    assert drops(bench.route(9, b"first")) == []
    assert drops(bench.route(9, b"second")) == ["buffer_full"]
    bench.now = 3.0
    bench.router.on_timer(3.0, "dump")
    assert drops(bench.port.take()) == ["buffer_timeout"]
    assert [body for _, body in bench.upcalls.given_up] == [b"x", b"first", b"second"]


def test_updates_are_dropped_by_name() -> None:
    bench = Bench(max_routes=2)
    bench.hear(1, (1, 0, 10), (5, 2, 20))
    assert drops(bench.hear(1, (6, 2, 20))) == ["table_full"]
    assert drops(bench.hear(1, (5, 0, 22))) == ["route_forged"]
    assert drops(bench.hear(1, (5, 2, 23))) == ["route_forged"]
    assert drops(bench.hear(1, (5, INFINITE, 22))) == ["route_forged"]
    assert drops(bench.hear(1, (5, 2, 20 + (1 << 20)))) == ["sequence_forged"]
    assert drops(bench.hear(1, (5, INFINITE - 1, 22))) == ["hops_exhausted"]
