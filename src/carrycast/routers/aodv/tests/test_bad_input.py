"""Bad input: each a drop with a name, and tables that do not grow with it."""

import pytest

from carrycast.core.model import Failure
from carrycast.core.protocol.effects import Send
from carrycast.core.wire import Codec, DecodeError, Layer, Message
from carrycast.routers.aodv.messages import Hello, Packet, RouteError
from carrycast.routers.aodv.tests.bench import ME, Bench, drops, packet, reply, request, sent_messages

HUGE = 2**32 - 1


@pytest.mark.parametrize(
    "message",
    [
        request(7, 8, sequence=HUGE),
        request(5, 7, asked=HUGE),
        request(5, ME, asked=HUGE),
        request(5, ME, asked=2**62),
        reply(ME, 7, HUGE),
        RouteError(((7, HUGE),)),
    ],
)
def test_a_forged_sequence_number_is_rejected(message: Message) -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3, sequence=10)
    assert drops(bench.hear(2, message)) == ["sequence_forged"]
    route = bench.router.table.find(0.0, 7)
    assert route is not None
    assert route.sequence in (10, 11)
    ((_, answer),) = sent_messages(bench.hear(1, request(6, ME)))
    assert answer == reply(6, ME, 1, 0), "the own number is as it was"


def test_a_forged_hello_is_rejected() -> None:
    bench = Bench()
    bench.hear(2, Hello(5))
    assert drops(bench.hear(2, Hello(HUGE))) == ["sequence_forged"]


def test_a_storm_of_rreqs_by_one_node_is_not_forwarded() -> None:
    bench = Bench()
    effects = [bench.hear(1, request(5, 7, rreq_id=n, sequence=n)) for n in range(1, 101)]
    assert sum(len(sent_messages(found)) for found in effects) == 20
    assert sum(drops(found) == ["request_rate"] for found in effects) == 80
    bench.now = 1.0
    assert sent_messages(bench.hear(1, request(5, 7, rreq_id=200, sequence=200))), "and a second later it may ask again"


def test_a_storm_of_rreqs_by_invented_nodes_is_bounded_in_memory() -> None:
    bench = Bench(max_requests=50, max_routes=40)
    reasons = []
    for origin in range(10, 210):
        reasons += drops(bench.hear(1, request(origin, 7)))
    assert set(reasons) == {"table_full", "request_storm"}
    assert len(bench.router.table) == 40
    bench.now = 30.0
    assert sent_messages(bench.hear(1, request(5, 7))), "and when it is over all is well again"


def test_a_full_table_refuses_new_neighbors_and_replies() -> None:
    bench = Bench(max_routes=1)
    bench.hear(1, request(5, ME))
    assert drops(bench.hear(2, reply(ME, 7))) == ["table_full"]
    assert drops(bench.hear(1, reply(ME, 7))) == ["table_full"]


def test_a_rrep_about_the_node_itself_makes_no_route() -> None:
    bench = Bench()
    assert drops(bench.hear(1, reply(5, ME, 3))) == ["route_to_self"]


def test_a_packet_that_returns_to_its_origin_or_has_too_many_hops_is_dropped() -> None:
    bench = Bench()
    bench.add_route(7, via=2, hops=3)
    assert drops(bench.hear(1, packet(ME, 7))) == ["packet_returned"]
    assert drops(bench.hear(1, packet(5, 7, hops=64))) == ["hops_exhausted"]
    assert sent_messages(bench.hear(1, packet(5, 7, hops=63)))


def test_the_greatest_hop_count_is_rejected() -> None:
    bench = Bench()
    assert drops(bench.hear(1, request(5, 7, hops=255))) == ["hops_exhausted"]
    assert drops(bench.hear(1, reply(ME, 7, hops=255))) == ["hops_exhausted"]
    assert (bench.router.hops_to(0.0, 5), bench.router.hops_to(0.0, 7)) == (None, None)
    bench.hear(1, reply(ME, 7, hops=254))
    assert bench.router.hops_to(0.0, 7) == 255


def test_a_rrep_cannot_exceed_the_lifetime_that_a_destination_gives() -> None:
    bench = Bench()
    bench.hear(1, reply(ME, 7, lifetime_ms=2**32 - 1))
    assert bench.router.hops_to(5.9, 7) == 1
    assert bench.router.hops_to(6.0, 7) is None


def test_a_neighbor_that_rreps_do_not_reach_is_on_the_blacklist_for_a_while() -> None:
    bench = Bench()
    (sent,) = (effect for effect in bench.hear(1, request(5, ME)) if isinstance(effect, Send))
    assert sent.token is not None
    bench.router.on_sent(0.0, sent.token, Failure.UNREACHABLE)
    bench.port.take()
    again = request(5, ME, rreq_id=2, sequence=2)
    assert drops(bench.hear(1, again)) == ["one_way_link"]
    assert sent_messages(bench.hear(3, again)), "over another neighbor it is answered"
    bench.now = 5.7
    assert sent_messages(bench.hear(1, request(5, ME, rreq_id=3, sequence=3)))


def test_the_rate_of_rerrs_is_limited() -> None:
    bench = Bench(error_rate=3)
    reasons = [drops(bench.hear(1, packet(5, target))) for target in range(20, 30)]
    assert reasons[:3] == [["no_route"]] * 3
    assert reasons[3:] == [["error_rate", "no_route"]] * 7


def test_a_broken_link_of_many_routes_needs_several_rerrs() -> None:
    bench = Bench()
    for target in range(100, 250):
        bench.add_route(target, via=2, hops=2)
        route = bench.router.table.find_valid(0.0, target)
        assert route is not None
        route.add_precursor(1)
    (sent,) = (effect for effect in bench.route(100) if isinstance(effect, Send))
    assert isinstance(sent.message, Packet)
    assert sent.token is not None
    bench.router.on_sent(0.0, sent.token, Failure.UNREACHABLE)
    errors = [message for _, message in sent_messages(bench.port.take()) if isinstance(message, RouteError)]
    assert [len(error.unreachable) for error in errors] == [64, 64, 22]


def test_absurd_fields_do_not_survive_decoding() -> None:
    codec = Codec(Layer.ROUTING, "aodv", (type(request(1, 2)), RouteError))
    for message in (
        request(1, 2, sequence=0),
        request(1, 2, hops=256),
        request(-1, 2),
        RouteError(tuple((n, 1) for n in range(65))),
    ):
        with pytest.raises(DecodeError):
            codec.decode(codec.encode(message))
