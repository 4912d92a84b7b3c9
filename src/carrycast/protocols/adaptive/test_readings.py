"""Adaptive routing where the paper can be read in more than one way: each reading by a case worked by hand."""

import pytest

from carrycast.core.matching import Filter
from carrycast.core.model import Failure, NodeId, Subscription, SubscriptionId
from carrycast.core.parts.interests import EVERYTHING
from carrycast.core.protocol import Link
from carrycast.core.protocol.effects import Note, SetTimer
from carrycast.protocols.adaptive.messages import ForwardedEvent
from carrycast.protocols.adaptive.rules import draw_interest
from carrycast.protocols.adaptive.test_adaptive import ONE, adaptive, event, hear, report, targets
from carrycast.sim.testing import Net, isolate_protocol

KIND = Filter("kind = 'a'").text
"""The filter that every event of these tests matches."""


def list_send_times(net: Net, node: NodeId) -> list[float]:
    """Return the times at which a node forwards events; its first link comes up at 100 s."""
    rows = [row for row in net.rows("send") if row["node"] == node and row["event"] is not None]
    return sorted({float(str(row["time_s"])) for row in rows})


def test_a_node_forwards_all_stored_events_at_the_same_times() -> None:
    """[004 §2.3.3] One timer for each node: events of 0 s and 31 s are sent together, and again 60 s later."""
    net = Net.contacts([(0, 1, 100.0, 1000.0)], "adaptive", tau=1.0)
    first = net.publish(0, lease_s=600.0)
    net.run(31)
    second = net.publish(0, lease_s=600.0)
    net.run(189)
    times = list_send_times(net, 0)
    assert len(times) == 2
    assert times[1] - times[0] == pytest.approx(60.0, abs=1e-5)
    for time_s in times:
        sent = [row["event"] for row in net.rows("send") if row["time_s"] == time_s and row["event"] is not None]
        assert sent == [str(first.id), str(second.id)]


def test_different_nodes_forward_at_different_times() -> None:
    phases = set()
    for seed in range(20):
        protocol, port = isolate_protocol("adaptive", 0, None, seed)
        protocol.on_publish(2.0, event())
        (delay_s,) = [
            effect.delay_s for effect in port.take() if isinstance(effect, SetTimer) and effect.key == "retry"
        ]
        assert 0.0 < delay_s <= 60.0
        phases.add(delay_s)
    assert len(phases) == 20


def test_with_copy_timers_each_event_is_forwarded_an_interval_after_its_arrival() -> None:
    net = Net.contacts([(0, 1, 100.0, 1000.0)], "adaptive", tau=1.0, retry_timer="copy")
    net.publish(0, lease_s=600.0)
    net.run(31)
    net.publish(0, lease_s=600.0)
    net.run(200)
    assert list_send_times(net, 0) == pytest.approx([120.0, 151.0, 180.0, 211.0], abs=1e-5)


def test_links_of_equal_utility_are_ordered_by_id_or_by_age() -> None:
    """Links come up as 3, 1, 2, and 3 comes back last: the oldest are then 1 and 2. By id, 1 and 2 are first at all
    times."""
    for ties, before, after in (("fixed", [3, 1], [1, 2]), ("lowest", [1, 2], [1, 2])):
        protocol, port = adaptive(tau=0.5, ties=ties)
        for neighbor in (3, 1, 2):
            protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
            hear(protocol, report(neighbor, {ONE: 0.5}))
        protocol.on_publish(2.0, event())
        assert targets(port) == before
        protocol.on_link_down(3.0, Link(3, "radio", 0.001), Failure.SILENT)
        protocol.on_link_up(4.0, Link(3, "radio", 0.001))
        hear(protocol, report(3, {ONE: 0.5}, sequence=2), now=4.0)
        protocol.on_publish(5.0, event(1))
        assert targets(port) == after


def test_the_lowest_id_decides_only_among_equal_utilities() -> None:
    protocol, port = adaptive(links=3, tau=0.3, ties="lowest")
    for neighbor, utility in ((1, 0.3), (2, 0.5), (3, 0.5)):
        hear(protocol, report(neighbor, {ONE: utility}))
    protocol.on_publish(2.0, event())
    assert targets(port) == [2]


@pytest.mark.parametrize("counts_for", ["any", "one"])
def test_utilities_are_looked_up_for_all_interests_of_an_event_or_for_one(counts_for: str) -> None:
    """Link 1 has the largest utility for the topic, link 2 for the kind. An event matches both, so link 1 is chosen if
    all interests are looked up."""
    protocol, port = adaptive(links=2, tau=0.5, counts_for=counts_for)
    hear(protocol, report(1, {ONE: 0.9, KIND: 0.1}))
    hear(protocol, report(2, {ONE: 0.1, KIND: 0.8}))
    for number in range(40):
        one = event(number)
        protocol.on_publish(2.0, one)
        drawn = draw_interest(one.id, [KIND, ONE])
        assert targets(port) == [2 if counts_for == "one" and drawn == KIND else 1]


@pytest.mark.parametrize(("counts_for", "stored"), [("any", 60), ("one", None)])
def test_an_event_is_stored_for_any_of_its_interests_or_for_one(counts_for: str, stored: int | None) -> None:
    protocol, port = adaptive(links=2, sigma=0.4, counts_for=counts_for)
    hear(protocol, report(1, {ONE: 0.1, KIND: 0.1}))
    protocol._predictions.utilities = {EVERYTHING: 0.1, ONE: 0.5, KIND: 0.2}
    events = [event(number) for number in range(60)]
    for one in events:
        protocol.on_message(2.0, 1, ForwardedEvent(one, 1, 500.0), "radio")
    kept = [effect.fact.event for effect in port.take() if isinstance(effect, Note) and effect.fact.kind == "store"]
    for_topic = [one.id for one in events if draw_interest(one.id, [KIND, ONE]) == ONE]
    assert 15 < len(for_topic) < 45
    assert kept == ([one.id for one in events] if stored else for_topic)


def test_a_subscriber_to_the_drawn_interest_does_not_store_and_to_another_may() -> None:
    protocol, port = adaptive(links=2, sigma=0.4, counts_for="one")
    protocol.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "kind = 'a'"))
    hear(protocol, report(1, {ONE: 0.1}))
    protocol._predictions.utilities = {EVERYTHING: 0.9, ONE: 0.9}
    events = [event(number) for number in range(20)]
    for one in events:
        protocol.on_message(2.0, 1, ForwardedEvent(one, 1, 500.0), "radio")
    kept = [effect.fact.event for effect in port.take() if isinstance(effect, Note) and effect.fact.kind == "store"]
    assert kept == [one.id for one in events if draw_interest(one.id, [KIND, ONE]) == ONE]
    assert 0 < len(kept) < 20
