"""Paths as a bet: asked for, answered, used, and given up; and what forged ones do."""

import pytest

from carrycast.core.model import EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import Broadcast, Deliver, Send
from carrycast.protocols.drift.messages import Data, Digest, Echo, Explorer, TreeData, TreeEnd
from carrycast.protocols.drift.multicast_trees import TreePolicy
from carrycast.protocols.drift.rules import merge_filters
from carrycast.protocols.drift.runs import pack_ids
from carrycast.protocols.drift.settings import DriftSettings
from carrycast.protocols.drift.test_drift import Bench, event, hash_of, names
from carrycast.sim.testing import Net

QUIET = 100.0
"""Long after the links of a bench have come."""


def sends(bench: Bench) -> list[tuple[NodeId, object]]:
    effects = bench.port.take()
    return [(one.target, one.message) for one in effects if isinstance(one, Send)]


def ask(source: NodeId, number: int, hops: int, of: NodeId, quiet_s: int = 10, again: bool = False) -> Explorer:
    return Explorer(source, number, quiet_s, hops, of, again)


def subscribed(bench: Bench, filter: str, number: int = 0) -> Bench:
    bench.node.on_subscribe(0.0, Subscription(SubscriptionId(0, number), filter))
    return bench


def on_the_way(*others: NodeId) -> Bench:
    """Node 0 between 1, from which it has the question of 9, and others that have it from 0."""
    bench = subscribed(Bench(1, *others), "topic = 2")
    bench.hear(1, ask(9, 1, 2, 8), now=QUIET)
    assert bench.fire(("explore", 9), now=QUIET) == [ask(9, 1, 3, 1)]
    return bench


# What is wanted.


def test_what_several_want_is_told_once_and_links_add_up() -> None:
    assert merge_filters([("b", 2), ("a", 0), ("b", 1)]) == {"a": 0, "b": 3}
    assert merge_filters((f"x = {number}", 1) for number in range(33)) == {"": 33}
    assert merge_filters([("a" * 1025, 3)]) == {"": 3}


# When to bet.


def test_a_bet_wants_quiet_links_and_a_stream() -> None:
    policy = TreePolicy(DriftSettings(), 0)
    assert [policy.should_build(now, now) for now in (2.0, 4.0, 9.0, 11.0)] == [False, False, False, True]
    # Three within ten seconds: no.
    assert [policy.should_build(now, now) for now in (30.0, 60.0)] == [False, False]
    assert not TreePolicy(DriftSettings(path_share=0), 0).should_build(20.0, 20.0)


def test_a_lost_bet_doubles_the_wait_and_one_that_lasted_resets_it() -> None:
    policy = TreePolicy(DriftSettings(path_max_s=30), 0)
    assert policy.should_use(0.0, 12, 49)
    assert not policy.should_use(0.0, 13, 49)
    for end, quiet_s in ((19.0, 20.0), (19.0, 30.0), (19.0, 30.0)):
        policy.on_torn_down(end)
        assert policy.stable_s == quiet_s
    policy.should_use(100.0, 1, 49)
    policy.on_torn_down(160.0)
    assert policy.stable_s == 10.0


# Asking and answering.


def test_a_question_is_passed_on_and_answered_when_all_beyond_have_answered() -> None:
    bench = on_the_way(2, 3)
    # 2 has it from 0; 3 from somebody else.
    bench.hear(3, ask(9, 1, 3, 7), now=QUIET)
    bench.hear(2, ask(9, 1, 4, 0), now=QUIET)
    bench.node.on_message(QUIET, 2, Echo(9, 1, {"topic = 1": 1}, 5), "radio")
    # 2 counts five nodes and one link; here one more of each, and the own interest.
    assert sends(bench) == [(1, Echo(9, 1, {"topic = 1": 2, "topic = 2": 0}, 6))]


def test_the_nearest_to_the_source_is_taken_while_nothing_was_said() -> None:
    bench = Bench(1, 2, 3)
    bench.hear(1, ask(9, 1, 5, 8), now=QUIET)
    bench.hear(2, ask(9, 1, 2, 8), now=QUIET)
    assert bench.fire(("explore", 9), now=QUIET) == [ask(9, 1, 3, 2)]


