"""Protocols that misbehave, each in one way, and what the checkers say of them."""

import pytest

from carrycast.core.model import Event, EventId, NodeId, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Interface, Protocol, TimerKey
from carrycast.core.wire import EventMessage, Message
from carrycast.sim.engine.observers.checkers import Checkers, ViolationError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario
from tests.simulation.worlds import line, register


class Carried(EventMessage, frozen=True, gc=False, tag=1):
    """An event on its way."""


class Bad(Protocol):
    """Knows the subscriptions of its node and hands on what is published to the neighbors; the rest is up to it."""

    name = "bad"
    messages = (Carried,)
    subscription: SubscriptionId | None = None

    def on_subscribe(self, now: float, subscription: Subscription) -> None:
        self.subscription = subscription.id

    def on_publish(self, now: float, event: Event) -> None:
        self.port.broadcast(Carried(event, 1, event.lease_s))

    def on_message(self, now: float, sender: NodeId, message: Message, via: Interface) -> None:
        assert isinstance(message, Carried)
        if self.subscription is not None:
            self.misbehave(now, self.subscription, message.event)

    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.port.deliver(subscription, event, 1)


class DeliversTwice(Bad):
    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.port.deliver(subscription, event, 1)
        self.port.deliver(subscription, event, 1)


class Invents(Bad):
    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.port.deliver(subscription, Event(EventId(7, 7), event.attributes), 1)


class Alters(Bad):
    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.port.deliver(subscription, Event(event.id, {"topic": 1, "extra": True}), 1)


class DeliversElsewhere(Bad):
    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.port.deliver(SubscriptionId(2, 0), event, 1)


class DeliversLate(Bad):
    """Keeps an event in its pocket and delivers it after the subscription has ended."""

    kept: Event | None = None

    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.kept = event
        self.port.set_timer("late", 4.0)

    def on_timer(self, now: float, key: TimerKey) -> None:
        assert self.subscription is not None
        assert self.kept is not None
        self.port.deliver(self.subscription, self.kept, 1)


class Hoards(Bad):
    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.port.note(Fact("store", event.id))


class EvictsWhatItNeverHad(Bad):
    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.port.note(Fact("evict", event.id, reason="spite"))


class StoresWhatIsLongOver(DeliversLate):
    def misbehave(self, now: float, subscription: SubscriptionId, event: Event) -> None:
        self.kept = event
        self.port.set_timer("late", 8.0)

    def on_timer(self, now: float, key: TimerKey) -> None:
        assert self.kept is not None
        self.port.note(Fact("store", self.kept.id))


@pytest.mark.parametrize(
    ("protocol", "subscribe", "lease_s", "complaint"),
    [
        (DeliversTwice, {}, 60.0, "at 1.001 s node 1 delivered event 0:0 to 1:0 a second time"),
        (Invents, {}, 60.0, "at 1.001 s node 1 delivered event 7:7, which is unknown or long over"),
        (Alters, {}, 60.0, "at 1.001 s node 1 delivered event 0:0 with altered content"),
        (Bad, {"filter": "topic = 2"}, 60.0, "at 1.001 s node 1 delivered event 0:0 to 1:0, which it does not fit"),
        (
            DeliversElsewhere,
            {},
            60.0,
            "at 1.001 s node 1 delivered to subscription 2:0, which does not stand there",
        ),
        (
            DeliversLate,
            {"until_s": 3.0},
            60.0,
            "at 5.001 s node 1 delivered to subscription 1:0, which does not stand there",
        ),
        (DeliversLate, {}, 2.5, "at 5.001 s node 1 delivered event 0:0, past its lease"),
        (Hoards, {}, 2.0, "at 5.0 s node 1 still stored event 0:0, past its lease"),
        (EvictsWhatItNeverHad, {}, 60.0, "at 1.001 s node 1 evicted event 0:0, which it did not store"),
        (StoresWhatIsLongOver, {}, 2.0, "at 9.001 s node 1 still stored event 0:0, past its lease"),
    ],
)
def test_a_protocol_that_breaks_a_rule_ends_the_run(
    monkeypatch: pytest.MonkeyPatch,
    protocol: type[Bad],
    subscribe: dict[str, object],
    lease_s: float,
    complaint: str,
) -> None:
    register(monkeypatch, protocol)
    scenario = line(
        duration_s=20.0,
        protocol={"name": "bad"},
        subscribe=[{"nodes": [1, 2], **subscribe}],
        publish=[{"nodes": [0], "interval_s": 100.0, "from_s": 1.0, "lease_s": lease_s, "attributes": {"topic": 1}}],
    )
    with pytest.raises(ViolationError) as caught:
        run(scenario, 5)
    assert str(caught.value) == f"line/bad/5: {complaint} (replay with --seed 5)"


