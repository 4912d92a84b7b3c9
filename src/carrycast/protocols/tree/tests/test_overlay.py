"""The tree that brokers build among their links, clients that attach to one of them, and bad input to both."""

from random import Random

import networkx as nx
import pytest

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol.effects import Deliver
from carrycast.protocols.tree.messages import (
    BATCH,
    Advertise,
    Digest,
    ForwardedFilter,
    GroupHello,
    Publish,
    RecoveryDigest,
    RecoveryRequest,
    Subscribe,
    TableRequest,
    TableTransfer,
    Unsubscribe,
)
from carrycast.protocols.tree.overlay import BuiltTree, HomeBrokerLink
from carrycast.protocols.tree.tests.web import Web
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario

EVERYTHING = Subscription(SubscriptionId(0, 1), "true")


def build_tree_graph(web: Web) -> nx.Graph:
    """Build the graph of tree links, and check that both ends agree on them."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(web.nodes)))
    for node, machine in enumerate(web.nodes):
        for neighbor in machine.overlay.neighbors:
            assert node in web.nodes[neighbor].overlay.neighbors, (
                f"{node} has a tree link to {neighbor}, which has none to it"
            )
            graph.add_edge(node, neighbor)
    return graph


def check_trees(web: Web, links: nx.Graph) -> None:
    """Check that each component has one spanning tree, whose leader has the smallest id."""
    tree = build_tree_graph(web)
    assert nx.is_forest(tree)
    parts = list(nx.connected_components(links))
    assert sorted(map(sorted, nx.connected_components(tree))) == sorted(map(sorted, parts))
    for part in parts:
        for node in part:
            overlay = web.nodes[node].overlay
            assert isinstance(overlay, BuiltTree)
            assert overlay.leader == min(part)


@pytest.mark.parametrize("seed", range(4))
def test_components_become_trees_again_after_link_changes(seed: int) -> None:
    rng = Random(f"overlay {seed}")
    nodes = 8
    web = Web(nodes, None, group_s=1.0)
    links = nx.Graph()
    links.add_nodes_from(range(nodes))
    for node in range(nodes):
        subscription = Subscription(SubscriptionId(node, 1), f"role = 'r{node}'")
        web.nodes[node].on_subscribe(0.0, subscription)
    for _ in range(25):
        a, b = rng.sample(range(nodes), 2)
        if links.has_edge(a, b):
            links.remove_edge(a, b)
            web.cut(a, b)
        else:
            links.add_edge(a, b)
            web.link(a, b)
        web.run(rng.choice((0.0, 0.1, 1.5)))
    web.run(20.0)
    check_trees(web, links)
    # Every event is delivered within its component.
    for source in range(nodes):
        for role in range(nodes):
            event = Event(EventId(source, role), {"role": f"r{role}"})
            web.nodes[source].on_publish(web.now, event)
    web.settle()
    for role in range(nodes):
        got = [effect.event.id.source for effect in web.list_effects(role, Deliver) if isinstance(effect, Deliver)]
        assert sorted(got) == sorted(nx.node_connected_component(links, role))


def test_the_loss_of_a_broker_is_repaired_by_new_links() -> None:
    web = Web(6, None, group_s=1.0)
    for edge in ((0, 1), (1, 2), (1, 3), (1, 4), (2, 5), (3, 5), (4, 5)):
        web.link(*edge)
    web.run(5.0)
    assert build_tree_graph(web).degree(1) == 4
    for neighbor in (0, 2, 3, 4):
        web.cut(1, neighbor)
    web.run(10.0)
    # 0 has no other neighbor; the other three parts need two links besides the one to 5.
    tree = build_tree_graph(web)
    assert sorted(map(sorted, nx.connected_components(tree))) == [[0], [1], [2, 3, 4, 5]]
    assert tree.number_of_edges() == 3


def test_a_neighbor_nearer_to_the_leader_replaces_a_lost_parent_at_once() -> None:
    web = Web(4, None, group_s=5.0)
    for edge in ((0, 1), (0, 2), (1, 3), (2, 3)):
        web.link(*edge)
    web.run(10.0)
    overlay = web.nodes[3].overlay
    assert isinstance(overlay, BuiltTree)
    parent = overlay.parent
    assert parent in (1, 2)
    web.cut(3, parent)
    assert overlay.parent == 3 - parent
    check_trees(web, nx.Graph([(0, 1), (0, 2), (3, 3 - parent)]))


def test_a_leader_that_falls_silent_is_given_up() -> None:
    web = Web(3, None, group_s=1.0)
    web.link(0, 1)
    web.link(1, 2)
    # The messages of 0 no longer arrive, and no link is reported as lost.
    web.links -= {(0, 1), (1, 0)}
    web.run(10.0)
    overlay = web.nodes[2].overlay
    assert isinstance(overlay, BuiltTree)
    assert overlay.leader == 1


# Clients.


def test_a_client_that_loses_its_broker_attaches_to_another_with_its_subscriptions() -> None:
    web = Web(4, brokers=(1, 2, 3), links="given", defer_s=1.0)
    web.link(1, 2)
    web.link(2, 3)
    web.nodes[0].on_subscribe(0.0, EVERYTHING)
    web.link(0, 1)
    web.link(0, 3)
    home = web.nodes[0].overlay
    assert isinstance(home, HomeBrokerLink)
    assert home.home == 1
    web.nodes[2].on_publish(0.0, Event(EventId(2, 0), {}))
    web.settle()
    web.cut(0, 1)
    assert home.home == 3
    web.run(2.0)
    web.nodes[2].on_publish(web.now, Event(EventId(2, 1), {}))
    web.settle()
    assert [effect.event.id.sequence for effect in web.list_effects(0, Deliver) if isinstance(effect, Deliver)] == [
        0,
        1,
    ]
    # The old broker has removed its filters.
    assert web.collect_tables(1) == {(2, False): {"true": 1}}


def test_a_client_publishes_through_its_broker_and_forwards_nothing() -> None:
    web = Web(4, brokers=(1, 2), links="given")
    for edge in ((0, 1), (1, 2), (2, 3)):
        web.link(*edge)
    web.nodes[3].on_subscribe(0.0, Subscription(SubscriptionId(3, 1), "true"))
    web.settle()
    web.take_sent()
    web.nodes[0].on_publish(0.0, Event(EventId(0, 0), {}))
    web.settle()
    assert [(a, b) for a, b, message in web.take_sent() if isinstance(message, Publish)] == [(0, 1), (1, 2), (2, 3)]
    assert len(web.list_effects(3, Deliver)) == 1


def test_a_client_without_a_broker_delivers_its_own_events_and_nothing_is_sent() -> None:
    web = Web(2, brokers=(1,), links="given")
    web.nodes[0].on_subscribe(0.0, EVERYTHING)
    web.nodes[0].on_publish(0.0, Event(EventId(0, 0), {}))
    web.settle()
    assert len(web.list_effects(0, Deliver)) == 1
    assert web.take_sent() == []


# Lost messages, recovery.


def test_a_lost_subscription_is_detected_by_its_digest_and_sent_again() -> None:
    web = Web(2, None, links="given")
    web.link(0, 1)
    web.links -= {(0, 1)}
    web.nodes[0].on_subscribe(0.0, EVERYTHING)
    web.settle()
    web.links |= {(0, 1)}
    assert web.collect_tables(1) == {}
    for node in web.nodes:
        node.forwarding.refresh()
    web.settle()
    assert web.collect_tables(1) == {(0, False): {"true": 1}}
    web.take_sent()
    for node in web.nodes:
        node.forwarding.refresh()
    web.settle()
    assert [type(message) for _, _, message in web.take_sent()] == [Digest, Digest]


def test_tables_sent_before_the_link_was_known_are_requested_again() -> None:
    web = Web(2, brokers=(1,), links="given")
    web.nodes[1].on_message(0.0, 0, TableTransfer(False, True, True, (ForwardedFilter("true"),)), "radio")
    web.settle()
    assert web.list_drops(1) == ["not_a_tree_neighbor"]
    web.nodes[0].on_subscribe(0.0, EVERYTHING)
    web.link(0, 1)
    assert any(isinstance(message, TableRequest) for _, _, message in web.take_sent())
    assert web.collect_tables(1) == {(0, False): {"true": 1}}


def test_a_publication_lost_on_a_broken_link_is_recovered_by_gossip() -> None:
    web = Web(3, None, links="given", recover_s=1.0)
    web.link(0, 1)
    web.link(1, 2)
    web.nodes[0].on_subscribe(0.0, EVERYTHING)
    web.settle()
    web.cut(0, 1)
    event = Event(EventId(2, 0), {}, lease_s=100.0)
    web.nodes[2].on_publish(web.now, event)
    web.settle()
    web.run(1.0)
    assert web.list_effects(0, Deliver) == []
    web.link(0, 1)
    web.run(10.0)
    assert web.list_effects(0, Deliver) == [Deliver(EVERYTHING.id, event, 2)]
    assert [fact.value for _, fact in web.list_facts("recover")] == [1.0]


def test_recovery_sends_no_expired_events_and_ignores_other_nodes() -> None:
    web = Web(2, None, links="given", recover_s=1.0)
    web.link(0, 1)
    web.nodes[1].on_publish(0.0, Event(EventId(1, 0), {}, lease_s=5.0))
    web.settle()
    web.take_sent()
    web.nodes[1].on_message(9.0, 0, RecoveryRequest(((1, 0), (4, 4))), "radio")
    web.nodes[1].on_message(9.0, 7, RecoveryDigest(((5, 5),)), "radio")
    web.settle()
    assert web.take_sent() == []
    assert web.list_drops(1) == ["recovery_not_a_neighbor"]


# Bad input.


def make_filters(node: NodeId, count: int) -> list[ForwardedFilter]:
    return [ForwardedFilter(f"role = 'r{node}-{number}'") for number in range(count)]


def test_filters_and_advertisements_of_a_neighbor_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("carrycast.protocols.tree.forwarding.MAX_ADVERTISEMENTS", 50)
    monkeypatch.setattr("carrycast.protocols.tree.forwarding.MAX_FILTERS", 70)
    web = Web(3, None, links="given")
    web.link(0, 1)
    web.link(1, 2)
    many = make_filters(0, 200)
    for start in range(0, 200, BATCH):
        web.nodes[1].on_message(0.0, 0, Advertise(tuple(many[start : start + BATCH])), "radio")
        web.nodes[1].on_message(0.0, 0, Subscribe(tuple(many[start : start + BATCH])), "radio")
    web.settle()
    assert {(origin, stored): len(filters) for (origin, stored), filters in web.collect_tables(1).items()} == {
        (0, True): 50,
        (0, False): 70,
    }
    assert set(web.list_drops(1)) == {"table_full"}
    # The table is full, so a digest that differs causes no request.
    web.take_sent()
    web.nodes[1].on_message(0.0, 0, Digest(1, 1), "radio")
    web.settle()
    assert web.take_sent() == []
    # The same bound holds for a table transfer.
    for start in range(0, 200, BATCH):
        piece = TableTransfer(True, start == 0, start + BATCH >= 200, tuple(many[start : start + BATCH]))
        web.nodes[1].on_message(0.0, 0, piece, "radio")
    web.settle()
    assert len(web.collect_tables(1)[0, True]) == 50


def test_invalid_filter_messages_are_dropped_with_a_reason() -> None:
    web = Web(2, None, links="given")
    web.link(0, 1)
    for message in (
        Subscribe((ForwardedFilter("role ="), ForwardedFilter("x = 1"))),
        Unsubscribe(("never said",)),
        TableTransfer(False, False, True, (ForwardedFilter("y = 1"),)),
        GroupHello(0, 0, 99, 0, None),
    ):
        web.nodes[1].on_message(0.0, 0, message, "radio")
    web.nodes[1].on_message(0.0, 9, Subscribe((ForwardedFilter("true"),)), "radio")
    web.settle()
    assert web.collect_tables(1) == {(0, False): {"x = 1": 1}}
    assert web.list_drops(1) == ["filter_unreadable", "table_piece_lost", "not_a_tree_neighbor"]


def test_repeated_table_requests_are_answered_once() -> None:
    web = Web(2, None, links="given")
    web.link(0, 1)
    web.take_sent()
    for _ in range(20):
        web.nodes[1].on_message(0.0, 0, TableRequest(), "radio")
    web.settle()
    assert [type(message) for _, _, message in web.take_sent()] == [TableTransfer, TableTransfer]


def test_a_depth_that_counts_to_infinity_stays_within_its_bound() -> None:
    """Two links between the same nodes, one of them slow: late messages have parents that are children now."""
    tables = {
        "duration_s": 1.74,
        "nodes": 12,
        "area_m": [100.0, 0.001],
        "mobility": {"model": "line"},
        "wires": [{"tree": 2, "delay_s": 1.0}],
        "radio": {"model": "disk", "range_m": 20.0},
        "roles": {"broker": "all"},
        "protocol": {"name": "tree"},
    }
    assert run(parse_scenario(tables, "slow"), 857594, recode=True).metrics["control_transmissions"]
