"""Adaptive routing: its handlers one by one, and small networks."""

from collections.abc import Mapping

import pytest

from carrycast.core.matching import Filter
from carrycast.core.model import Event, EventId, Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts.interests import EVERYTHING
from carrycast.core.protocol import Capability, Fact, Link, RecordingPort
from carrycast.core.protocol.effects import Broadcast, Deliver, Note, Send, SetTimer
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.protocols.adaptive.context import ATTRIBUTES
from carrycast.protocols.adaptive.messages import ForwardedEvent, UtilityReport
from carrycast.protocols.adaptive.protocol import Adaptive
from carrycast.protocols.adaptive.settings import AdaptiveSettings
from carrycast.sim.testing import IsolatedHost, Net, isolate_protocol

ONE, TWO = Filter("topic = 1").text, Filter("topic = 2").text


def event(number: int = 0, topic: int = 1) -> Event:
    return Event(EventId(9, number), {"topic": topic, "kind": "a"}, lease_s=600.0)


def report(
    node: NodeId,
    utilities: Mapping[str, float] | None = None,
    subscribed: tuple[str, ...] = (),
    neighborhood: Mapping[str, float] | None = None,
    via: NodeId = 99,
    sequence: int = 1,
    hops: int = 1,
    valid_s: float = 1000.0,
) -> UtilityReport:
    neighborhood = dict(neighborhood or {})
    table = {EVERYTHING: 0.0, **(utilities or {})}
    return UtilityReport(node, sequence, hops, valid_s, subscribed, table, neighborhood, (via,) * len(neighborhood))


def adaptive(node: NodeId = 0, links: int = 0, **settings: object) -> tuple[Adaptive, RecordingPort]:
    protocol, port = isolate_protocol("adaptive", node, None, 1, **settings)
    assert isinstance(protocol, Adaptive)
    for neighbor in range(1, links + 1):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    port.take()
    return protocol, port


def hear(protocol: Adaptive, message: UtilityReport, sender: NodeId | None = None, now: float = 1.0) -> None:
    protocol.on_message(now, message.node if sender is None else sender, message, "radio")


def targets(port: RecordingPort) -> list[NodeId]:
    return [effect.target for effect in port.take() if isinstance(effect, Send)]


# The forwarding rule.


def test_all_neighbors_that_subscribe_get_the_event_for_any_tau() -> None:
    protocol, port = adaptive(links=5, tau=0.2)
    for neighbor in (1, 3, 4):
        hear(protocol, report(neighbor, subscribed=(ONE,)))
    protocol.on_publish(2.0, event())
    assert targets(port) == [1, 3, 4]


def test_links_to_nearer_subscribers_come_first() -> None:
    protocol, port = adaptive(links=4, tau=0.75, phi=3)
    for neighbor, far, hops in ((1, 11, 3), (2, 12, 2), (3, 13, 3)):
        hear(protocol, report(far, subscribed=(ONE,), hops=hops), sender=neighbor)
    protocol.on_publish(2.0, event())
    assert targets(port) == [2, 1, 3]


def test_links_with_the_largest_utilities_come_next() -> None:
    protocol, port = adaptive(links=5, tau=0.6)
    for neighbor, utility in ((1, 0.1), (2, 0.7), (3, 0.4)):
        hear(protocol, report(neighbor, {ONE: utility, TWO: 1 - utility}))
    hear(protocol, report(4, subscribed=(ONE,)))
    protocol.on_publish(2.0, event())
    assert targets(port) == [4, 2, 3]
    protocol.on_publish(2.0, event(1, topic=2))
    # Nodes 4 and 5 have no prediction for this interest.
    assert targets(port) == [1, 3, 2]


def test_the_utility_for_everything_is_the_default_of_an_interest() -> None:
    protocol, port = adaptive(links=3, tau=0.3)
    hear(protocol, report(1, {EVERYTHING: 0.2}))
    hear(protocol, report(2, {EVERYTHING: 0.4}))
    hear(protocol, report(3, {EVERYTHING: 0.1, ONE: 0.3}))
    protocol.on_publish(2.0, event())
    assert targets(port) == [2]


