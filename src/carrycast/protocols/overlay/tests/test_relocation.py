"""Relocation of modulators in order, without loss, without duplicates, with their state, over any network."""

from random import Random

import pytest

from carrycast.core.model import Event, NodeId, SubscriptionId
from carrycast.protocols.overlay.tests.bench import Bench, assert_equals_unmoved

BROKERS = (0, 1, 2, 3)
CONSUMER = 4
PRODUCERS = (5, 6, 7)
PATIENT: dict[str, object] = {
    "patience_s": 80_000.0,
    "seek_s": 80_000.0,
    "lease_s": 80_000.0,
    "home_change_by": "",
    "load_balancing_by": "",
    "look_s": 1e5,
}
"""A client waits for its home broker without limit, and only the test starts relocations."""


def make_bench(seed: int = 1, **settings: object) -> Bench:
    """Make four brokers, a consumer and three producers; only the test starts relocations."""
    return Bench(8, BROKERS, seed, {**PATIENT, **settings})


def move_modulator(net: Bench, id: SubscriptionId, target: NodeId, with_home: bool) -> bool:
    """Relocate a modulator, with its client's home or without; False if that is not possible now."""
    place = net.find_place(id)
    if place is None or place == target or place in net.unreachable:
        return False
    broker = net.broker(place)
    if with_home and id.subscriber not in broker.clients:
        return False
    done = broker.relocation.start(net.now, id.subscriber, target, (id,), with_home)
    net.run(0)
    net.collect(place)
    return done


def has_unique_state(net: Bench, node: NodeId) -> bool:
    """Whether a broker has state that no other has, and that a crash would lose."""
    broker = net.broker(node)
    if len(broker.clients) or any(broker.modulators) or any(one in broker.producers for one in PRODUCERS):
        return True
    # A state that has arrived here, and that its sender has lost in a crash.
    incoming = broker.relocation.incoming
    return any(sender in net.down or move not in net.broker(sender).relocation.outgoing for sender, move in incoming)


def has_handed_over_everything(net: Bench, node: NodeId) -> bool:
    """Whether all states that a broker has sent have arrived at their targets."""
    waiting = [key for other in BROKERS if other not in net.down for key in net.broker(other).relocation.incoming]
    moves = net.broker(node).relocation.outgoing
    return all((node, move) in waiting for move in moves)


@pytest.mark.parametrize("with_home", [True, False], ids=["horizontal", "along the path"])
def test_a_modulator_is_relocated_while_events_flow(with_home: bool) -> None:
    net = make_bench()
    id = net.subscribe(CONSUMER)
    net.run(5)
    published: dict[NodeId, list[Event]] = {producer: [] for producer in PRODUCERS}
    net.publish(5, 0)
    net.run(3)
    net.delivered.clear()
    first = net.find_place(id)
    assert first is not None
    state_before = [event.attributes for event in net.list_outputs(id)]
    target = next(broker for broker in BROKERS if broker != first)
    for number in range(1, 40):
        published[5].append(net.publish(5, number))
        net.run(0.02)
        if number == 20:
            assert move_modulator(net, id, target, with_home)
    net.run(20)
    assert state_before == []
    assert net.find_place(id) == target
    assert [event.attributes["count"] for event in net.list_outputs(id)] == list(range(2, 41))
    assert [event.derived_from[0] for event in net.list_outputs(id)] == [event.id for event in published[5]]
    assert net.nodes[CONSUMER].client.home == (target if with_home else first)
    assert {event.id.source for event in net.list_outputs(id)} == {first, target}


@pytest.mark.parametrize(
    ("carry_state", "keep_order"),
    [(False, True), (True, False), (False, False)],
    ids=["stateless", "unordered", "light"],
)
def test_lighter_relocations_lose_and_duplicate_nothing(carry_state: bool, keep_order: bool) -> None:
    """[002 §2.4] They "loosen the requirements of event state consistency or modulator consistency or both"."""
    net = make_bench(carry_state=carry_state, keep_order=keep_order)
    id = net.subscribe(CONSUMER)
    net.run(5)
    first = net.find_place(id)
    assert first is not None
    published = []
    for number in range(40):
        published.append(net.publish(5, number).id)
        net.run(0.02)
        if number == 20:
            assert move_modulator(net, id, (first + 1) % 4, with_home=True)
    net.run(40)
    taken = [event.derived_from[0] for event in net.list_outputs(id)]
    assert sorted(taken) == published
    assert taken == published or not keep_order
    counts = {maker: [e.attributes["count"] for e in net.list_outputs(id) if e.id.source == maker] for maker in BROKERS}
    before, after = counts[first], counts[(first + 1) % 4]
    assert sorted(before) == list(range(1, len(before) + 1))
    begins = len(before) + 1 if carry_state else 1
    assert sorted(after) == list(range(begins, begins + len(after)))
    steps = {type(message).__name__ for _, _, message in net.sent}
    assert ("Release" in steps) == keep_order


