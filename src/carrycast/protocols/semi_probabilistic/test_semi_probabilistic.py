"""Semi-probabilistic routing: its horizon, its links, and store and forward."""

import pytest

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Link, Protocol, RecordingPort
from carrycast.core.protocol.effects import Broadcast, Deliver, Note, Send, SetTimer
from carrycast.core.settings import parse_settings
from carrycast.errors import UserError
from carrycast.protocols.semi_probabilistic.messages import ForwardedEvent, SubscriptionReport
from carrycast.protocols.semi_probabilistic.settings import SemiProbabilisticSettings
from carrycast.sim.testing import Net, isolate_protocol


def event(number: int = 0) -> Event:
    return Event(EventId(9, number), {"topic": 1}, lease_s=600.0)


def make_report(node: NodeId, hops: int = 1, text: str = "topic = 1", sequence: int = 1) -> SubscriptionReport:
    return SubscriptionReport(node, sequence, hops, 1000.0, (text,))


def make_node(links: int, **settings: object) -> tuple[Protocol, RecordingPort]:
    protocol, port = isolate_protocol("semi_probabilistic", 0, None, 1, **settings)
    for neighbor in range(1, links + 1):
        protocol.on_link_up(0.0, Link(neighbor, "radio", 0.001))
    port.take()
    return protocol, port


def take_targets(port: RecordingPort) -> list[NodeId]:
    return [effect.target for effect in port.take() if isinstance(effect, Send)]


def test_all_neighbors_that_subscribe_get_the_event_for_any_tau() -> None:
    protocol, port = make_node(5, tau=0.2)
    for neighbor in (2, 4, 5):
        protocol.on_message(1.0, neighbor, make_report(neighbor), "radio")
    protocol.on_publish(2.0, event())
    assert take_targets(port) == [2, 4, 5]


def test_links_to_nearer_subscribers_come_first_and_the_rest_is_drawn() -> None:
    protocol, port = make_node(6, tau=0.5, phi=3)
    protocol.on_message(1.0, 1, make_report(11, hops=3), "radio")
    protocol.on_message(1.0, 5, make_report(12, hops=2), "radio")
    protocol.on_message(1.0, 6, make_report(13, hops=2, text="topic = 2"), "radio")
    last = set()
    for number in range(40):
        protocol.on_publish(2.0, event(number))
        chosen = take_targets(port)
        assert chosen[:2] == [5, 1]
        last.add(chosen[2])
    assert last == {2, 3, 4, 6}


def test_without_a_horizon_links_are_drawn_and_nothing_is_reported() -> None:
    net = Net.line(3, "semi_probabilistic", variant="probabilistic", tau=1.0)
    net.subscribe(2)
    net.run(60)
    assert net.rows("send") == []
    event = net.publish(0, lease_s=60.0)
    net.run(1)
    assert net.list_delivered(2) == [event]


def test_a_report_travels_as_far_as_the_horizon() -> None:
    protocol, port = make_node(1, phi=2)
    for hops, passed in ((1, 1), (2, 0)):
        message = make_report(1 if hops == 1 else 12, hops=hops)
        protocol.on_message(1.0, 1, message, "radio")
        assert len([effect for effect in port.take() if isinstance(effect, Broadcast)]) == passed


@pytest.mark.parametrize(
    ("message", "reason"),
    [(make_report(7), "report_of_another"), (make_report(1, text="topic ="), "report_unreadable")],
)
def test_an_invalid_report_is_dropped_with_a_reason(message: SubscriptionReport, reason: str) -> None:
    protocol, port = make_node(1)
    protocol.on_message(1.0, 1, message, "radio")
    assert port.take() == [Note(Fact("drop", peer=1, reason=reason))]


def test_every_node_stores_and_forwards_again_until_its_attempts_are_used() -> None:
    protocol, port = make_node(1, tau=1.0, attempts=3, retry_timer="copy")
    protocol.on_subscribe(0.0, Subscription(SubscriptionId(0, 0), "topic = 1"))
    protocol.on_message(2.0, 1, ForwardedEvent(event(), 1, 500.0), "radio")
    effects = port.take()
    assert Deliver(SubscriptionId(0, 0), event(), 1) in effects
    assert Note(Fact("store", event().id)) in effects
    protocol.on_link_up(10.0, Link(2, "radio", 0.001))
    for now in (62.0, 122.0, 182.0):
        protocol.on_timer(now, "retry")
        effects = port.take()
        assert Send(2, ForwardedEvent(event(), 2, 502.0 - now)) in effects
    assert Note(Fact("evict", event().id, reason="attempts_over")) in effects


def test_stored_events_are_forwarded_together_each_with_its_own_attempts() -> None:
    """Two attempts each: the event of 2 s at the node's first two retries, the later event at the next two."""
    protocol, port = make_node(1, tau=1.0, attempts=2)
    protocol.on_message(2.0, 1, ForwardedEvent(event(1), 1, 500.0), "radio")
    (delay_s,) = [effect.delay_s for effect in port.take() if isinstance(effect, SetTimer)]
    first = 2.0 + delay_s
    protocol.on_link_up(3.0, Link(2, "radio", 0.001))
    forwarded = []
    for now in (first, first + 60.0, first + 120.0, first + 180.0):
        protocol.on_timer(now, "retry")
        sent = [effect.message for effect in port.take() if isinstance(effect, Send)]
        forwarded.append([message.event for message in sent if isinstance(message, ForwardedEvent)])
        if now == first:
            protocol.on_message(now + 1.0, 1, ForwardedEvent(event(2), 1, 500.0), "radio")
            port.take()
    assert forwarded == [[event(1)], [event(1), event(2)], [event(2)], []]


def test_the_pure_variant_stores_nothing() -> None:
    net = Net.contacts([(0, 1, 30.0, 200.0)], "semi_probabilistic", variant="pure")
    net.subscribe(1)
    net.publish(0, lease_s=600.0)
    net.run(200)
    assert net.rows("store") == []
    assert net.list_delivered(1) == []


def test_a_stored_event_crosses_a_partition() -> None:
    net = Net.contacts([(0, 1, 0.0, 50.0), (1, 2, 70.0, 200.0)], "semi_probabilistic")
    net.subscribe(2)
    net.run(10)
    event = net.publish(0, lease_s=600.0)
    net.run(100)
    assert net.list_delivered(2) == [event]


@pytest.mark.parametrize(("retransmit_to", "again"), [("everyone", [2, 3]), ("others", [3])])
def test_neighbors_known_to_hold_an_event_may_be_left_out(retransmit_to: str, again: list[NodeId]) -> None:
    protocol, port = make_node(2, tau=1.0, retransmit_to=retransmit_to, retry_timer="copy")
    protocol.on_message(2.0, 1, ForwardedEvent(event(), 1, 500.0), "radio")
    assert take_targets(port) == [2]
    protocol.on_link_up(10.0, Link(3, "radio", 0.001))
    protocol.on_timer(62.0, "retry")
    assert take_targets(port) == again


@pytest.mark.parametrize(
    ("settings", "rule"),
    [({"tau": 0.0}, "> 0.0"), ({"tau": 1.01}, "<= 1.0"), ({"phi": -1}, ">= 0"), ({"attempts": 0}, ">= 1")],
)
def test_wrong_settings_are_refused_with_the_rule(settings: dict[str, object], rule: str) -> None:
    with pytest.raises(UserError) as refused:
        parse_settings(settings, SemiProbabilisticSettings, "scenario.toml", "protocol")
    assert rule in str(refused.value)
