"""AODV handler by handler: what each message makes a node say."""

from carrycast.core.model import Failure, Position
from carrycast.core.protocol import Link, Place
from carrycast.core.protocol.effects import CancelTimer, Send, SetTimer
from carrycast.routers.aodv.messages import Hello, Packet, RouteError, RouteReply, RouteRequest
from carrycast.routers.aodv.tests.bench import ME, Bench, drops, packet, reply, request, sent_messages


def test_each_rreq_of_a_ring_search_has_a_higher_sequence_number_and_a_new_id() -> None:
    bench = Bench()
    effects = bench.route(7)
    seen = []
    while True:
        ((_, asked),) = sent_messages(effects) or ((None, None),)
        if asked is None:
            break
        assert isinstance(asked, RouteRequest)
        (timer,) = (effect for effect in effects if isinstance(effect, SetTimer))
        assert timer.key == ("discovery", 7)
        seen.append((asked.ttl, asked.originator_sequence, asked.rreq_id, asked.destination_sequence))
        bench.now += timer.delay_s
        bench.router.on_timer(bench.now, ("discovery", 7))
        effects = bench.port.take()
    assert [ttl for ttl, *_ in seen] == [1, 3, 5, 7, 35, 35, 35]
    assert [sequence for _, sequence, _, _ in seen] == [2, 3, 4, 5, 6, 7, 8]
    assert [rreq_id for *_, rreq_id, _ in seen] == [1, 2, 3, 4, 5, 6, 7]
    assert drops(effects) == ["not_found"]
    assert bench.upcalls.given_up == [(7, b"x")]


def test_a_rrep_ends_the_discovery_and_buffered_packets_are_sent() -> None:
    bench = Bench()
    bench.route(7, b"first")
    assert sent_messages(bench.route(7, b"second")) == [], "one search serves both"
    effects = bench.hear(1, reply(ME, 7, hops=2))
    assert CancelTimer(("discovery", 7)) in effects
    assert [
        (effect.target, effect.message.parcel.body, effect.message.hops)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Packet)
    ] == [(1, b"first", 1), (1, b"second", 1)]
    assert bench.router.hops_to(0.0, 7) == 3


def test_the_destination_replies_with_the_greater_of_its_number_and_that_of_the_rreq() -> None:
    bench = Bench()
    (answer,) = sent_messages(bench.hear(1, request(5, ME, hops=1)))
    assert answer == (1, RouteReply(5, ME, 1, 0, 6000))
    (answer,) = sent_messages(bench.hear(1, request(5, ME, rreq_id=2, sequence=2, asked=4)))
    assert answer == (1, RouteReply(5, ME, 4, 0, 6000))


def test_the_destination_in_ns2_raises_its_number_for_each_rrep() -> None:
    bench = Bench(raise_on_reply=True)
    (answer,) = sent_messages(bench.hear(1, request(5, ME, asked=4)))
    assert answer == (1, RouteReply(5, ME, 5, 0, 6000))
    (answer,) = sent_messages(bench.hear(1, request(5, ME, rreq_id=2, sequence=2, asked=4)))
    assert answer == (1, RouteReply(5, ME, 6, 0, 6000))


def test_a_rreq_is_forwarded_once_with_the_greatest_number_known() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3, sequence=10)
    bench.router.on_link_up(0.0, Link(2, "radio", 0.001))
    bench.router.on_link_down(0.0, Link(2, "radio", 0.001), Failure.OUT_OF_REACH)
    bench.port.take()
    asked = request(5, 7, hops=1, ttl=4, asked=3)
    assert sent_messages(bench.hear(1, asked)) == [(None, request(5, 7, hops=2, ttl=3, asked=11))]
    assert sent_messages(bench.hear(3, asked)) == [], "the same one over another neighbor"
    assert bench.router.hops_to(0.0, 5) == 2, "and the way back is laid"


def test_a_rreq_is_forwarded_while_its_ttl_allows() -> None:
    bench = Bench()
    assert sent_messages(bench.hear(1, request(5, 7, ttl=1))) == []
    assert sent_messages(bench.hear(1, request(5, 7, ttl=255, rreq_id=2)))[0][1] == request(
        5, 7, ttl=34, rreq_id=2, hops=1
    )


