"""Repair at one broker [001 §6.2, §6.3]: which announcer may take another's place, and who is told if none may."""

from random import Random

import networkx as nx
import pytest

from carrycast.core.model import Failure, Subscription
from carrycast.core.protocol import Link
from carrycast.protocols.asp.messages import PathKind, PathLost, ShortAnnouncement
from carrycast.protocols.asp.rules import announcement_id
from carrycast.protocols.asp.settings import AspSettings
from carrycast.protocols.asp.tests.bench import (
    CELSIUS,
    KELVIN,
    SINK,
    Broker,
    C,
    announced,
    announcement,
    event,
    station,
    subscribe,
)
from carrycast.protocols.asp.tests.web import Web


def subscribed(*metrics_s: float) -> Broker:
    """Announcers 1, 2 and so on with their metrics, and a subscriber at 3."""
    broker = Broker(1, 2, 3, repair=True)
    broker.hear(1, announcement(metrics_s[0]))
    for announcer, metric_s in enumerate(metrics_s[1:], 2):
        broker.hear(announcer, ShortAnnouncement(C, metric_s, 1))
    broker.hear(3, subscribe(7, 0.1))
    return broker


def test_a_lost_path_of_the_announcer_moves_the_subscribers_to_one_that_is_nearer_than_this_broker() -> None:
    # 2 is itself at 25 - 10 = 15 ms from the source, this broker at 20.
    broker = subscribed(0.02, 0.025)
    effects = broker.hear(1, PathLost(C))
    # The whole path is 5 ms longer now.
    assert effects == [
        (2, subscribe(7, pytest.approx(0.105), PathKind.REPLACE)),  # type: ignore[arg-type] # compares as a number
        (1, subscribe(7, 0.1, PathKind.UNSUBSCRIBE)),
    ]


def test_an_announcer_that_is_no_nearer_may_lead_back_here_so_the_loss_is_passed_on() -> None:
    # 2 is itself at 35 - 10 = 25 ms, this broker at 20.
    broker = subscribed(0.02, 0.035)
    assert broker.hear(1, PathLost(C)) == [(3, PathLost(C))]


def test_a_lost_path_at_somebody_else_changes_nothing() -> None:
    broker = subscribed(0.02, 0.025)
    assert broker.hear(2, PathLost(C)) == []
    assert broker.hear(1, PathLost(C)) == [(3, PathLost(C))], "but 2 is no alternative any more"


@pytest.mark.parametrize(
    ("told_over", "metric_s", "used_then", "usable"),
    [
        # 2 is at 40 ms and says 50 over the radio; later there is an Ethernet to it. 40 is nearer than 45.
        ("radio", 0.05, "ethernet", True),
        # 2 is at 50 ms and says 51 over Ethernet; later there is only the radio. 50 is no nearer than 45.
        ("ethernet", 0.051, "radio", False),
    ],
)
def test_how_near_an_announcer_is_does_not_change_with_the_link_to_it(
    told_over: str, metric_s: float, used_then: str, usable: bool
) -> None:
    costs_s = {"radio": 0.01, "ethernet": 0.001}
    broker = Broker(1, 3, repair=True)
    broker.asp.on_link_up(0.0, Link(2, told_over, costs_s[told_over]))
    broker.hear(1, announcement(0.045))
    broker.asp.on_message(1.0, 2, ShortAnnouncement(C, metric_s, 1), told_over)
    broker.hear(3, subscribe(7, 0.1))
    broker.asp.on_link_up(1.5, Link(2, used_then, costs_s[used_then]))
    if used_then == "radio":
        broker.asp.on_link_down(1.5, Link(2, told_over, costs_s[told_over]), Failure.SILENT)
    broker.effects()
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    targets = [effect[0] for effect in broker.effects() if isinstance(effect, tuple)]
    assert targets == ([2] if usable else [3])


