"""Multicast trees: building, use, tearing down, and forged messages."""

import pytest

from carrycast.core.model import EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import Broadcast, Deliver, Send
from carrycast.protocols.drift.messages import Data, Digest, Echo, Explorer, TreeData, TreeEnd
from carrycast.protocols.drift.multicast_trees import TreePolicy
from carrycast.protocols.drift.rules import merge_filters
from carrycast.protocols.drift.runs import pack_ids
from carrycast.protocols.drift.settings import DriftSettings
from carrycast.protocols.drift.test_drift import Bench, event, make_hash, pack_addresses
from carrycast.sim.testing import Net

QUIET = 100.0
"""A time long after the links of a bench came up."""


def take_sends(bench: Bench) -> list[tuple[NodeId, object]]:
    effects = bench.port.take()
    return [(one.target, one.message) for one in effects if isinstance(one, Send)]


def make_explorer(
    source: NodeId, number: int, hops: int, of: NodeId, quiet_s: int = 10, again: bool = False
) -> Explorer:
    return Explorer(source, number, quiet_s, hops, of, again)


def subscribe(bench: Bench, filter: str, number: int = 0) -> Bench:
    bench.node.on_subscribe(0.0, Subscription(SubscriptionId(0, number), filter))
    return bench


def make_inner_node(*others: NodeId) -> Bench:
    """Make node 0 an inner node of the tree of 9: its parent is 1, and the others may become its children."""
    bench = subscribe(Bench(1, *others), "topic = 2")
    bench.hear(1, make_explorer(9, 1, 2, 8), now=QUIET)
    assert bench.fire(("explore", 9), now=QUIET) == [make_explorer(9, 1, 3, 1)]
    return bench


# Filters.


def test_merged_filters_add_their_links_and_are_bounded() -> None:
    assert merge_filters([("b", 2), ("a", 0), ("b", 1)]) == {"a": 0, "b": 3}
    assert merge_filters((f"x = {number}", 1) for number in range(33)) == {"": 33}
    assert merge_filters([("a" * 1025, 3)]) == {"": 3}


# The policy.


def test_a_tree_needs_stable_links_and_several_events() -> None:
    policy = TreePolicy(DriftSettings(), 0)
    assert [policy.should_build(now, now) for now in (2.0, 4.0, 9.0, 11.0)] == [False, False, False, True]
    # The last three events were not published within ten seconds.
    assert [policy.should_build(now, now) for now in (30.0, 60.0)] == [False, False]
    assert not TreePolicy(DriftSettings(path_share=0), 0).should_build(20.0, 20.0)


def test_a_tree_that_ends_early_doubles_the_wait_and_one_that_lasts_resets_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("carrycast.protocols.drift.multicast_trees.MAX_STABLE_S", 30)
    policy = TreePolicy(DriftSettings(), 0)
    assert policy.should_use(0.0, 12, 49)
    assert not policy.should_use(0.0, 13, 49)
    for end, quiet_s in ((19.0, 20.0), (19.0, 30.0), (19.0, 30.0)):
        policy.on_torn_down(end)
        assert policy.stable_s == quiet_s
    policy.should_use(100.0, 1, 49)
    policy.on_torn_down(160.0)
    assert policy.stable_s == 10.0


# Building a tree.


def test_an_echo_is_sent_when_the_whole_subtree_has_answered() -> None:
    bench = make_inner_node(2, 3)
    # The parent of 2 is 0; that of 3 is another node.
    bench.hear(3, make_explorer(9, 1, 3, 7), now=QUIET)
    bench.hear(2, make_explorer(9, 1, 4, 0), now=QUIET)
    bench.node.on_message(QUIET, 2, Echo(9, 1, {"topic = 1": 1}, 5), "radio")
    # 2 counts five nodes and one link; this node adds one of each, and its own filter.
    assert take_sends(bench) == [(1, Echo(9, 1, {"topic = 1": 2, "topic = 2": 0}, 6))]


def test_the_parent_is_the_neighbor_nearest_to_the_source() -> None:
    bench = Bench(1, 2, 3)
    bench.hear(1, make_explorer(9, 1, 5, 8), now=QUIET)
    bench.hear(2, make_explorer(9, 1, 2, 8), now=QUIET)
    assert bench.fire(("explore", 9), now=QUIET) == [make_explorer(9, 1, 3, 2)]


