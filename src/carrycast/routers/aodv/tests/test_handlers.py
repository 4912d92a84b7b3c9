"""AODV handler by handler: what each message makes a node say."""

from carrycast.core.model import Failure, Position
from carrycast.core.protocol import Link, Place
from carrycast.core.protocol.effects import CancelTimer, Send, SetTimer
from carrycast.routers.aodv.messages import Hello, Packet, RouteError, RouteReply, RouteRequest
from carrycast.routers.aodv.tests.bench import ME, Bench, drops, packet, reply, request, said


def test_a_search_asks_in_rings_each_with_a_higher_number_and_a_new_id() -> None:
    bench = Bench()
    effects = bench.route(7)
    seen = []
    while True:
        ((_, asked),) = said(effects) or ((None, None),)
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
    assert bench.told.given_up == [(7, b"x")]


def test_a_reply_ends_the_search_and_releases_what_waits() -> None:
    bench = Bench()
    bench.route(7, b"first")
    assert said(bench.route(7, b"second")) == [], "one search serves both"
    effects = bench.hear(1, reply(ME, 7, hops=2))
    assert CancelTimer(("discovery", 7)) in effects
    assert [
        (effect.target, effect.message.parcel.body, effect.message.hops)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Packet)
    ] == [(1, b"first", 1), (1, b"second", 1)]
    assert bench.router.hops_to(0.0, 7) == 3


def test_the_target_answers_with_its_number_or_the_one_it_is_asked_for() -> None:
    bench = Bench()
    (answer,) = said(bench.hear(1, request(5, ME, hops=1)))
    assert answer == (1, RouteReply(5, ME, 1, 0, 6000))
    (answer,) = said(bench.hear(1, request(5, ME, rreq_id=2, sequence=2, asked=4)))
    assert answer == (1, RouteReply(5, ME, 4, 0, 6000))


def test_the_target_of_ns2_raises_its_number_for_each_answer() -> None:
    bench = Bench(raise_on_reply=True)
    (answer,) = said(bench.hear(1, request(5, ME, asked=4)))
    assert answer == (1, RouteReply(5, ME, 5, 0, 6000))
    (answer,) = said(bench.hear(1, request(5, ME, rreq_id=2, sequence=2, asked=4)))
    assert answer == (1, RouteReply(5, ME, 6, 0, 6000))


def test_a_request_is_passed_on_once_with_the_greatest_number_known() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=3, sequence=10)
    bench.router.on_link_up(0.0, Link(2, "radio", 0.001))
    bench.router.on_link_down(0.0, Link(2, "radio", 0.001), Failure.OUT_OF_REACH)
    bench.port.take()
    asked = request(5, 7, hops=1, ttl=4, asked=3)
    assert said(bench.hear(1, asked)) == [(None, request(5, 7, hops=2, ttl=3, asked=11))]
    assert said(bench.hear(3, asked)) == [], "the same one over another neighbor"
    assert bench.router.hops_to(0.0, 5) == 2, "and the way back is laid"


def test_a_request_goes_no_further_than_its_time_to_live() -> None:
    bench = Bench()
    assert said(bench.hear(1, request(5, 7, ttl=1))) == []
    assert said(bench.hear(1, request(5, 7, ttl=255, rreq_id=2)))[0][1] == request(5, 7, ttl=34, rreq_id=2, hops=1)


def test_who_has_a_fresh_route_answers_for_the_target_and_notes_who_relies_on_it() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=3, sequence=10)
    bench.now = 1.0
    (answer,) = said(bench.hear(1, request(5, 7, asked=10)))
    assert answer == (1, RouteReply(5, 7, 10, 3, 5000))
    route = bench.router.table.find_valid(1.0, 7)
    back = bench.router.table.find_valid(1.0, 5)
    assert route is not None
    assert back is not None
    assert list(route.precursors) == [1]
    assert list(back.precursors) == [2]


def test_a_route_that_is_too_old_is_no_answer() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=3, sequence=10)
    ((_, passed),) = said(bench.hear(1, request(5, 7, asked=11)))
    assert isinstance(passed, RouteRequest)
    ((_, passed),) = said(bench.hear(1, request(5, 7, rreq_id=2, destination_only=True)))
    assert isinstance(passed, RouteRequest), "flag D"
    ((_, passed),) = said(bench.hear(2, request(5, 7, rreq_id=3)))
    assert isinstance(passed, RouteRequest), "the next hop itself is asking around"


def test_a_gratuitous_reply_tells_the_target_of_who_asked() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=3, sequence=10)
    answers = said(bench.hear(1, request(5, 7, sequence=4, hops=1, gratuitous=True)))
    assert answers[1] == (2, RouteReply(7, 5, 4, 2, round(1000 * (5.6 - 2 * 2 * 0.04))))


def test_a_reply_goes_back_the_way_its_request_came_if_it_was_news() -> None:
    bench = Bench()
    bench.hear(1, request(5, 7))
    assert said(bench.hear(2, reply(5, 7, sequence=3, hops=1))) == [(1, reply(5, 7, sequence=3, hops=2))]
    assert said(bench.hear(2, reply(5, 7, sequence=3, hops=1))) == []
    assert said(bench.hear(3, reply(5, 7, sequence=3, hops=4))) == []
    assert drops(bench.hear(3, reply(6, 7, sequence=4))) == ["no_way_back"]