def test_links_without_a_prediction_are_drawn() -> None:
    protocol, port = adaptive(links=10, tau=0.5)
    drawn = []
    for number in range(30):
        protocol.on_publish(2.0, event(number))
        drawn.append(tuple(targets(port)))
    assert all(len(set(chosen)) == 5 for chosen in drawn)
    assert len(set(drawn)) > 20


def test_an_event_never_goes_back_over_the_link_it_came_over() -> None:
    protocol, port = adaptive(links=3, tau=1.0)
    hear(protocol, report(2, subscribed=(ONE,)))
    protocol.on_message(2.0, 2, ForwardedEvent(event(), 1, 500.0), "radio")
    assert targets(port) == [1, 3]


def test_a_duplicate_is_dropped() -> None:
    protocol, port = adaptive(links=3)
    protocol.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "topic = 1"))
    protocol.on_message(2.0, 1, ForwardedEvent(event(), 1, 500.0), "radio")
    assert Deliver(SubscriptionId(0, 0), event(), 1) in port.take()
    protocol.on_message(3.0, 2, ForwardedEvent(event(), 2, 499.0), "radio")
    assert port.take() == []


@pytest.mark.parametrize(("ties", "orders"), [("fixed", 1), ("random", 6)])
def test_equal_links_are_taken_in_random_or_fixed_order(ties: str, orders: int) -> None:
    protocol, port = adaptive(links=4, tau=0.5, ties=ties)
    for neighbor in (1, 2, 3, 4):
        hear(protocol, report(neighbor, {ONE: 0.5}))
    seen = set()
    for number in range(100):
        protocol.on_publish(2.0, event(number))
        seen.add(frozenset(targets(port)))
    assert len(seen) == orders


def test_unreliable_predictions_are_not_used() -> None:
    protocol, port = adaptive(links=10, tau=0.1)
    for neighbor in range(1, 11):
        hear(protocol, report(neighbor, {ONE: neighbor / 20}))
    protocol.on_publish(2.0, event())
    assert targets(port) == [10]
    protocol._predictions._host_reliable = False
    chosen = set()
    for number in range(1, 60):
        protocol.on_publish(2.0, event(number))
        chosen.update(targets(port))
    assert len(chosen) > 5


# Reports of utilities.


def test_a_newer_report_replaces_an_older_and_a_copy_changes_nothing() -> None:
    protocol, _ = adaptive(links=2)
    hear(protocol, report(1, {ONE: 0.5}, sequence=7))
    hear(protocol, report(1, {ONE: 0.9}, sequence=7))
    assert protocol._tables[1][ONE] == 0.5
    hear(protocol, report(1, {ONE: 0.2}, sequence=8))
    assert protocol._tables[1][ONE] == 0.2


def test_a_report_travels_as_far_as_the_horizon() -> None:
    protocol, port = adaptive(links=1, phi=3)
    for hops, passed in ((1, True), (2, True), (3, False)):
        message = report(1 if hops == 1 else 10 + hops, hops=hops)
        hear(protocol, message, sender=1)
        sent = [effect.message for effect in port.take() if isinstance(effect, Broadcast)]
        assert [one.hops for one in sent if isinstance(one, UtilityReport)] == ([hops + 1] if passed else [])


def test_utilities_are_forgotten_with_their_link_or_when_they_are_old() -> None:
    protocol, _ = adaptive(links=2)
    hear(protocol, report(1, {ONE: 0.5}, valid_s=30.0))
    hear(protocol, report(2, {ONE: 0.6}))
    protocol.on_link_down(5.0, Link(2, "radio", 0.001), Failure.SILENT)
    protocol.on_link_up(6.0, Link(2, "radio", 0.001))
    assert protocol._tables[2] == {EVERYTHING: 0.0}
    protocol.on_timer(30.0, "sample")
    assert protocol._tables[1][ONE] == 0.5
    protocol.on_timer(40.0, "sample")
    assert protocol._tables[1] == {EVERYTHING: 0.0}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (report(5), "report_of_another"),
        (report(1, {"topic =": 0.5}), "report_unreadable"),
    ],
)
def test_an_invalid_report_is_dropped_with_a_reason(message: UtilityReport, reason: str) -> None:
    protocol, port = adaptive(links=1)
    hear(protocol, message, sender=1)
    assert port.take() == [Note(Fact("drop", peer=1, reason=reason))]
    assert len(protocol._horizon) == 0