def test_a_neighbor_that_has_not_answered_is_asked_by_unicast() -> None:
    bench = make_inner_node(2)
    bench.node.on_timer(QUIET + 1, ("explore", 9))
    assert take_sends(bench) == [(2, make_explorer(9, 1, 3, 1, again=True))]
    bench.node.on_message(QUIET + 1, 2, make_explorer(9, 1, 3, 7, again=True), "radio")
    # 2 has another parent: it gets the explorer by unicast, and the subtree is complete.
    assert take_sends(bench) == [(1, Echo(9, 1, {"topic = 2": 0}, 1)), (2, make_explorer(9, 1, 3, 1))]


def test_a_neighbor_that_never_answers_ends_the_tree() -> None:
    bench = make_inner_node(2)
    for second in range(3):
        assert bench.fire(("explore", 9), now=QUIET + 1 + second) == []
    assert bench.fire(("explore", 9), now=QUIET + 5) == [TreeEnd(((9, 1),))]


def test_a_node_with_a_recent_link_change_refuses_the_tree() -> None:
    bench = Bench(1, 2)
    bench.node.on_link_up(QUIET - 5, Link(3, "radio", 0.001))
    bench.settle()
    assert bench.hear(1, make_explorer(9, 1, 2, 8), now=QUIET) == [TreeEnd(((9, 1),))]
    assert ("explore", 9) not in bench.armed


# Events on a tree.


def complete_tree(bench: Bench) -> Bench:
    bench.hear(2, make_explorer(9, 1, 4, 0), now=QUIET)
    bench.hear(2, Echo(9, 1, {"topic = 1": 1}, 5), now=QUIET)
    return bench


def test_an_event_goes_to_interested_children_and_is_not_reconciled() -> None:
    bench = complete_tree(make_inner_node(2))
    bench.node.on_message(QUIET + 1, 1, TreeData(event(9, 0), 3, 50.0), "radio")
    assert take_sends(bench) == [(2, TreeData(event(9, 0), 4, 50.0))]
    # The event is not part of the neighbors' hashes, nor of this node's.
    bench.hear(2, make_hash(), now=QUIET + 2)
    assert ("rebroadcast", EventId(9, 0)) not in bench.armed


def test_tree_data_from_another_node_than_the_parent_is_rebroadcast() -> None:
    bench = complete_tree(make_inner_node(2))
    bench.hear(2, TreeData(event(9, 0), 3, 50.0), now=QUIET + 1)
    assert ("rebroadcast", EventId(9, 0)) in bench.armed


@pytest.mark.parametrize("how", ["new link", "lost link", "tree end", "failed send", "history"])
def test_any_change_ends_the_tree_and_its_events_are_reconciled(how: str) -> None:
    bench = complete_tree(make_inner_node(2))
    bench.hear(1, TreeData(event(9, 0), 3, 50.0), now=QUIET + 1)
    if how == "new link":
        bench.node.on_link_up(QUIET + 2, Link(3, "radio", 0.001))
    elif how == "lost link":
        bench.node.on_link_down(QUIET + 2, Link(2, "radio", 0.001), Failure.SILENT)
    elif how == "tree end":
        bench.node.on_message(QUIET + 2, 2, TreeEnd(((9, 1),)), "radio")
    elif how == "failed send":
        bench.node.on_sent(QUIET + 2, 9, Failure.UNREACHABLE)
    else:
        bench.node.on_subscribe(QUIET + 2, Subscription(SubscriptionId(0, 5), "topic = 3", history=True))
    assert TreeEnd(((9, 1),)) in bench.settle()
    assert bench.fire("trickle", now=QUIET + 4) == [Digest(pack_ids([EventId(9, 0)]))]


def test_an_unlisted_event_that_a_neighbor_mentions_is_listed() -> None:
    bench = complete_tree(make_inner_node(2))
    bench.hear(1, TreeData(event(9, 0), 3, 50.0), now=QUIET + 1)
    bench.hear(2, Data(event(9, 0), 1, 50.0, pack_addresses(0)), now=QUIET + 2)
    bench.node.on_link_up(QUIET + 3, Link(3, "radio", 0.001))
    bench.settle()
    assert bench.fire("trickle", now=QUIET + 4) == [Digest(pack_ids([EventId(9, 0)]))]