def test_an_access_policy_is_a_rule_too(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, Bad)
    scenario = line(
        protocol={"name": "bad"},
        subscribe=[{"nodes": [1], "attributes": {"rank": 1}}],
        publish=[{"nodes": [0], "interval_s": 100.0, "from_s": 1.0, "access": "rank > 1"}],
    )
    with pytest.raises(ViolationError, match="delivered event 0:0 to 1:0, which it does not fit"):
        run(scenario, 5)


EVENT = Event(EventId(0, 0), {"a": 1}, lease_s=100.0)
SUBSCRIPTION = Subscription(SubscriptionId(1, 0), "true")


def test_an_event_is_made_once() -> None:
    checkers = Checkers(10)
    checkers.on_event(0.0, EVENT)
    with pytest.raises(ViolationError, match="event 0:0 was made twice"):
        checkers.on_event(1.0, EVENT)


def test_an_application_that_crashed_may_get_an_event_again() -> None:
    checkers = Checkers(10)
    checkers.on_event(0.0, EVENT)
    checkers.on_subscribe(SUBSCRIPTION)
    checkers.on_deliver(1.0, 1, SUBSCRIPTION.id, EVENT)
    checkers.on_crash(1)
    checkers.on_deliver(2.0, 1, SUBSCRIPTION.id, EVENT)
    with pytest.raises(ViolationError, match="a second time"):
        checkers.on_deliver(3.0, 1, SUBSCRIPTION.id, EVENT)


def test_a_crash_frees_a_node_of_what_it_stored() -> None:
    checkers = Checkers(10)
    checkers.on_event(0.0, EVENT)
    checkers.on_store(1.0, 1, EVENT.id)
    checkers.on_crash(1)
    checkers.on_expired(110.0, EVENT.id)
    assert len(checkers) == 0


def test_a_slow_clock_may_keep_an_event_longer_by_as_much_as_it_is_slow() -> None:
    checkers = Checkers(10, worst_drift=0.2)
    checkers.on_event(0.0, EVENT)
    checkers.on_store(1.0, 1, EVENT.id)
    checkers.on_evict(125.0, 1, EVENT.id)
    with pytest.raises(ViolationError, match="past its lease"):
        checkers.on_store(131.0, 1, EVENT.id)


def test_an_event_that_was_forgotten_too_early_is_told_with_the_setting_that_bounds_the_memory() -> None:
    table = {
        "duration_s": 20.0,
        "nodes": 6,
        "area_m": [500.0, 10.0],
        "mobility": {"model": "random_static"},
        "radio": {"model": "disk", "delay_s": 0.2, "range_m": 200.0},
        "protocol": {"name": "processor_flooding", "seen_s": 0.01, "send_by": "broadcast"},
        "subscribe": [{}],
        "publish": [{"count": 10}],
    }
    with pytest.raises(ViolationError, match=r"a second time; perhaps it was forgotten .*: raise protocol.seen_s"):
        run(parse_scenario(table, "forgetful"), 1)


def test_a_node_may_store_an_event_in_two_places_and_must_let_go_of_both() -> None:
    checkers = Checkers(2)
    event = Event(EventId(0, 0), {}, lease_s=10.0)
    checkers.on_event(0.0, event)
    for _ in range(2):
        checkers.on_store(1.0, 1, event.id)
    checkers.on_evict(2.0, 1, event.id)
    checkers.on_evict(2.0, 1, event.id)
    with pytest.raises(ViolationError, match="which it did not store"):
        checkers.on_evict(2.0, 1, event.id)
    checkers.on_store(3.0, 1, event.id)
    checkers.on_store(3.0, 1, event.id)
    checkers.on_evict(4.0, 1, event.id)
    with pytest.raises(ViolationError, match="node 1 still stored event 0:0, past its lease"):
        checkers.on_expired(11.0, event.id)


def test_a_broker_that_keeps_events_for_recovery_may_be_their_repository_too() -> None:
    table = {
        "duration_s": 60.0,
        "nodes": 2,
        "mobility": {"model": "random_static"},
        "area_m": [100.0, 100.0],
        "protocol": {"name": "tree", "variant": "recovering", "durable": True},
        "roles": {"broker": "all"},
        "subscribe": [{}],
        "publish": [{"count": 10, "lease_s": 15.0}],
        "advertise": [{"nodes": "all"}],
    }
    assert run(parse_scenario(table, "both"), 1).metrics["delivered"]