def test_an_intermediate_node_with_a_fresh_route_replies_and_adds_precursors() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3, sequence=10)
    bench.now = 1.0
    (answer,) = sent_messages(bench.hear(1, request(5, 7, asked=10)))
    assert answer == (1, RouteReply(5, 7, 10, 3, 5000))
    route = bench.router.table.find_valid(1.0, 7)
    back = bench.router.table.find_valid(1.0, 5)
    assert route is not None
    assert back is not None
    assert list(route.precursors) == [1]
    assert list(back.precursors) == [2]


def test_an_intermediate_node_with_an_outdated_route_forwards_the_rreq() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3, sequence=10)
    ((_, passed),) = sent_messages(bench.hear(1, request(5, 7, asked=11)))
    assert isinstance(passed, RouteRequest)
    ((_, passed),) = sent_messages(bench.hear(1, request(5, 7, rreq_id=2, destination_only=True)))
    assert isinstance(passed, RouteRequest), "flag D"
    ((_, passed),) = sent_messages(bench.hear(2, request(5, 7, rreq_id=3)))
    assert isinstance(passed, RouteRequest), "the next hop itself is asking around"


def test_a_gratuitous_rrep_gives_the_destination_a_route_to_the_originator() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3, sequence=10)
    answers = sent_messages(bench.hear(1, request(5, 7, sequence=4, hops=1, gratuitous=True)))
    assert answers[1] == (2, RouteReply(7, 5, 4, 2, round(1000 * (5.6 - 2 * 2 * 0.04))))


def test_a_rrep_is_forwarded_on_the_reverse_route_if_it_changed_the_table() -> None:
    bench = Bench()
    bench.hear(1, request(5, 7))
    assert sent_messages(bench.hear(2, reply(5, 7, sequence=3, hops=1))) == [(1, reply(5, 7, sequence=3, hops=2))]
    assert sent_messages(bench.hear(2, reply(5, 7, sequence=3, hops=1))) == []
    assert sent_messages(bench.hear(3, reply(5, 7, sequence=3, hops=4))) == []
    assert drops(bench.hear(3, reply(6, 7, sequence=4))) == ["no_way_back"]


def test_a_rerr_is_unicast_to_one_precursor_and_broadcast_to_several() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3, sequence=10)
    bench.hear(1, request(5, 7))
    assert sent_messages(bench.hear(2, RouteError(((7, 11),)))) == [(1, RouteError(((7, 11),)))]
    bench.add_route(7, via=2, hops=3, sequence=12)
    bench.hear(1, request(5, 7, rreq_id=2, sequence=2))
    bench.hear(3, request(6, 7))
    assert sent_messages(bench.hear(2, RouteError(((7, 0),)))) == [(None, RouteError(((7, 13),)))]


def test_a_rerr_invalidates_a_route_only_if_it_is_newer_and_from_the_next_hop() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3, sequence=10)
    bench.hear(3, RouteError(((7, 11),)))
    assert bench.router.hops_to(0.0, 7) == 3
    assert drops(bench.hear(2, RouteError(((7, 10),)))) == ["error_stale"]
    bench.hear(2, RouteError(((7, 11),), no_delete=True))
    assert bench.router.hops_to(0.0, 7) == 3
    bench.hear(2, RouteError(((7, 11),)))
    assert bench.router.hops_to(0.0, 7) is None


def test_a_packet_without_a_route_is_answered_with_a_rerr() -> None:
    bench = Bench()
    effects = bench.hear(1, packet(5, 7))
    assert drops(effects) == ["no_route"]
    assert sent_messages(effects) == [(1, RouteError(((7, 0),)))]


def test_packets_prolong_the_routes_to_their_origin_and_destination() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3, lifetime_ms=3000)
    bench.hear(1, request(5, 99))
    bench.now = 2.0
    assert sent_messages(bench.hear(1, packet(5, 7))) == [(2, packet(5, 7, hops=2))]
    for node in (1, 2, 7):
        route = bench.router.table.find_valid(2.0, node)
        assert route is not None
        assert route.expires_at == 5.0
    assert bench.router.hops_to(4.9, 7) == 3
    assert bench.router.hops_to(5.0, 7) is None


