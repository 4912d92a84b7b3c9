"""OLSR handler by handler: what each message makes a node send, and each drop with its name."""

import pytest

from carrycast.core.model import EventId, Failure, NodeId, Position
from carrycast.core.parts import MAX_LISTED
from carrycast.core.protocol import Link, Place
from carrycast.core.protocol.effects import Broadcast, Effect, Note, Send, SetTimer
from carrycast.core.wire import Message, Parcel, Traffic
from carrycast.routers.olsr.messages import ControlPacket, DataPacket, Hello, TopologyControl
from carrycast.routers.olsr.router import Olsr
from carrycast.sim.testing import IsolatedHost, isolate_router

ME = 0


def parcel() -> Parcel:
    return Parcel(b"x", Traffic.DATA, EventId(9, 1))


def hello(
    *symmetric: NodeId,
    mprs: tuple[NodeId, ...] = (),
    heard: tuple[NodeId, ...] = (),
    willingness: int = 3,
    validity_s: float = 6.0,
) -> Hello:
    return Hello(validity_s, willingness, mprs, symmetric, heard)


def tc(
    originator: NodeId, *advertised: NodeId, number: int = 1, ansn: int = 1, ttl: int = 255, hops: int = 0
) -> TopologyControl:
    return TopologyControl(originator, number, ansn, 15.0, ttl, hops, advertised)


class Bench:
    """Node 0, without jitter."""

    def __init__(self, incarnation: int = 0, **settings: object) -> None:
        host = IsolatedHost()
        host.incarnation = incarnation
        router, self.port, self.upcalls = isolate_router("olsr", ME, host, 1, **{"max_jitter": 0.0, **settings})
        assert isinstance(router, Olsr)
        self.router = router
        self.now = 0.0
        self.port.take()

    def hear(self, sender: NodeId, *messages: Hello | TopologyControl) -> list[Effect]:
        self.router.on_message(self.now, sender, ControlPacket(messages), "radio")
        return self.port.take()

    def timer(self, key: str) -> list[Effect]:
        self.router.on_timer(self.now, key)
        return self.port.take()

    def packet(self, sender: NodeId, origin: NodeId, destination: NodeId, hops: int = 1) -> list[Effect]:
        self.router.on_message(
            self.now, sender, DataPacket(parcel(), origin=origin, destination=destination, hops=hops), "radio"
        )
        return self.port.take()


def drops(effects: list[Effect]) -> list[str]:
    return [effect.fact.reason for effect in effects if isinstance(effect, Note) and effect.fact.kind == "drop"]


def broadcasts(effects: list[Effect]) -> list[Message]:
    found: list[Message] = []
    for effect in effects:
        if isinstance(effect, Broadcast):
            assert isinstance(effect.message, ControlPacket)
            found.extend(effect.message.messages)
    return found


def test_a_hello_lists_each_neighbor_by_the_state_of_its_link() -> None:
    bench = Bench()
    bench.hear(1, hello(5))
    bench.hear(2, hello(ME, 7))
    bench.hear(3, hello(ME))
    assert broadcasts(bench.timer("hello")) == [Hello(6.0, 3, (2,), (3,), (1,))]


def test_a_tc_is_sent_by_relays_alone_and_lists_their_selectors() -> None:
    bench = Bench()
    bench.hear(1, hello(ME))
    assert broadcasts(bench.timer("tc")) == []
    bench.hear(1, hello(mprs=(ME,)))
    bench.hear(2, hello(ME))
    assert broadcasts(bench.timer("tc")) == [tc(ME, 1)]
    bench.hear(2, hello(mprs=(ME,)))
    assert broadcasts(bench.timer("tc")) == [tc(ME, 1, 2, number=2, ansn=2)]
    assert broadcasts(bench.timer("tc")) == [tc(ME, 1, 2, number=3, ansn=2)], "the same set has the same ANSN"


@pytest.mark.parametrize(("redundancy", "listed"), [(0, (1,)), (1, (1, 2)), (2, (1, 2, 3))])
def test_tc_redundancy_adds_mprs_and_neighbors(redundancy: int, listed: tuple[int, ...]) -> None:
    bench = Bench(tc_redundancy=redundancy)
    bench.hear(1, hello(mprs=(ME,)))
    bench.hear(2, hello(ME, 7))
    bench.hear(3, hello(ME))
    assert broadcasts(bench.timer("tc")) == [tc(ME, *listed)]


