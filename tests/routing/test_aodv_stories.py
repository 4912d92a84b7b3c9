"""AODV in the simulator: routes are found, used, lost and mended."""

import networkx as nx
import pytest

from tests.routing.networks import aodv, arrived, courier, loop, next_hops, over

VARIANTS = ["rfc3561", "ns2"]
LINE = [(0, 1), (1, 2), (2, 3), (3, 4)]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_packet_finds_its_way_along_a_line_and_back(variant: str) -> None:
    net = over("aodv", LINE, variant=variant)
    net.publish(0, {"to": 4})
    net.run(5)
    assert [(letter.origin, letter.hops) for letter in arrived(net, 4)] == [(0, 4)]
    requests = net.count_sent("RouteRequest")
    net.publish(4, {"to": 0})
    net.run(1)
    assert [(letter.origin, letter.hops) for letter in arrived(net, 0)] == [(4, 4)]
    assert net.count_sent("RouteRequest") == requests, "the request had laid the way back"


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_node_that_is_not_there_is_given_up_and_said_so(variant: str) -> None:
    net = over("aodv", [(0, 1)], variant=variant)
    event = net.publish(0, {"to": 77})
    net.run(60)
    assert courier(net, 0).refused == [event.id.sequence]
    assert net.count_dropped("not_found") == 1
    rings = {"rfc3561": 4 + 3, "ns2": 2 + 4}
    assert net.count_sent("RouteRequest", node=0) == rings[variant]


def test_an_error_reaches_the_source_and_ends_every_route_on_the_way() -> None:
    net = over("aodv", LINE, tables={"discovery": {"mode": "none"}}, local_repair="off")
    net.publish(0, {"to": 4})
    net.run(2)
    assert [aodv(net, node).hops_to(net.now, 4) for node in range(4)] == [4, 3, 2, 1]
    net.cut(3, 4)
    net.publish(0, {"to": 4})
    net.run(0.2)
    assert [aodv(net, node).hops_to(net.now, 4) for node in range(4)] == [None] * 4
    assert net.count_sent("RouteError") == 3
    assert net.count_dropped("unreachable") == 1
    net.heal(3, 4)
    net.publish(0, {"to": 4})
    net.run(5)
    assert len(arrived(net, 4)) == 2, "the next one finds the new route"


def test_a_break_near_the_target_is_repaired_where_it_is() -> None:
    # 0 - 1 - 2 - 3 - 4 and a way round the last link: 3 - 5 - 4.
    net = over("aodv", [*LINE, (3, 5), (5, 4)], tables={"discovery": {"mode": "none"}})
    net.publish(0, {"to": 4})
    net.run(2)
    net.cut(3, 4)
    asked = net.count_sent("RouteRequest", node=0)
    net.publish(0, {"to": 4})
    net.run(0.5)
    assert [letter.hops for letter in arrived(net, 4)] == [4, 5]
    assert net.count_sent("RouteRequest", node=0) == asked, "the origin did not have to search"
    assert net.rows("send", message="RouteError"), "flag N: the route has become longer"
    assert aodv(net, 0).hops_to(net.now, 4) == 4, "and nobody drops theirs for it"


def test_a_repair_that_fails_is_told_upstream() -> None:
    net = over("aodv", LINE, tables={"discovery": {"mode": "none"}})
    net.publish(0, {"to": 4})
    net.run(2)
    net.cut(3, 4)
    net.publish(0, {"to": 4})
    net.run(2)
    assert net.count_dropped("not_repaired") == 1
    assert aodv(net, 0).hops_to(net.now, 4) is None


@pytest.mark.parametrize(("rebuffer", "hops"), [(True, [1, 2]), (False, [1])])
def test_a_packet_whose_first_link_fails_waits_for_a_new_route_or_is_given_up(rebuffer: bool, hops: list[int]) -> None:
    net = over("aodv", [(0, 1), (0, 2), (2, 1)], tables={"discovery": {"mode": "none"}}, rebuffer=rebuffer)
    net.publish(0, {"to": 1})
    net.run(1)
    net.cut(0, 1)
    net.publish(0, {"to": 1})
    net.run(5)
    assert [letter.hops for letter in arrived(net, 1)] == hops
    assert len(courier(net, 0).refused) == 2 - len(hops)


