"""Repair at one broker [001 §6.2, §6.3]: feasible announcers, and notices and requests if there is none."""

from random import Random

import msgspec
import networkx as nx
import pytest

from carrycast.core.model import Failure, Subscription, SubscriptionId
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
    announcement,
    event,
    make_station,
    subscribe,
    take_announcements,
)
from carrycast.protocols.asp.tests.web import Web


def make_subscribed(*metrics_s: float) -> Broker:
    """Make a broker with announcers 1, 2 and so on with these metrics, and a subscriber at 3."""
    broker = Broker(1, 2, 3, repair=True)
    broker.hear(1, announcement(metrics_s[0]))
    for announcer, metric_s in enumerate(metrics_s[1:], 2):
        broker.hear(announcer, ShortAnnouncement(C, metric_s, 1))
    broker.hear(3, subscribe(7, 0.1))
    return broker


def test_a_path_lost_at_the_announcer_moves_subscribers_to_a_feasible_announcer() -> None:
    # 2 is itself at 25 - 10 = 15 ms from the source, this broker at 20.
    broker = make_subscribed(0.02, 0.025)
    effects = broker.hear(1, PathLost(C))
    # The whole path is 5 ms longer now.
    assert effects == [
        (2, subscribe(7, pytest.approx(0.105), PathKind.REPLACE)),  # type: ignore[arg-type] # compares as a number
        (1, subscribe(7, 0.1, PathKind.UNSUBSCRIBE)),
    ]


def test_without_a_feasible_announcer_the_loss_is_reported_downstream() -> None:
    # 2 is itself at 35 - 10 = 25 ms, this broker at 20.
    broker = make_subscribed(0.02, 0.035)
    assert broker.hear(1, PathLost(C)) == [(3, PathLost(C))]


def test_a_path_lost_at_an_alternative_changes_nothing() -> None:
    broker = make_subscribed(0.02, 0.025)
    assert broker.hear(2, PathLost(C)) == []
    assert broker.hear(1, PathLost(C)) == [(3, PathLost(C))], "2 is not feasible any more"


@pytest.mark.parametrize(
    ("reported_over", "metric_s", "used_then", "usable"),
    [
        # 2 is at 40 ms and reports 50 over the radio; later there is an Ethernet link to it. 40 is below 45.
        ("radio", 0.05, "ethernet", True),
        # 2 is at 50 ms and reports 51 over Ethernet; later there is only the radio. 50 is not below 45.
        ("ethernet", 0.051, "radio", False),
    ],
)
def test_the_feasibility_of_an_announcer_does_not_depend_on_the_link_to_it(
    reported_over: str, metric_s: float, used_then: str, usable: bool
) -> None:
    costs_s = {"radio": 0.01, "ethernet": 0.001}
    broker = Broker(1, 3, repair=True)
    broker.asp.on_link_up(0.0, Link(2, reported_over, costs_s[reported_over]))
    broker.hear(1, announcement(0.045))
    broker.asp.on_message(1.0, 2, ShortAnnouncement(C, metric_s, 1), reported_over)
    broker.hear(3, subscribe(7, 0.1))
    broker.asp.on_link_up(1.5, Link(2, used_then, costs_s[used_then]))
    if used_then == "radio":
        broker.asp.on_link_down(1.5, Link(2, reported_over, costs_s[reported_over]), Failure.SILENT)
    broker.effects()
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    targets = [effect[0] for effect in broker.effects() if isinstance(effect, tuple)]
    assert targets == ([2] if usable else [3])


def test_a_broker_without_a_feasible_announcer_requests_a_new_announcement() -> None:
    broker = make_subscribed(0.02)
    broker.hear(1, PathLost(C))
    assert broker.hear(2, ShortAnnouncement(C, 0.035, 1)) == [(2, subscribe(7, 0.035, PathKind.RENEW))]
    assert broker.hear(2, ShortAnnouncement(C, 0.035, 1)) == [], "each neighbor is requested once"


def test_a_request_for_a_new_announcement_travels_along_announcers_to_the_source() -> None:
    broker = Broker(1, 2)
    broker.hear(1, announcement(0.02))
    renew = subscribe(7, 0.035, PathKind.RENEW)
    assert broker.hear(2, renew) == [(1, subscribe(7, 0.02, PathKind.RENEW))]
    source = Broker(1, node=0)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    assert source.hear(1, renew) == []
    source.asp.on_publish(2.0, event(0, 2, unit="C"))
    assert list(take_announcements(source.effects())) == [1]


def test_a_request_for_a_new_result_travels_to_the_announcers_of_its_inputs() -> None:
    broker, _, id = make_station()
    broker.effects()
    assert broker.hear(3, subscribe(7, 0.3, PathKind.RENEW, id=id)) == [(1, subscribe(7, 0.05, PathKind.RENEW))]


def test_a_request_at_a_broker_without_an_announcer_goes_to_all_alternatives_and_is_deferred() -> None:
    broker = make_subscribed(0.02, 0.035)
    broker.hear(1, PathLost(C))
    requests = [(1, subscribe(8, 0.02, PathKind.RENEW)), (2, subscribe(8, 0.035, PathKind.RENEW))]
    assert broker.hear(3, subscribe(8, 0.1, PathKind.RENEW)) == requests
    assert broker.hear(3, subscribe(8, 0.1, PathKind.RENEW)) == [], "the request has come back"
    assert (1, subscribe(8, 0.02, PathKind.RENEW)) in broker.hear(1, ShortAnnouncement(C, 0.02, 1))