def test_one_precursor_is_told_by_unicast_and_several_by_broadcast() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=3, sequence=10)
    bench.hear(1, request(5, 7))
    assert said(bench.hear(2, RouteError(((7, 11),)))) == [(1, RouteError(((7, 11),)))]
    bench.knows(7, via=2, hops=3, sequence=12)
    bench.hear(1, request(5, 7, rreq_id=2, sequence=2))
    bench.hear(3, request(6, 7))
    assert said(bench.hear(2, RouteError(((7, 0),)))) == [(None, RouteError(((7, 13),)))]


def test_an_error_counts_only_from_the_next_hop_and_if_it_is_newer() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=3, sequence=10)
    bench.hear(3, RouteError(((7, 11),)))
    assert bench.router.hops_to(0.0, 7) == 3
    assert drops(bench.hear(2, RouteError(((7, 10),)))) == ["error_stale"]
    bench.hear(2, RouteError(((7, 11),), no_delete=True))
    assert bench.router.hops_to(0.0, 7) == 3
    bench.hear(2, RouteError(((7, 11),)))
    assert bench.router.hops_to(0.0, 7) is None


def test_a_packet_for_which_there_is_no_route_is_answered_with_an_error() -> None:
    bench = Bench()
    effects = bench.hear(1, packet(5, 7))
    assert drops(effects) == ["no_route"]
    assert said(effects) == [(1, RouteError(((7, 0),)))]


def test_packets_prolong_the_routes_they_use_both_ways() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=3, lifetime_ms=3000)
    bench.hear(1, request(5, 99))
    bench.now = 2.0
    assert said(bench.hear(1, packet(5, 7))) == [(2, packet(5, 7, hops=2))]
    for node in (1, 2, 7):
        route = bench.router.table.find_valid(2.0, node)
        assert route is not None
        assert route.expires_at == 5.0
    assert bench.router.hops_to(4.9, 7) == 3
    assert bench.router.hops_to(5.0, 7) is None


def test_a_full_queue_breaks_no_route() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=3)
    (sent,) = (effect for effect in bench.route(7) if isinstance(effect, Send))
    assert sent.token is not None
    bench.router.on_sent(0.0, sent.token, Failure.QUEUE_FULL)
    assert drops(bench.port.take()) == ["queue_full"]
    assert bench.told.given_up == [(7, b"x")]
    assert bench.router.hops_to(0.0, 7) == 3


def test_with_hellos_a_send_that_fails_says_nothing_of_the_link() -> None:
    bench = Bench(detection="hello")
    bench.knows(7, via=2, hops=3)
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
    bench.knows(7, via=2, hops=3)
    bench.router.on_link_down(0.0, Link(2, "radio", 0.001), Failure.OUT_OF_REACH)
    assert bench.router.hops_to(0.0, 7) == 3
    bench.router.on_link_down(0.0, Link(2, "wire", 0.001), Failure.OUT_OF_REACH)
    assert bench.router.hops_to(0.0, 7) is None


def test_a_place_means_the_node_that_is_there() -> None:
    bench = Bench()
    bench.knows(7, via=2, hops=1)
    at = Position(1.0, 1.0)
    assert said(bench.route(Place(at, 0.0, 7))) == [(2, packet(ME, 7))]
    assert drops(bench.route(Place(at, 50.0))) == ["place_without_node"]
    assert bench.told.given_up == [(Place(at, 50.0), b"x")]


def test_requests_of_ones_own_wait_for_the_rate_limit() -> None:
    bench = Bench(request_rate=2)
    asked = [said(bench.route(target)) for target in (7, 8)]
    assert [len(messages) for messages in asked] == [1, 1]
    effects = bench.route(9)
    assert said(effects) == []
    assert SetTimer(("discovery", 9), 1.0) in effects
    bench.router.on_timer(1.0, ("discovery", 9))
    assert len(said(bench.port.take())) == 1


def test_a_node_that_has_just_started_anew_keeps_quiet_but_answers_for_itself() -> None:
    bench = Bench(incarnation=1)
    assert said(bench.route(7)) == []
    assert said(bench.hear(1, request(5, 7))) == []
    ((_, answer),) = said(bench.hear(1, request(5, ME, rreq_id=2, sequence=2)))
    assert isinstance(answer, RouteReply)
    assert answer.destination_sequence == 2**32 + 1, "above all that it had before"
    effects = bench.hear(1, packet(5, 8))
    assert SetTimer("reboot", 15.0) in effects, "somebody still routes over it: it waits anew"
    bench.router.on_timer(15.0, "reboot")
    assert [message for _, message in said(bench.port.take())]


def test_the_time_that_a_packet_waits_for_a_route_or_for_an_outcome_is_on_its_parcel() -> None:
    bench = Bench()
    bench.route(7)
    bench.now = 2.0
    sent = [message for _, message in said(bench.hear(1, reply(ME, 7))) if isinstance(message, Packet)]
    assert [message.parcel.waited_s for message in sent] == [2.0]
    bench.router.on_sent(2.5, 1, Failure.UNREACHABLE)
    bench.port.take()
    bench.now = 3.0
    sent = [message for _, message in said(bench.hear(2, reply(ME, 7, sequence=9))) if isinstance(message, Packet)]
    assert [message.parcel.waited_s for message in sent] == [3.0], "all of it, and none of it twice"