def test_whoever_has_no_safe_path_asks_a_new_announcer_to_have_the_source_announce_anew() -> None:
    broker = subscribed(0.02)
    broker.hear(1, PathLost(C))
    assert broker.hear(2, ShortAnnouncement(C, 0.035, 1)) == [(2, subscribe(7, 0.035, PathKind.RENEW))]
    assert broker.hear(2, ShortAnnouncement(C, 0.035, 1)) == [], "once is enough"


def test_a_request_to_announce_anew_goes_along_the_announcers_to_the_source() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    renew = subscribe(7, 0.035, PathKind.RENEW)
    assert broker.hear(2, renew) == [(1, subscribe(7, 0.02, PathKind.RENEW))]
    source = Broker(1, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    assert source.hear(1, renew) == []
    source.asp.on_publish(2.0, event(0, 2, unit="C"))
    assert list(announced(source.effects())) == [1]


def test_through_a_processor_it_goes_to_the_announcers_of_its_inputs() -> None:
    broker, _, id = station()
    broker.effects()
    assert broker.hear(3, subscribe(7, 0.3, PathKind.RENEW, id=id)) == [(1, subscribe(7, 0.05, PathKind.RENEW))]


def test_where_the_path_is_lost_it_goes_to_all_others_and_waits_for_the_announcer() -> None:
    broker = subscribed(0.02, 0.035)
    broker.hear(1, PathLost(C))
    asked = [(1, subscribe(8, 0.02, PathKind.RENEW)), (2, subscribe(8, 0.035, PathKind.RENEW))]
    assert broker.hear(3, subscribe(8, 0.1, PathKind.RENEW)) == asked
    assert broker.hear(3, subscribe(8, 0.1, PathKind.RENEW)) == [], "it has led back to here"
    assert (1, subscribe(8, 0.02, PathKind.RENEW)) in broker.hear(1, ShortAnnouncement(C, 0.02, 1))


def test_a_sink_without_a_safe_path_asks_at_once() -> None:
    broker = Broker(1, 2, repair=True)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "unit = 'C'"))
    broker.hear(1, announcement(0.02))
    broker.hear(2, ShortAnnouncement(C, 0.035, 1))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(2, subscribe(broker.subscriber, 0.035, PathKind.RENEW))]


def test_the_paths_of_an_announcement_that_a_newer_one_has_replaced_are_not_repaired() -> None:
    broker = subscribed(0.02, 0.025)
    newer = event(0, 2, unit="C", value=21.5)
    broker.hear(2, announcement(0.03, of=newer, id=announcement_id(newer, (0,), 3), counter=2))
    assert broker.hear(1, PathLost(C)) == []


# What neighbors believe of each other.


def test_an_announcer_that_has_lost_its_path_still_learns_that_the_path_behind_this_broker_is_broken() -> None:
    """It keeps the path and may be repaired itself, so it must not believe in a subscriber that is gone."""
    broker = subscribed(0.02)
    broker.hear(1, PathLost(C))
    # The subscriber's path moves from 3 to 2 meanwhile.
    assert broker.hear(2, subscribe(7, 0.05)) == [(2, PathLost(C))]
    broker.hear(3, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))
    broker.asp.on_link_down(2.0, Link(2, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.PATH_BROKEN))]


def test_whoever_was_told_of_a_lost_path_is_told_when_it_is_there_again() -> None:
    broker = subscribed(0.02)
    broker.hear(1, PathLost(C))
    assert broker.hear(1, ShortAnnouncement(C, 0.02, 1)) == [
        (1, subscribe(7, 0.1, PathKind.REPLACE)),
        (3, ShortAnnouncement(C, 0.03, 1)),
    ]


def test_an_announcer_that_is_back_is_used_again_without_a_word_from_it() -> None:
    broker = subscribed(0.02)
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(3, PathLost(C))]
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.REPLACE)), (3, ShortAnnouncement(C, 0.03, 1))]


def test_a_lost_announcer_is_told_when_it_is_back_that_the_path_has_moved() -> None:
    """Else it keeps the path, and where both meet the break of the one in use would be taken for its removal."""
    broker = subscribed(0.02, 0.025)
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert [effect[0] for effect in broker.effects() if isinstance(effect, tuple)] == [2]
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))]