def test_who_was_not_heard_is_asked_directly_and_answers_directly() -> None:
    bench = on_the_way(2)
    bench.node.on_timer(QUIET + 1, ("explore", 9))
    assert sends(bench) == [(2, ask(9, 1, 3, 1, again=True))]
    bench.node.on_message(QUIET + 1, 2, ask(9, 1, 3, 7, again=True), "radio")
    # 2 has it from elsewhere: it is told directly, and now all is known.
    assert sends(bench) == [(1, Echo(9, 1, {"topic = 2": 0}, 1)), (2, ask(9, 1, 3, 1))]


def test_who_never_answers_loses_the_bet() -> None:
    bench = on_the_way(2)
    for second in range(3):
        assert bench.fire(("explore", 9), now=QUIET + 1 + second) == []
    assert bench.fire(("explore", 9), now=QUIET + 5) == [TreeEnd(((9, 1),))]


def test_who_has_seen_a_link_change_lately_refuses() -> None:
    bench = Bench(1, 2)
    bench.node.on_link_up(QUIET - 5, Link(3, "radio", 0.001))
    bench.settle()
    assert bench.hear(1, ask(9, 1, 2, 8), now=QUIET) == [TreeEnd(((9, 1),))]
    assert ("explore", 9) not in bench.armed


# Events on a path.


def standing(bench: Bench) -> Bench:
    bench.hear(2, ask(9, 1, 4, 0), now=QUIET)
    bench.hear(2, Echo(9, 1, {"topic = 1": 1}, 5), now=QUIET)
    return bench


def test_an_event_goes_to_those_alone_beyond_whom_it_is_wanted_and_is_not_compared() -> None:
    bench = standing(on_the_way(2))
    bench.node.on_message(QUIET + 1, 1, TreeData(event(9, 0), 3, 50.0), "radio")
    assert sends(bench) == [(2, TreeData(event(9, 0), 4, 50.0))]
    # The neighbors' hashes know nothing of it, and neither does the own.
    bench.hear(2, hash_of(), now=QUIET + 2)
    assert ("rebroadcast", EventId(9, 0)) not in bench.armed


def test_one_that_comes_from_elsewhere_than_the_path_is_like_any_other() -> None:
    bench = standing(on_the_way(2))
    bench.hear(2, TreeData(event(9, 0), 3, 50.0), now=QUIET + 1)
    assert ("rebroadcast", EventId(9, 0)) in bench.armed


@pytest.mark.parametrize("how", ["new link", "lost link", "told", "failed", "wants history"])
def test_any_change_ends_the_bet_and_its_events_are_compared_like_others(how: str) -> None:
    bench = standing(on_the_way(2))
    bench.hear(1, TreeData(event(9, 0), 3, 50.0), now=QUIET + 1)
    if how == "new link":
        bench.node.on_link_up(QUIET + 2, Link(3, "radio", 0.001))
    elif how == "lost link":
        bench.node.on_link_down(QUIET + 2, Link(2, "radio", 0.001), Failure.SILENT)
    elif how == "told":
        bench.node.on_message(QUIET + 2, 2, TreeEnd(((9, 1),)), "radio")
    elif how == "failed":
        bench.node.on_sent(QUIET + 2, 9, Failure.UNREACHABLE)
    else:
        bench.node.on_subscribe(QUIET + 2, Subscription(SubscriptionId(0, 5), "topic = 3", history=True))
    assert TreeEnd(((9, 1),)) in bench.settle()
    assert bench.fire("trickle", now=QUIET + 4) == [Digest(pack_ids([EventId(9, 0)]))]


def test_an_event_of_a_path_of_which_others_speak_is_everybodys() -> None:
    bench = standing(on_the_way(2))
    bench.hear(1, TreeData(event(9, 0), 3, 50.0), now=QUIET + 1)
    bench.hear(2, Data(event(9, 0), 1, 50.0, names(0)), now=QUIET + 2)
    bench.node.on_link_up(QUIET + 3, Link(3, "radio", 0.001))
    bench.settle()
    assert bench.fire("trickle", now=QUIET + 4) == [Digest(pack_ids([EventId(9, 0)]))]