def test_a_sink_without_a_feasible_announcer_requests_a_new_announcement_at_once() -> None:
    broker = Broker(1, 2, repair=True)
    broker.asp.on_subscribe(0.0, Subscription(SINK, "unit = 'C'"))
    broker.hear(1, announcement(0.02))
    broker.hear(2, ShortAnnouncement(C, 0.035, 1))
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(2, subscribe(broker.subscriber, 0.035, PathKind.RENEW))]


def test_paths_of_a_replaced_announcement_are_not_repaired() -> None:
    broker = make_subscribed(0.02, 0.025)
    newer = event(0, 2, unit="C", value=21.5)
    broker.hear(2, announcement(0.03, of=newer, id=announcement_id(newer, (0,), 3), counter=2))
    assert broker.hear(1, PathLost(C)) == []


# Neighbors whose views of a path differ.


def test_a_broken_path_is_reported_to_an_announcer_that_has_lost_its_own() -> None:
    """The announcer keeps the path and may be repaired itself, so the path must be removed there."""
    broker = make_subscribed(0.02)
    broker.hear(1, PathLost(C))
    # The subscriber's path moves from 3 to 2 meanwhile.
    assert broker.hear(2, subscribe(7, 0.05)) == [(2, PathLost(C))]
    broker.hear(3, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))
    broker.asp.on_link_down(2.0, Link(2, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.PATH_BROKEN))]


def test_neighbors_that_were_notified_of_a_lost_path_are_notified_of_its_recovery() -> None:
    broker = make_subscribed(0.02)
    broker.hear(1, PathLost(C))
    assert broker.hear(1, ShortAnnouncement(C, 0.02, 1)) == [
        (1, subscribe(7, 0.1, PathKind.REPLACE)),
        (3, ShortAnnouncement(C, 0.03, 1)),
    ]


def test_an_announcer_that_is_back_is_used_again_without_a_message() -> None:
    broker = make_subscribed(0.02)
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [(3, PathLost(C))]
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.REPLACE)), (3, ShortAnnouncement(C, 0.03, 1))]


def test_a_lost_announcer_that_is_back_gets_the_deferred_unsubscription() -> None:
    """Otherwise it keeps the path, and where both paths meet, a break of the one in use would not be noticed."""
    broker = make_subscribed(0.02, 0.025)
    broker.asp.on_link_down(2.0, Link(1, "radio", 0.01), Failure.SILENT)
    assert [effect[0] for effect in broker.effects() if isinstance(effect, tuple)] == [2]
    broker.asp.on_link_up(3.0, Link(1, "radio", 0.01))
    assert broker.effects() == [(1, subscribe(7, 0.1, PathKind.UNSUBSCRIBE))]


def test_a_neighbor_whose_path_was_removed_is_notified_when_it_is_back() -> None:
    """It may not have noticed the loss, and if its subscriber has another path here, the source was not notified."""
    broker = make_subscribed(0.02)
    broker.hear(2, subscribe(7, 0.2))
    broker.asp.on_link_down(2.0, Link(3, "radio", 0.01), Failure.SILENT)
    assert broker.effects() == [], "the other path takes over"
    broker.asp.on_link_up(3.0, Link(3, "radio", 0.01))
    assert broker.effects() == [(3, PathLost(C)), (3, ShortAnnouncement(C, 0.03, 1))]


def test_a_subscription_to_an_unknown_announcement_is_answered_with_path_lost() -> None:
    broker = Broker(1, repair=True)
    assert broker.hear(1, subscribe(7, 0.1)) == ["subscription_unknown_id", (1, PathLost(C))]


def test_a_late_subscription_and_its_unsubscription_do_not_repair_a_broken_path() -> None:
    source = Broker(1, node=0, repair=True)
    source.asp.on_publish(1.0, CELSIUS)
    source.hear(1, subscribe(7, 0.05))
    source.hear(1, subscribe(7, 0.05, PathKind.PATH_BROKEN))
    source.hear(1, subscribe(7, 0.06))
    source.hear(1, subscribe(7, 0.06, PathKind.UNSUBSCRIBE))
    source.asp.on_publish(2.0, event(0, 2, unit="C"))
    assert list(take_announcements(source.effects())) == [1]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("failing", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(50))
def test_after_any_losses_every_sink_has_a_path_or_gets_a_new_announcement(
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
    # The first publication detects broken paths; the second is announced if necessary.
    web.publish(0, topic="t", unit="C", value=2)
    web.publish(0, topic="t", unit="C", value=3)
    assert [web.delivered[sink][-1].attributes["value"] for sink in sinks] == [3, 3, 3]


# The patience of a source.


def test_a_later_break_does_not_delay_the_announcement_for_the_first() -> None:
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
    assert source.timers("patience") == [pytest.approx(2.0)], (
        "the first path is repaired; the source waits for the second until 7 s"
    )
    source.asp.on_timer(7.0, ("patience", (stream,)))
    assert sorted(source.take_announcements()) == [1, 2]


def test_an_expired_message_is_neither_announced_nor_delivered_again_when_patience_ends() -> None:
    source = Broker(1, node=0, repair=True, patience_s=3.0, validity_s=1.0, memory_s=0.1)
    source.asp.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "true"))
    short = msgspec.structs.replace(CELSIUS, lease_s=5.0)
    source.asp.on_publish(1.0, short)
    source.hear(1, subscribe(7, 0.05))
    source.asp.on_message(1.5, 1, subscribe(7, 0.05, PathKind.PATH_BROKEN), "radio")
    stream = source.asp.broker.table.entries()[0].stream.id
    # Long after the patience, as on a busy machine: announcement, stream and lease are over.
    source.asp.on_timer(9.0, "expiry")
    source.effects()
    source.asp.on_timer(9.5, ("patience", (stream,)))
    assert source.effects() == ["lease_over"]