def take_report(protocol: Adaptive, port: RecordingPort, now: float) -> UtilityReport:
    port.take()
    protocol.on_timer(now, "update")
    (message,) = [effect.message for effect in port.take() if isinstance(effect, Broadcast)]
    assert isinstance(message, UtilityReport)
    return message


def test_a_report_names_subscriptions_and_not_those_that_another_covers() -> None:
    protocol, port = adaptive()
    for number, text in enumerate(("speed > 5", "speed > 10", "topic = 1")):
        protocol.on_subscribe(0.0, Subscription(SubscriptionId(0, number), text))
    assert take_report(protocol, port, 1.0).subscribed == (Filter("speed > 5").text, ONE)
    protocol.on_unsubscribe(2.0, SubscriptionId(0, 0))
    assert take_report(protocol, port, 3.0).subscribed == (Filter("speed > 10").text, ONE)


def test_carriers_that_a_subscription_covers_are_left_out() -> None:
    protocol, port = adaptive()
    wide, narrow = Filter("speed > 5").text, Filter("speed > 10").text
    protocol.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "speed > 5"))
    hear(protocol, report(1, subscribed=(narrow,)))
    protocol._predictions.utilities = {EVERYTHING: 0.1, narrow: 0.6, wide: 0.3}
    message = take_report(protocol, port, 1.0)
    assert (message.subscribed, message.utilities) == ((wide,), {EVERYTHING: 0.1})


def test_neighborhood_utilities_above_the_nodes_own_are_reported() -> None:
    protocol, port = adaptive(links=3)
    hear(protocol, report(1, {ONE: 0.5, EVERYTHING: 0.3}))
    hear(protocol, report(2, subscribed=(TWO,)))
    hear(protocol, report(3, {ONE: 0.8}, neighborhood={TWO: 0.9, ONE: 1.0}))
    protocol._predictions.utilities = {EVERYTHING: 0.2, ONE: 0.6}
    message = take_report(protocol, port, 2.0)
    reported = dict(zip(message.neighborhood.items(), message.via, strict=True))
    assert reported == {(TWO, 1.0): 2, (ONE, 0.8): 3, (EVERYTHING, 0.3): 1}
    assert message.steps == ()


def test_recursive_neighborhood_utilities_are_reported_while_they_have_steps_left() -> None:
    protocol, port = adaptive(links=2, neighborhood=3)
    for steps, passed in ((1, True), (2, True), (3, False)):
        far = UtilityReport(1, steps, 1, 1000.0, (), {EVERYTHING: 0.0}, {ONE: 1.0}, (7,), (steps,))
        hear(protocol, far)
        message = take_report(protocol, port, 2.0)
        assert (message.neighborhood, message.steps) == (({ONE: 1.0}, (steps + 1,)) if passed else ({}, ()))


@pytest.mark.parametrize(("split_horizon", "utility"), [(True, 0.2), (False, 0.9)])
def test_with_split_horizon_a_node_ignores_utilities_learned_from_itself(split_horizon: bool, utility: float) -> None:
    protocol, _ = adaptive(node=5, links=1, split_horizon=split_horizon)
    hear(protocol, report(1, {ONE: 0.2}, neighborhood={ONE: 0.9}, via=5))
    assert protocol._tables[1][ONE] == utility