def test_a_change_of_what_is_wanted_is_told_toward_the_source() -> None:
    bench = standing(on_the_way(2))
    subscribed(bench, "topic = 7", 1)
    assert sends(bench) == [(1, Echo(9, 1, {"topic = 1": 2, "topic = 2": 0, "topic = 7": 0}, 6))]
    bench.node.on_unsubscribe(QUIET, SubscriptionId(0, 1))
    assert sends(bench) == [(1, Echo(9, 1, {"topic = 1": 2, "topic = 2": 0}, 6))]


# Bad input.


def test_a_question_in_ones_own_name_is_denied() -> None:
    bench = Bench(1, node=9)
    assert bench.hear(1, ask(9, 7, 2, 8), now=QUIET) == [TreeEnd(((9, 7),))]
    assert bench.reasons() == ["path_over"]


def test_a_bet_that_is_over_is_not_begun_again_by_who_repeats_it() -> None:
    bench = on_the_way(2)
    bench.hear(2, TreeEnd(((9, 1),)), now=QUIET)
    said = [bench.hear(2, ask(9, 1, 2, 8), now=QUIET + 1) for _ in range(9)]
    assert [len(one) for one in said] == [1, 1, 1, 0, 0, 0, 0, 0, 0]


def test_invented_sources_are_bounded() -> None:
    bench = Bench(*range(1, 70))
    for number in range(64):
        assert bench.hear(1 + number, ask(1000 + number, 1, 1, 8), now=QUIET) == []
    assert bench.hear(65, ask(2000, 1, 1, 8), now=QUIET) == [TreeEnd(((2000, 1),))]


def test_questions_without_end_are_dropped_by_name() -> None:
    bench = Bench(1, 2)
    for number in range(64):
        bench.hear(1, ask(9, 1 + number, 2, 8), now=QUIET)
    assert bench.hear(1, ask(9, 100, 2, 8), now=QUIET) == []
    assert bench.reasons() == ["path_asked_too_often"]


def test_an_answer_that_is_no_filter_ends_the_bet_and_one_that_nobody_waits_for_is_dropped() -> None:
    bench = on_the_way(2)
    assert bench.hear(2, Echo(9, 1, {"topic = ": 1}, 5), now=QUIET) == [TreeEnd(((9, 1),))]
    assert bench.reasons() == ["filter_malformed"]
    bench.hear(2, Echo(9, 1, {}, 5), now=QUIET)
    assert bench.reasons() == ["path_over"]


# Stories.


def quiet_line(nodes: int = 5) -> Net:
    """A line on which node 0 has published until its events go by a path to the last node but one."""
    net = Net.line(nodes, "drift", path_share=1.0)
    net.subscribe(nodes - 2, "topic = 1")
    net.run(12)
    for _ in range(3):
        net.publish(0, {"topic": 1})
        net.run(1)
    return net


def test_a_stream_goes_by_the_path_and_nowhere_else() -> None:
    net = quiet_line()
    before = net.sent("Data")
    net.publish(0, {"topic": 1})
    net.run(1)
    assert net.sent("Data") == before
    assert net.sent("TreeData") == 3
    assert len(net.delivered(3)) == 4


def test_who_comes_later_gets_what_went_by_the_path() -> None:
    net = quiet_line()
    net.subscribe(4, "topic = 1")
    net.cut(3, 4)
    net.run(30)
    for _ in range(9):
        net.publish(0, {"topic": 1})
        net.run(2)
    assert net.sent("TreeData") > 0
    assert len(net.delivered(4)) == 0
    net.heal(3, 4)
    net.run(10)
    assert len(net.delivered(4)) == 9


def test_a_path_that_breaks_loses_nothing() -> None:
    net = quiet_line()
    net.crash(2)
    net.publish(0, {"topic": 1})
    net.run(1)
    net.restart(2)
    net.run(20)
    assert len(net.delivered(3)) == 4


def test_deliveries_of_a_path_count_its_hops() -> None:
    bench = standing(on_the_way(2))
    subscribed(bench, "topic = 1", 1)
    bench.port.take()
    bench.node.on_message(QUIET + 1, 1, TreeData(event(9, 0), 3, 50.0), "radio")
    effects = bench.port.take()
    assert Deliver(SubscriptionId(0, 1), event(9, 0), 3) in effects
    assert not [one for one in effects if isinstance(one, Broadcast)]
