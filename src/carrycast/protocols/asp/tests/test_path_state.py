"""The state machine of an announcement's paths [001 §4.2, §4.3]."""

import math

from carrycast.protocols.asp.messages import PathKind, PathMessage
from carrycast.protocols.asp.path_state import (
    ActivePath,
    Alternative,
    AnnouncerChange,
    PathAdded,
    PathRemoved,
    PathState,
    PendingPath,
    SentPath,
)

SUBSCRIBE = PathKind.SUBSCRIBE
REPLACE = PathKind.REPLACE


def make_state() -> PathState:
    """Make the state of an announcement by 1 with a metric of 20 ms."""
    state = PathState(1, 0.02)
    state.offer(1, Alternative(0.02, 0.01))
    return state


def test_a_better_announcer_is_used_and_a_worse_one_is_an_alternative() -> None:
    path = make_state()
    assert path.offer(2, Alternative(0.03, 0.02)) is None
    assert (path.announcer, path.metric_s) == (1, 0.02)
    assert path.offer(3, Alternative(0.01, 0.005)) == AnnouncerChange(1, 0.02)
    assert (path.announcer, path.metric_s, path.path_s) == (3, 0.01, 0.01)
    assert list(path.alternatives) == [1, 2, 3]


def test_after_a_repair_the_best_metric_stays_and_the_path_metric_is_worse() -> None:
    path = make_state()
    path.offer(2, Alternative(0.03, 0.015))
    path.lose_announcer()
    assert path.switch_to(2) == AnnouncerChange(None, 0.02)
    assert (path.announcer, path.metric_s, path.path_s) == (2, 0.02, 0.03)


def test_an_announcer_without_a_path_is_unsafe() -> None:
    path = make_state()
    path.mark_unsafe(1)
    path.mark_unsafe(9)
    assert dict(path.alternatives) == {1: Alternative(0.02, math.inf)}
    path.forget_alternative(1)
    assert path.alternatives == {}
    path.remember_alternative(5)
    assert dict(path.alternatives) == {5: Alternative(0.02, 0.02)}


def test_the_first_and_better_subscriptions_are_forwarded_and_a_worse_one_is_on_standby() -> None:
    path = make_state()
    assert path.add(7, ActivePath(2, 0.10), SUBSCRIBE) == PathAdded(used=True, is_forwarded=True)
    assert path.add(7, ActivePath(3, 0.12), SUBSCRIBE) == PathAdded(used=False)
    assert path.add(7, ActivePath(4, 0.09), SUBSCRIBE) == PathAdded(used=True, is_forwarded=True)
    assert path.active[7].neighbor == 4
    assert {one.neighbor for one in path.list_requested_paths()} == {2, 3, 4}


def test_a_replacing_subscription_is_used_and_not_forwarded() -> None:
    path = make_state()
    path.add(7, ActivePath(2, 0.10), SUBSCRIBE)
    assert path.add(7, ActivePath(3, 0.50), REPLACE) == PathAdded(used=True, is_forwarded=False)
    assert path.active[7].neighbor == 3


def test_a_second_subscription_of_a_neighbor_only_changes_its_metric() -> None:
    path = make_state()
    path.add(7, ActivePath(2, 0.10), SUBSCRIBE)
    assert path.add(7, ActivePath(2, 0.20), SUBSCRIBE) == PathAdded(used=False)
    assert path.active[7].metric_s == 0.20
    assert path.list_requested_paths() == [path.active[7]]


def test_the_best_standby_path_replaces_a_removed_active_path() -> None:
    path = make_state()
    for neighbor, metric_s in ((2, 0.1), (3, 0.3), (4, 0.2)):
        path.add(7, ActivePath(neighbor, metric_s), SUBSCRIBE)
    assert path.remove(7, 2) == PathRemoved(ActivePath(4, 0.2))
    assert path.remove(7, 3) == PathRemoved()
    assert path.remove(7, 4) == PathRemoved(is_over=True)
    assert path.active == {}


def test_a_processor_is_idle_until_a_path_leads_to_its_result() -> None:
    path = make_state()
    assert path.add(7, ActivePath(5, 0.1, result=99), SUBSCRIBE).was_idle
    assert not path.add(8, ActivePath(5, 0.1, result=99), SUBSCRIBE).was_idle


def test_receivers_are_listed_once_without_the_excluded_ones() -> None:
    path = make_state()
    for subscriber, neighbor in ((7, 2), (8, 2), (9, 3), (10, 5)):
        path.add(subscriber, ActivePath(neighbor, 0.1), SUBSCRIBE)
    assert path.list_receivers(5, 3) == [2]


def test_a_sent_subscription_is_retracted_once() -> None:
    path = make_state()
    assert path.next_hop(7) == 1
    path.mark_sent(7, 1, 0.1)
    assert path.retract(7) == SentPath(1, 0.1)
    assert path.retract(7) is None


def test_an_undelivered_subscription_becomes_pending_and_its_removal_is_returned() -> None:
    path = make_state()
    path.mark_sent(7, 1, 0.1)
    message = PathMessage(42, 7, 0.1, SUBSCRIBE, 3)
    assert path.on_undelivered(1, message) == PathMessage(42, 7, 0.1, PathKind.UNSUBSCRIBE)
    assert dict(path.pending) == {7: PendingPath(0.1, SUBSCRIBE, 3)}
    assert path.sent == {}
    assert path.on_undelivered(1, message) is None, "it was removed from the sent subscriptions"


def test_a_new_subscription_voids_deferred_removals_to_its_target() -> None:
    path = make_state()
    for neighbor in (1, 2):
        path.defer(neighbor, PathMessage(42, 7, 0.1, PathKind.UNSUBSCRIBE))
    assert path.next_hop(7) == 1
    assert path.take_deferred(1) == []
    assert path.take_deferred(2) == [PathMessage(42, 7, 0.1, PathKind.UNSUBSCRIBE)]
    assert path.take_deferred(2) == []


def test_without_an_announcer_there_is_no_next_hop_and_sent_subscriptions_stay() -> None:
    path = make_state()
    path.mark_sent(7, 1, 0.1)
    path.lose_announcer()
    assert path.next_hop(7) is None
    assert dict(path.sent) == {7: SentPath(1, 0.1)}


def test_each_neighbor_is_requested_once_until_there_is_an_announcer_again() -> None:
    path = make_state()
    assert [path.mark_requested(2), path.mark_requested(2)] == [True, False]
    path.unmark_requested(2)
    assert path.mark_requested(2)
    path.defer_renewal(7)
    assert (path.deferred_renewal, path.take_deferred_renewal(), path.take_deferred_renewal()) == (7, 7, 0)
    assert path.mark_requested(2)


def test_a_neighbor_lost_with_its_paths_is_notified_once() -> None:
    path = make_state()
    path.mark_lost(2)
    assert [path.take_lost(2), path.take_lost(2), path.take_lost(3)] == [True, False, False]