def test_beyond_one_hop_a_node_ignores_its_own_utility_in_reports() -> None:
    """0 - 1 - 2 with a horizon of two hops: node 2 reports node 0's subscription, which it learned over node 1."""
    net = Net.line(3, "adaptive", phi=2)
    net.subscribe(0, "topic = 1")
    net.run(40)
    first, second = net.protocol(0), net.protocol(1)
    assert isinstance(first, Adaptive)
    assert isinstance(second, Adaptive)
    (second_hop,) = [known for node, known in first._horizon if node == 2]
    assert second_hop.report.message.neighborhood[ONE] == 1.0
    assert (second_hop.report.message.via, second_hop.report.message.origins) == ((1,), (0,))
    assert second_hop.report.ignored == [ONE]
    assert first._tables[1].get(ONE, 0.0) < 1.0
    assert second._horizon.nearest([ONE]) == {0: 1}


def test_a_neighborhood_utility_covered_by_another_from_the_same_source_is_left_out() -> None:
    protocol, port = adaptive(links=2)
    narrow, wide = Filter("speed > 10").text, Filter("speed > 5").text
    hear(protocol, report(1, {wide: 0.5, narrow: 0.4}))
    message = take_report(protocol, port, 2.0)
    assert message.neighborhood == {wide: 0.5}
    hear(protocol, report(2, {narrow: 0.45}))
    message = take_report(protocol, port, 3.0)
    # Node 1 ignores utilities that were learned from itself, and then has only the narrow one of node 2.
    assert dict(zip(message.neighborhood.items(), message.via, strict=True)) == {(wide, 0.5): 1, (narrow, 0.45): 2}


# Storing.


@pytest.mark.parametrize(
    ("utilities", "subscribed", "stores"),
    [
        ({EVERYTHING: 0.1, ONE: 0.4}, None, True),
        ({EVERYTHING: 0.1, ONE: 0.39}, None, False),
        ({EVERYTHING: 0.4}, None, True),
        # Interests of which only the subscribed one matches.
        ({EVERYTHING: 0.9, TWO: 0.9}, "topic = 1", False),
        # A subscription covers the only interest that matches.
        ({EVERYTHING: 0.1, ONE: 0.5}, "topic < 5", False),
        # A subscription to everything is one to each interest.
        ({EVERYTHING: 0.9, ONE: 0.9}, "", False),
        # Another interest of the same event, which the node does not subscribe to.
        ({EVERYTHING: 0.1, ONE: 0.5}, "kind = 'a'", True),
    ],
)
def test_good_carriers_store(utilities: dict[str, float], subscribed: str | None, stores: bool) -> None:
    protocol, port = adaptive(links=2, sigma=0.4)
    hear(protocol, report(1, {ONE: 0.1, TWO: 0.1}))
    if subscribed is not None:
        protocol.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), subscribed))
    protocol._predictions.utilities = utilities
    protocol.on_message(2.0, 1, ForwardedEvent(event(), 1, 500.0), "radio")
    assert (Note(Fact("store", event().id)) in port.take()) == stores


def test_subscribers_can_be_kept_from_storing_at_all() -> None:
    protocol, port = adaptive(links=2, subscribers_store=False)
    protocol.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "kind = 'a'"))
    hear(protocol, report(1, {ONE: 0.1}))
    protocol._predictions.utilities = {EVERYTHING: 0.9, ONE: 0.9}
    protocol.on_message(2.0, 1, ForwardedEvent(event(), 1, 500.0), "radio")
    assert Note(Fact("store", event().id)) not in port.take()


def test_a_node_without_neighbors_stores() -> None:
    protocol, port = adaptive(sigma=1.0)
    protocol.on_publish(2.0, event())
    assert Note(Fact("store", event().id)) in port.take()


def test_a_stored_event_is_forwarded_again_until_its_lease_expires() -> None:
    net = Net.contacts([(0, 1, 130.0, 1000.0)], "adaptive", tau=1.0)
    net.subscribe(1)
    event = net.publish(0, lease_s=150.0)
    late = net.publish(0, lease_s=100.0)
    net.run(170)
    assert net.list_delivered(1) == []
    assert [row["reason"] for row in net.rows("evict")] == ["lease_over", "lease_over"]
    assert {row["event"] for row in net.rows("evict")} == {str(event.id), str(late.id)}