def test_a_change_of_filters_is_echoed_toward_the_source() -> None:
    bench = complete_tree(make_inner_node(2))
    subscribe(bench, "topic = 7", 1)
    assert take_sends(bench) == [(1, Echo(9, 1, {"topic = 1": 2, "topic = 2": 0, "topic = 7": 0}, 6))]
    bench.node.on_unsubscribe(QUIET, SubscriptionId(0, 1))
    assert take_sends(bench) == [(1, Echo(9, 1, {"topic = 1": 2, "topic = 2": 0}, 6))]


# Bad input.


def test_an_explorer_in_this_nodes_name_is_answered_with_a_tree_end() -> None:
    bench = Bench(1, node=9)
    assert bench.hear(1, make_explorer(9, 7, 2, 8), now=QUIET) == [TreeEnd(((9, 7),))]
    assert bench.reasons() == ["path_over"]


def test_a_repeated_explorer_of_an_ended_tree_is_refused() -> None:
    bench = make_inner_node(2)
    bench.hear(2, TreeEnd(((9, 1),)), now=QUIET)
    broadcasts = [bench.hear(2, make_explorer(9, 1, 2, 8), now=QUIET + 1) for _ in range(9)]
    assert [len(one) for one in broadcasts] == [1, 1, 1, 0, 0, 0, 0, 0, 0]


def test_invented_sources_are_bounded() -> None:
    bench = Bench(*range(1, 70))
    for number in range(64):
        assert bench.hear(1 + number, make_explorer(1000 + number, 1, 1, 8), now=QUIET) == []
    assert bench.hear(65, make_explorer(2000, 1, 1, 8), now=QUIET) == [TreeEnd(((2000, 1),))]


def test_endless_explorers_are_dropped_with_a_reason() -> None:
    bench = Bench(1, 2)
    for number in range(64):
        bench.hear(1, make_explorer(9, 1 + number, 2, 8), now=QUIET)
    assert bench.hear(1, make_explorer(9, 100, 2, 8), now=QUIET) == []
    assert bench.reasons() == ["path_asked_too_often"]


def test_a_malformed_echo_ends_the_tree_and_an_unexpected_one_is_dropped() -> None:
    bench = make_inner_node(2)
    assert bench.hear(2, Echo(9, 1, {"topic = ": 1}, 5), now=QUIET) == [TreeEnd(((9, 1),))]
    assert bench.reasons() == ["filter_malformed"]
    bench.hear(2, Echo(9, 1, {}, 5), now=QUIET)
    assert bench.reasons() == ["path_over"]


# Stories.


def make_line_with_tree(nodes: int = 5) -> Net:
    """Make a line on which the events of node 0 go down a tree to the last node but one."""
    net = Net.line(nodes, "drift", path_share=1.0)
    net.subscribe(nodes - 2, "topic = 1")
    net.run(12)
    for _ in range(3):
        net.publish(0, {"topic": 1})
        net.run(1)
    return net


def test_a_stream_is_sent_only_down_the_tree() -> None:
    net = make_line_with_tree()
    before = net.count_sent("Data")
    net.publish(0, {"topic": 1})
    net.run(1)
    assert net.count_sent("Data") == before
    assert net.count_sent("TreeData") == 3
    assert len(net.list_delivered(3)) == 4


def test_a_later_neighbor_gets_events_that_went_down_the_tree() -> None:
    net = make_line_with_tree()
    net.subscribe(4, "topic = 1")
    net.cut(3, 4)
    net.run(30)
    for _ in range(9):
        net.publish(0, {"topic": 1})
        net.run(2)
    assert net.count_sent("TreeData") > 0
    assert len(net.list_delivered(4)) == 0
    net.heal(3, 4)
    net.run(10)
    assert len(net.list_delivered(4)) == 9


def test_a_tree_that_breaks_loses_no_event() -> None:
    net = make_line_with_tree()
    net.crash(2)
    net.publish(0, {"topic": 1})
    net.run(1)
    net.restart(2)
    net.run(20)
    assert len(net.list_delivered(3)) == 4


def test_a_delivery_from_a_tree_counts_its_hops() -> None:
    bench = complete_tree(make_inner_node(2))
    subscribe(bench, "topic = 1", 1)
    bench.port.take()
    bench.node.on_message(QUIET + 1, 1, TreeData(event(9, 0), 3, 50.0), "radio")
    effects = bench.port.take()
    assert Deliver(SubscriptionId(0, 1), event(9, 0), 3) in effects
    assert not [one for one in effects if isinstance(one, Broadcast)]