def start_relocation(net: Bench, wait_s: float) -> tuple[SubscriptionId, NodeId, list[Event]]:
    """Start a relocation and run for `wait_s`; returns the subscription, the target, and the events published
    before."""
    id = net.subscribe(CONSUMER)
    net.run(5)
    first = net.find_place(id)
    assert first is not None
    target = (first + 1) % 4
    events = [net.publish(5, number) for number in range(3)]
    net.run(5)
    net.delay_s = (0.02, 0.021)
    assert move_modulator(net, id, target, with_home=True)
    net.run(wait_s)
    return id, target, events


def test_a_target_that_crashes_during_a_relocation_loses_nothing() -> None:
    """The target crashes with the record before the release, or after it."""
    for wait_s in (0.03, 0.06, 0.09, 0.12):
        net = make_bench()
        id, target, events = start_relocation(net, wait_s)
        if not has_unique_state(net, target):
            net.crash(target)
            net.run(3)
            net.start(target)
        events += [net.publish(5, number) for number in range(3, 6)]
        net.run(100)
        assert_equals_unmoved(net.list_outputs(id), {5: events})


def test_a_link_lost_during_a_relocation_loses_nothing() -> None:
    for wait_s in (0.03, 0.06, 0.09, 0.12):
        net = make_bench(move_s=5.0)
        id, target, events = start_relocation(net, wait_s)
        net.unreachable = {target}
        events += [net.publish(5, number) for number in range(3, 6)]
        net.run(60)
        net.unreachable = set()
        net.run(100)
        assert_equals_unmoved(net.list_outputs(id), {5: events})


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "durable"])
@pytest.mark.parametrize("seed", range(25))
def test_outputs_equal_those_of_a_modulator_that_was_never_relocated(seed: int, durable: bool) -> None:
    """Random relocations of the consumer's modulator and home and of producers' homes, random delays, losses and
    duplicates, crashes of brokers without unique state (of durable ones at any time, also of all at once), and nodes
    that are disconnected for a while."""
    rng = Random(seed)
    net = make_bench(seed, durable=durable)
    id = net.subscribe(CONSUMER)
    net.run(5)
    assert net.find_place(id) is not None
    net.loss, net.duplication = rng.choice([0.0, 0.1, 0.3]), rng.choice([0.0, 0.2])
    net.delay_s = (0.01, rng.choice([0.05, 0.5, 3.0]))
    net.call_s = (0.001, rng.choice([0.01, 0.5]))
    published: dict[NodeId, list[Event]] = {producer: [] for producer in PRODUCERS}
    crashes = 0
    for _ in range(80):
        net.run(rng.uniform(0, 2))
        producer = rng.choice(PRODUCERS)
        published[producer].append(net.publish(producer, len(published[producer])))
        chance = rng.random()
        if chance < 0.15:
            move_modulator(net, id, rng.choice(BROKERS), with_home=rng.random() < 0.6)
        elif chance < 0.22:
            move_producer(net, rng.choice(PRODUCERS), rng.choice(BROKERS))
        elif chance < 0.27:
            net.unreachable = set(rng.sample(range(8), rng.randrange(3)))
        elif chance < 0.35:
            net.unreachable = set()
        elif chance < 0.45:
            idle = [broker for broker in BROKERS if broker not in net.down and (durable or may_crash(net, broker))]
            if idle:
                crashes += 1
                net.crash(rng.choice(idle))
        for broker in sorted(net.down):
            if rng.random() < 0.3:
                net.start(broker)
    for broker in sorted(net.down):
        net.start(broker)
    net.unreachable, net.loss, net.duplication, net.delay_s = set(), 0.0, 0.0, (0.01, 0.02)
    net.run(600)
    assert_equals_unmoved(net.list_outputs(id), published)
    assert len(net.list_outputs(id)) == 80
    assert "relocation" in {fact.kind for _, fact in net.facts}, "at least one relocation must have happened"


def may_crash(net: Bench, broker: NodeId) -> bool:
    return broker not in net.down and not has_unique_state(net, broker) and has_handed_over_everything(net, broker)


def move_producer(net: Bench, producer: NodeId, target: NodeId) -> None:
    for broker in BROKERS:
        if broker not in net.down and producer in net.broker(broker).clients and broker != target:
            net.broker(broker).relocation.start(net.now, producer, target, (), True)
            net.collect(broker)