def test_a_neighbor_whose_path_was_given_up_learns_so_when_it_is_back() -> None:
    """It may have noticed nothing, and if its subscriber has another path from here the source was not told."""
    broker = subscribed(0.02)
    broker.hear(2, subscribe(7, 0.2))
    broker.asp.on_link_down(2.0, Link(3, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [], "the other path takes over"
    broker.asp.on_link_up(3.0, Link(3, "radio", 0.01))
    assert broker.effects() == [(3, PathLost(C)), (3, ShortAnnouncement(C, 0.03, 1))]


def test_whoever_subscribes_to_what_is_unknown_here_is_told_so() -> None:
    broker = Broker(1, repair=True)
    assert broker.hear(1, subscribe(7, 0.1)) == ["subscription_unknown_id", (1, PathLost(C))]


def test_a_late_subscription_with_what_takes_it_back_does_not_mend_a_broken_path() -> None:
    source = Broker(1, node=0, repair=True)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    source.hear(1, subscribe(7, 0.05, PathKind.PATH_BROKEN))
    source.hear(1, subscribe(7, 0.06))
    source.hear(1, subscribe(7, 0.06, PathKind.UNSUBSCRIBE))
    source.asp.on_publish(2.0, event(0, 2, unit="C"))
    assert list(announced(source.effects())) == [1]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("failing", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(50))
def test_whatever_brokers_take_for_lost_every_sink_has_a_path_in_the_end_or_gets_a_new_announcement(
    seed: int, failing: float, cached: bool
) -> None:
    rng = Random(seed)
    graph = nx.gnm_random_graph(8, 13, seed=seed)
    graph.add_edges_from(nx.path_graph(8).edges)
    for a, b in graph.edges:
        graph.edges[a, b]["cost_s"] = rng.randint(1, 9) / 1000
    settings = AspSettings(repair=True, validity_s=1e6, announcement_cache=cached, publication_cache=16 * cached)
    web = Web(graph, settings, rng, failing)
    sinks = rng.sample(range(1, 8), 3)
    for node in rng.sample(range(8), rng.choice([1, 2])):
        web.install(node, KELVIN, lambda event: {**event.attributes, "unit": "K"})
    for sink in sinks:
        web.subscribe(sink, rng.choice(["unit = 'C'", "unit = 'K'"]))
    web.publish(0, topic="t", unit="C", value=0)
    links = rng.sample(list(graph.edges), 6)
    for a, b in links:
        rng.choice([web.lose, web.miss])(*rng.choice([(a, b), (b, a)]))
    for a, b in links:
        web.find(a, b)
    # The first finds out which paths do not work; the second announces, if need be.
    web.publish(0, topic="t", unit="C", value=2)
    web.publish(0, topic="t", unit="C", value=3)
    assert [web.delivered[sink][-1].attributes["value"] for sink in sinks] == [3, 3, 3]


# The patience of a source.


def test_paths_that_break_later_do_not_put_off_the_announcement_for_the_first() -> None:
    source = Broker(1, 2, node=0, repair=True, patience_s=3.0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    source.hear(2, subscribe(8, 0.05))
    source.asp.on_message(2.0, 1, subscribe(7, 0.05, PathKind.PATH_BROKEN), "radio")
    assert source.timers("patience") == [pytest.approx(3.0)]
    source.asp.on_message(4.0, 2, subscribe(8, 0.05, PathKind.PATH_BROKEN), "radio")
    assert source.timers("patience") == [pytest.approx(1.0)], "still at 5 s"
    source.asp.on_message(4.5, 1, subscribe(7, 0.05), "radio")
    source.effects()
    stream = source.asp.broker.table.entries()[0].stream.id
    source.asp.on_timer(5.0, ("patience", (stream,)))
    assert source.timers("patience") == [pytest.approx(2.0)], "the first is made again; the second waits until 7 s"
    source.asp.on_timer(7.0, ("patience", (stream,)))
    assert sorted(source.announced()) == [1, 2]