def test_a_relay_without_selectors_sends_empty_tcs_while_the_last_one_is_valid() -> None:
    bench = Bench()
    bench.hear(1, hello(mprs=(ME,)))
    assert broadcasts(bench.timer("tc")) == [tc(ME, 1)]
    bench.now = 7.0
    assert broadcasts(bench.timer("tc")) == [tc(ME, number=2, ansn=2)]
    bench.now = 14.9
    assert broadcasts(bench.timer("tc")) == [tc(ME, number=3, ansn=2)]
    bench.now = 15.0
    assert broadcasts(bench.timer("tc")) == []


def test_a_tc_is_forwarded_once_and_only_for_a_selector() -> None:
    bench = Bench()
    bench.hear(1, hello(mprs=(ME,)))
    bench.hear(2, hello(ME))
    (timer,) = [effect for effect in bench.hear(1, tc(5, 6)) if isinstance(effect, SetTimer)]
    assert timer.key == "flush"
    assert broadcasts(bench.timer("flush")) == [tc(5, 6, ttl=254, hops=1)]
    assert bench.hear(1, tc(5, 6)) == [], "the same message again"
    assert bench.hear(2, tc(5, 6, number=2)) == [], "node 2 has not selected this node"
    assert bench.hear(1, tc(5, 6, number=2)) == [], "it was considered for forwarding already [RFC 3.4.1, 2]"
    assert bench.hear(1, tc(5, 6, number=3, ttl=1)) == []
    assert bench.hear(1, tc(ME, 6, number=4)) == [], "its own message"


def test_messages_that_wait_share_a_packet_with_the_next_hello() -> None:
    bench = Bench(max_jitter=0.25)
    bench.hear(1, hello(mprs=(ME,)))
    bench.hear(1, tc(5, 6), tc(6, 5))
    effects = bench.timer("hello")
    assert len([effect for effect in effects if isinstance(effect, Broadcast)]) == 1
    assert [type(message).__name__ for message in broadcasts(effects)] == ["Hello"] + ["TopologyControl"] * 2


def test_a_tc_of_a_node_that_is_no_symmetric_neighbor_is_discarded() -> None:
    bench = Bench()
    bench.hear(1, hello(7))
    bench.hear(1, tc(5, 6))
    assert len(bench.router.topology) == 0


def test_routes_come_from_hellos_and_tcs() -> None:
    bench = Bench()
    bench.hear(1, hello(ME, 2))
    bench.hear(1, tc(2, 1, 3), tc(3, 2, 4))
    assert {node: tuple(route) for node, route in bench.router.routes(0.0).items()} == {
        1: (1, 1),
        2: (1, 2),
        3: (1, 3),
        4: (1, 4),
    }
    assert bench.router.hops_to(0.0, 4) == 4
    assert bench.router.hops_to(0.0, ME) == 0
    assert bench.router.hops_to(0.0, 9) is None
    bench.hear(1, tc(2, 1, number=2, ansn=2))
    assert bench.router.hops_to(0.0, 4) is None, "a newer ANSN removes what the older one had"


def test_the_topology_expires() -> None:
    bench = Bench()
    bench.hear(1, hello(ME, 2, validity_s=100.0), tc(2, 3))
    assert bench.router.hops_to(14.0, 3) == 3
    assert bench.router.hops_to(15.0, 3) is None
    assert len(bench.router.topology) == 0


def test_of_equal_routes_that_over_the_more_willing_neighbor_is_taken() -> None:
    bench = Bench()
    bench.hear(1, hello(ME, 5))
    bench.hear(2, hello(ME, 5, willingness=6))
    assert bench.router.find_next_hop(0.0, 5) == 2


def test_a_neighbor_that_never_forwards_is_no_next_hop() -> None:
    bench = Bench()
    bench.hear(1, hello(ME, 5, willingness=0))
    assert bench.router.hops_to(0.0, 1) == 1
    assert bench.router.hops_to(0.0, 5) is None