def test_a_full_queue_breaks_no_route() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3)
    (sent,) = (effect for effect in bench.route(7) if isinstance(effect, Send))
    assert sent.token is not None
    bench.router.on_sent(0.0, sent.token, Failure.QUEUE_FULL)
    assert drops(bench.port.take()) == ["queue_full"]
    assert bench.upcalls.given_up == [(7, b"x")]
    assert bench.router.hops_to(0.0, 7) == 3


def test_with_hellos_a_failed_send_does_not_break_the_link() -> None:
    bench = Bench(detection="hello")
    bench.add_route(7, via=2, hops=3)
    (sent,) = (effect for effect in bench.route(7) if isinstance(effect, Send))
    assert sent.token is not None
    bench.router.on_sent(0.0, sent.token, Failure.UNREACHABLE)
    assert bench.router.hops_to(0.0, 7) == 3
    bench.hear(2, Hello(4))
    bench.router.on_timer(0.0, ("neighbor", 2))
    assert bench.router.hops_to(0.0, 7) is None


def test_a_neighbor_is_lost_with_its_last_link_only() -> None:
    bench = Bench()
    for interface in ("radio", "wire"):
        bench.router.on_link_up(0.0, Link(2, interface, 0.001))
    bench.add_route(7, via=2, hops=3)
    bench.router.on_link_down(0.0, Link(2, "radio", 0.001), Failure.OUT_OF_REACH)
    assert bench.router.hops_to(0.0, 7) == 3
    bench.router.on_link_down(0.0, Link(2, "wire", 0.001), Failure.OUT_OF_REACH)
    assert bench.router.hops_to(0.0, 7) is None


def test_a_place_stands_for_the_node_that_it_names() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=1)
    at = Position(1.0, 1.0)
    assert sent_messages(bench.route(Place(at, 0.0, 7))) == [(2, packet(ME, 7))]
    assert drops(bench.route(Place(at, 50.0))) == ["place_without_node"]
    assert bench.upcalls.given_up == [(Place(at, 50.0), b"x")]


def test_own_rreqs_wait_for_the_rate_limit() -> None:
    bench = Bench(request_rate=2)
    asked = [sent_messages(bench.route(target)) for target in (7, 8)]
    assert [len(messages) for messages in asked] == [1, 1]
    effects = bench.route(9)
    assert sent_messages(effects) == []
    assert SetTimer(("discovery", 9), 1.0) in effects
    bench.router.on_timer(1.0, ("discovery", 9))
    assert len(sent_messages(bench.port.take())) == 1


def test_a_rebooted_node_sends_no_rreq_but_replies_for_itself() -> None:
    bench = Bench(incarnation=1)
    assert sent_messages(bench.route(7)) == []
    assert sent_messages(bench.hear(1, request(5, 7))) == []
    ((_, answer),) = sent_messages(bench.hear(1, request(5, ME, rreq_id=2, sequence=2)))
    assert isinstance(answer, RouteReply)
    assert answer.destination_sequence == 2**32 + 1, "above all that it had before"
    effects = bench.hear(1, packet(5, 8))
    assert SetTimer("reboot", 15.0) in effects, "somebody still routes over it: it waits anew"
    bench.router.on_timer(15.0, "reboot")
    assert [message for _, message in sent_messages(bench.port.take())]


def test_a_parcel_includes_the_time_that_it_waited_for_a_route_or_an_outcome() -> None:
    bench = Bench()
    bench.route(7)
    bench.now = 2.0
    sent = [message for _, message in sent_messages(bench.hear(1, reply(ME, 7))) if isinstance(message, Packet)]
    assert [message.parcel.waited_s for message in sent] == [2.0]
    bench.router.on_sent(2.5, 1, Failure.UNREACHABLE)
    bench.port.take()
    bench.now = 3.0
    sent = [
        message for _, message in sent_messages(bench.hear(2, reply(ME, 7, sequence=9))) if isinstance(message, Packet)
    ]
    assert [message.parcel.waited_s for message in sent] == [3.0], "all of it, and none of it twice"