@pytest.mark.parametrize("seed", range(6))
def test_routes_are_shortest_paths_on_static_graphs(seed: int) -> None:
    graph = nx.connected_watts_strogatz_graph(25, 4, 0.3, seed=seed)
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    for target in (1, 7, 24):
        # Without jitter, and of equal links, the first copy of a request has come the shortest way.
        net = over("aodv", graph.edges, seed, forward_jitter_s=0)
        net.publish(0, {"to": target})
        net.run(10)
        assert [letter.hops for letter in arrived(net, target)] == [lengths[0][target]]
        for node in range(25):
            for other in range(25):
                hops = aodv(net, node).hops_to(net.now, other)
                assert hops is None or hops >= lengths[node][other]


def test_if_only_destinations_answer_one_asker_after_the_other_finds_them() -> None:
    net = over("aodv", LINE, destination_only=True)
    for origin in (2, 1, 0):
        net.publish(origin, {"to": 4})
        net.run(1)
    assert [letter.origin for letter in arrived(net, 4)] == [2, 1, 0]


def test_hellos_find_a_broken_link_that_nobody_sends_over() -> None:
    net = over("aodv", LINE, tables={"discovery": {"mode": "none"}}, detection="hello", active_route_timeout_s=60)
    net.publish(0, {"to": 4})
    net.run(5)
    assert net.count_sent("Hello") > 0
    net.cut(3, 4)
    net.run(4)
    assert aodv(net, 0).hops_to(net.now, 4) is None
    assert net.count_sent("RouteError") >= 3


def test_a_node_without_routes_says_no_hello() -> None:
    net = over("aodv", LINE, detection="hello")
    net.run(20)
    assert net.count_sent() == 0


def test_a_restarted_node_waits_before_it_asks_and_is_never_the_start_of_a_loop() -> None:
    net = over("aodv", LINE, tables={"discovery": {"mode": "none"}})
    net.publish(0, {"to": 4})
    net.run(1)
    net.crash(2)
    net.restart(2)
    net.publish(2, {"to": 4})
    net.run(10)
    assert net.count_sent("RouteRequest", node=2) <= 2, "only those of node 0 that it passed on before"
    assert arrived(net, 4) == arrived(net, 4)[:1]
    net.run(10)
    assert [letter.origin for letter in arrived(net, 4)] == [0, 2]
    assert loop(next_hops(net, 4, 5)) is None


def test_packets_that_wait_are_bounded_and_the_oldest_makes_room() -> None:
    net = over("aodv", [(0, 1)], buffer=3)
    events = [net.publish(0, {"to": 9}) for _ in range(5)]
    net.run(0)
    assert courier(net, 0).refused == [event.id.sequence for event in events[:2]]
    assert net.count_dropped("buffer_full") == 2


def test_packets_that_wait_too_long_are_dropped() -> None:
    net = over("aodv", [(0, 1)], buffer_s=1.0)
    net.publish(0, {"to": 9})
    net.run(3)
    assert net.count_dropped("buffer_timeout") == 1
    assert len(courier(net, 0).refused) == 1


def test_a_destination_that_was_not_found_is_left_alone_for_a_while() -> None:
    net = over("aodv", [(0, 1)], rest_s=10.0, request_retries=0)
    net.publish(0, {"to": 9})
    net.run(6)
    made = net.count_sent("RouteRequest", node=0)
    assert net.count_dropped("not_found") == 1
    net.publish(0, {"to": 9})
    net.run(6)
    assert net.count_sent("RouteRequest", node=0) == made
    net.run(5)
    assert net.count_sent("RouteRequest", node=0) > made


@pytest.mark.parametrize("settings", [{}, {"detection": "hello"}, {"variant": "ns2"}])
def test_no_timer_is_left_armed_after_a_clean_stop(settings: dict[str, object]) -> None:
    net = over("aodv", LINE, 1, {}, **settings)
    net.publish(0, {"to": 4})
    net.publish(1, {"to": 77})
    net.run(0.005)
    assert net.list_timers(0)
    net.run(0.5)
    assert net.list_timers(1)
    net.stop()
    assert [net.list_timers(node) for node in range(5)] == [[]] * 5


def test_a_run_with_the_same_seed_is_the_same_run() -> None:
    def fingerprint() -> str:
        net = over("aodv", [*LINE, (0, 2), (1, 4)], 7)
        for node in range(5):
            net.publish(node, {"to": (node + 3) % 5})
        net.run(10)
        return net.stop().fingerprint

    assert fingerprint() == fingerprint()