def test_a_failed_unicast_breaks_the_link_if_the_link_layer_is_asked() -> None:
    for detection, left in (("hello", 2), ("link_layer", None)):
        bench = Bench(detection=detection)
        bench.hear(1, hello(ME, 2))
        bench.router.on_route(0.0, 2, parcel())
        (sent,) = [effect for effect in bench.port.take() if isinstance(effect, Send)]
        assert sent.target == 1
        assert sent.token is not None
        bench.router.on_sent(0.0, sent.token, Failure.UNREACHABLE)
        assert bench.router.hops_to(0.0, 2) == left
        assert drops(bench.port.take()) == [Failure.UNREACHABLE if left else "no_route"]
        assert bench.upcalls.given_up == [(2, b"x")]


def test_a_packet_whose_link_failed_takes_another_way() -> None:
    bench = Bench(detection="link_layer")
    bench.hear(1, hello(ME, 5))
    bench.hear(2, hello(ME, 5))
    bench.router.on_route(0.0, 5, parcel())
    (sent,) = [effect for effect in bench.port.take() if isinstance(effect, Send)]
    assert (sent.target, sent.token) == (1, 1)
    bench.router.on_sent(0.5, 1, Failure.UNREACHABLE)
    (again,) = [effect for effect in bench.port.take() if isinstance(effect, Send)]
    assert again.target == 2
    assert isinstance(again.message, DataPacket)
    assert again.message.parcel.waited_s == 0.5


def test_a_relay_that_loses_a_selector_sends_its_tc_soon() -> None:
    for early, due in ((True, [0.0]), (False, [])):
        bench = Bench(early_tc=early, detection="link_layer")
        bench.router.on_start(0.0)
        bench.hear(1, hello(mprs=(ME,)))
        bench.timer("tc")
        bench.router.on_link_down(0.0, Link(1, "radio", 0.001), Failure.SILENT)
        timers = [effect for effect in bench.port.take() if isinstance(effect, SetTimer)]
        assert [timer.delay_s for timer in timers if timer.key == "tc"] == due


def test_tcs_far_more_frequent_than_hellos_keep_their_interval() -> None:
    bench = Bench(tc_interval_s=0.001, hello_interval_s=3600.0, max_jitter=0.25)
    for _ in range(20):
        bench.router.on_timer(0.0, "tc")
        (timer,) = [effect for effect in bench.port.take() if isinstance(effect, SetTimer) and effect.key == "tc"]
        assert 0.00075 <= timer.delay_s <= 0.001


def test_a_restarted_node_has_greater_sequence_numbers() -> None:
    bench = Bench(incarnation=3)
    bench.hear(1, hello(mprs=(ME,)))
    (message,) = broadcasts(bench.timer("tc"))
    assert isinstance(message, TopologyControl)
    assert message.number > 3 << 32
    assert message.ansn > 3 << 32


# Drops.


def test_packets_are_dropped_by_name() -> None:
    bench = Bench(max_hops=4)
    bench.hear(1, hello(ME))
    assert drops(bench.packet(1, 5, 9)) == ["no_route"]
    assert drops(bench.packet(1, ME, 9)) == ["packet_returned"]
    assert drops(bench.packet(1, 5, 9, hops=4)) == ["hops_exhausted"]
    bench.router.on_route(0.0, Place(Position(1.0, 1.0)), parcel())
    assert drops(bench.port.take()) == ["place_without_node"]
    bench.router.on_route(0.0, 1, parcel())
    bench.router.on_sent(0.0, 1, Failure.QUEUE_FULL)
    assert drops(bench.port.take()) == ["queue_full"]
    assert bench.router.hops_to(0.0, 1) == 1


def test_control_messages_are_dropped_by_name() -> None:
    bench = Bench(max_links=3, max_duplicates=2)
    bench.hear(1, hello(ME))
    assert drops(bench.hear(1, tc(5, 6, 7, ansn=2), tc(5, 8, number=2, ansn=1))) == ["tc_stale"]
    assert drops(bench.hear(1, tc(8, 9, number=3))) == ["tc_storm"]
    bench.now = 31.0
    bench.hear(1, hello(ME))
    assert drops(bench.hear(1, tc(8, 1, 2, 3, 4, number=9))) == ["table_full"]
    for node in range(2, MAX_LISTED + 1):
        bench.hear(node, hello())
    assert drops(bench.hear(5000, hello())) == ["too_many_neighbors"]