@pytest.mark.parametrize(("retransmit_to", "again"), [("everyone", [2, 3]), ("others", [3])])
def test_neighbors_known_to_hold_an_event_may_be_left_out(retransmit_to: str, again: list[NodeId]) -> None:
    protocol, port = adaptive(links=2, tau=1.0, sigma=0.0, retransmit_to=retransmit_to, retry_timer="copy")
    protocol.on_message(2.0, 1, ForwardedEvent(event(), 1, 500.0), "radio")
    assert targets(port) == [2]
    protocol.on_link_up(10.0, Link(3, "radio", 0.001))
    protocol.on_timer(62.0, "retry")
    assert targets(port) == again


# Time.


def test_reports_come_sooner_when_the_neighbors_change() -> None:
    protocol, port = adaptive(links=3, adaptive_updates=True)
    protocol.on_timer(5.0, "sample")
    protocol.on_timer(5.0, "update")
    assert SetTimer("update", 60.0) in port.take()
    protocol.on_timer(15.0, "sample")
    assert SetTimer("update", 50.0) in port.take()
    protocol.on_link_up(16.0, Link(4, "radio", 0.001))
    protocol.on_timer(25.0, "sample")
    # One of four is new: T_d = 10 s / (1/4) since 5 s.
    assert SetTimer("update", 20.0) in port.take()


# Settings.


@pytest.mark.parametrize(
    ("settings", "rule"),
    [
        ({"tau": 0.0}, "> 0.0"),
        ({"tau": 1.1}, "<= 1.0"),
        ({"sigma": -0.1}, ">= 0.0"),
        ({"sigma": 1.5}, "<= 1.0"),
        ({"phi": 0}, ">= 1"),
        ({"buffer": 0}, ">= 1"),
        ({"weights": {"change_degree": 0.5, "colocation": 0.6}}, "weights must sum to 1, not to 1.1"),
        ({"weights": {"change_degree": 1.0, "luck": 0.0}}, "there is no context attribute 'luck'"),
        ({"weights": {"change_degree": 1.5, "colocation": -0.5}}, "<= 1.0"),
        ({"update_min_s": 30.0, "update_max_s": 20.0}, "update_min_s (30) must not exceed update_max_s (20)"),
    ],
)
def test_wrong_settings_are_refused_with_the_rule(settings: dict[str, object], rule: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(settings, AdaptiveSettings, "scenario.toml", "protocol")
    assert rule in str(refused.value)


def test_the_context_attributes_of_the_paper_are_there() -> None:
    assert list(ATTRIBUTES) == ["change_degree", "colocation", "free_buffer", "residual_energy"]


def test_a_weight_on_energy_needs_a_host_that_measures_it() -> None:
    weights = {"residual_energy": 1.0}
    assert AdaptiveSettings(weights=weights).needs() == {Capability.ENERGY}
    assert AdaptiveSettings(weights={"change_degree": 1.0, "residual_energy": 0.0}).needs() == frozenset()

    class Battery(IsolatedHost):
        def __init__(self) -> None:
            super().__init__()
            self.offers = self.offers | {Capability.ENERGY}

        def energy(self, now: float) -> float:
            return 0.25

    protocol, _ = isolate_protocol("adaptive", host=Battery(), weights=weights)
    assert isinstance(protocol, Adaptive)
    protocol.on_timer(5.0, "sample")
    protocol.on_timer(15.0, "sample")
    assert protocol._predictions.utilities[EVERYTHING] == 0.25


def test_a_carrier_that_crashes_loses_only_the_events_that_it_carried() -> None:
    contacts = [(0, 1, 0.0, 20.0), (0, 2, 10.0, 20.0), (1, 3, 100.0, 200.0), (2, 3, 300.0, 400.0)]
    net = Net.contacts(contacts, "adaptive", sigma=0.0, tau=1.0)
    net.subscribe(3)
    net.run(5)
    only_one = net.publish(0)
    net.run(10)
    both = net.publish(0)
    net.run(25)
    net.crash(1)
    net.run(10)
    net.restart(1)
    net.run(200)
    assert net.list_delivered(3) == [], "node 1 has lost its events when it meets the subscriber"
    net.run(150)
    assert net.list_delivered(3) == [both]
    assert only_one != both
    net.stop()
