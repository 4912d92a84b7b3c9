"""[002 §6] Partitions, disconnection, reconnection: what was kept is delivered on return; soft state ends the rest."""

from carrycast.core.model import NodeId, SubscriptionId
from carrycast.core.protocol import Gap
from carrycast.protocols.overlay.messages import ModulatorLost
from carrycast.protocols.overlay.tests.bench import Bench, assert_never_moved
from carrycast.sim.testing import Net

BROKERS = (0, 1)
CONSUMER, PRODUCER = 2, 3


def bench(**settings: object) -> Bench:
    return Bench(4, BROKERS, 1, settings)


def test_events_for_a_client_that_is_away_are_kept_and_delivered_on_its_return() -> None:
    net = bench(patience_s=500.0, lease_s=500.0)
    id = net.subscribe(CONSUMER)
    net.run(5)
    events = [net.publish(PRODUCER, 0)]
    net.run(5)
    net.apart = {CONSUMER}
    for number in range(1, 20):
        events.append(net.publish(PRODUCER, number))
        net.run(5)
    assert len(net.outputs(id)) == 1
    net.apart = set()
    net.run(40)
    assert_never_moved(net.outputs(id), {PRODUCER: events})


def test_events_of_a_producer_that_is_away_come_when_it_is_back() -> None:
    net = bench(patience_s=500.0, lease_s=500.0)
    id = net.subscribe(CONSUMER)
    net.run(5)
    events = [net.publish(PRODUCER, 0)]
    net.run(5)
    net.apart = {PRODUCER}
    for number in range(1, 20):
        events.append(net.publish(PRODUCER, number))
        net.run(5)
    net.apart = set()
    net.run(60)
    assert_never_moved(net.outputs(id), {PRODUCER: events})


def test_a_client_that_cannot_reach_its_home_for_too_long_takes_another() -> None:
    net = bench(patience_s=30.0)
    id = net.subscribe(CONSUMER, None)
    net.run(5)
    home = net.nodes[CONSUMER].client.home
    assert home is not None
    net.apart = {home}
    net.distance = {(CONSUMER, home): 9}
    net.run(150)
    other = 1 - home
    assert net.nodes[CONSUMER].client.home == other
    event = net.publish(PRODUCER, 0)
    net.run(60)
    assert [one.id for one in net.outputs(id)] == [event.id]
    # When the old home is back the two agree on the newer one, and nothing comes twice.
    net.apart = set()
    net.run(60)
    assert net.place(id) == other
    again = net.publish(PRODUCER, 1)
    net.run(20)
    assert [one.id for one in net.outputs(id)] == [event.id, again.id]


def test_a_home_that_crashes_costs_the_state_and_what_only_it_had() -> None:
    net = bench()
    id = net.subscribe(CONSUMER)
    net.run(5)
    home = net.place(id)
    assert home is not None
    for number in range(3):
        net.publish(PRODUCER, number)
        net.run(3)
    net.crash(home)
    net.run(20)
    net.start(home)
    net.run(100)
    net.publish(PRODUCER, 3)
    net.run(30)
    taken = [event.derived_from[0].sequence for event in net.outputs(id)]
    assert taken == [0, 1, 2, 3]
    assert net.outputs(id)[-1].attributes["count"] == 1, "the modulator has begun anew"


def test_a_network_that_falls_apart_comes_together_again() -> None:
    """Two islands with a broker each; in the middle of the run they cannot hear each other."""
    contacts: list[tuple[NodeId, NodeId, float, float]] = [
        (0, 2, 0.0, 1e5),
        (1, 3, 0.0, 1e5),
        (0, 1, 0.0, 60.0),
        (0, 1, 160.0, 1e5),
    ]
    net = Net.contacts(contacts, "overlay", {"roles": {"broker": [0, 1]}}, lease_s=500.0)
    net.subscribe(3)
    net.run(20)
    events = []
    for _ in range(20):
        events.append(net.publish(2))
        net.run(10)
    net.run(100)
    assert net.delivered(3) == events


def test_what_is_published_after_a_subscription_was_forgotten_for_a_while_is_not_taken_for_repeated() -> None:
    """The islands are apart for longer than a subscription is remembered without word of it."""
    contacts: list[tuple[NodeId, NodeId, float, float]] = [
        (0, 2, 0.0, 1e5),
        (1, 3, 0.0, 1e5),
        (0, 1, 0.0, 60.0),
        (0, 1, 260.0, 1e5),
    ]
    net = Net.contacts(contacts, "overlay", {"roles": {"broker": [0, 1]}})
    net.subscribe(3)
    net.run(20)
    before = [net.publish(2) for _ in range(20)]
    net.run(300)
    after = []
    for _ in range(10):
        after.append(net.publish(2))
        net.run(2)
    net.run(60)
    assert net.delivered(3) == before + after


def gaps(net: Bench, id: SubscriptionId) -> list[str]:
    """Why the results of a subscription did not go on, each time."""
    return [fact.reason for _, fact in net.facts if isinstance(fact, Gap) and fact.subscription == id]


def test_the_consumer_is_told_that_its_modulator_has_begun_without_its_state() -> None:
    net = bench()
    ids = {processor: net.subscribe(CONSUMER, processor) for processor in ("chain", None)}
    net.run(5)
    home = net.place(ids["chain"])
    assert home is not None
    net.publish(PRODUCER, 0)
    net.run(3)
    assert gaps(net, ids["chain"]) == []
    net.crash(home)
    net.run(20)
    net.start(home)
    net.run(100)
    net.publish(PRODUCER, 1)
    net.run(30)
    assert [event.attributes["count"] for event in net.outputs(ids["chain"])] == [1, 1]
    assert gaps(net, ids["chain"]) == ["processor_restarted"]
    # Without a processor there is no state, and nothing is missing.
    assert len(net.outputs(ids[None])) == 2
    assert gaps(net, ids[None]) == []


def test_a_broker_that_goes_on_with_what_it_has_written_leaves_no_gap() -> None:
    net = bench(durable=True)
    id = net.subscribe(CONSUMER)
    net.run(5)
    home = net.place(id)
    assert home is not None
    for number in range(2):
        net.publish(PRODUCER, number)
        net.run(3)
    net.crash(home)
    net.start(home)
    net.run(60)
    net.publish(PRODUCER, 2)
    net.run(30)
    assert [event.attributes["count"] for event in net.outputs(id)] == [1, 2, 3]
    assert gaps(net, id) == []


def test_a_modulator_whose_broker_is_lost_runs_at_the_home_again_and_the_consumer_is_told() -> None:
    """It ran elsewhere than at home, so the client is in touch with its home all the time."""
    net = bench(load_balancing_by="", home_change_by="")
    id = net.subscribe(CONSUMER)
    net.run(5)
    home = net.nodes[CONSUMER].client.home
    assert home is not None
    other = 1 - home
    net.publish(PRODUCER, 0)
    net.run(5)
    net.broker(home).relocation.start(net.now, CONSUMER, other, (id,), with_home=False)
    net.collect(home)
    net.run(10)
    assert net.place(id) == other
    net.publish(PRODUCER, 1)
    net.run(5)
    known = {"home broker": f"broker {home}", "modulators of this node": f"{id} at broker {other}"}
    assert net.nodes[CONSUMER].report("broker {}".format) == known
    assert net.nodes[other].report(str)["modulators here"] == f"chain for {id} of {CONSUMER}"
    net.crash(other)
    net.start(other)
    net.run(150)
    assert net.place(id) == home
    assert gaps(net, id) == ["processor_restarted"]
    net.publish(PRODUCER, 2)
    net.run(30)
    assert [event.attributes["count"] for event in net.outputs(id)] == [1, 2, 1]
    assert net.nodes[other].report(str)["modulators here"] == "none"


def test_word_of_a_missing_modulator_counts_only_from_the_own_home() -> None:
    net = bench()
    id = net.subscribe(CONSUMER)
    net.run(5)
    home = net.nodes[CONSUMER].client.home
    assert home is not None
    net.nodes[1 - home].context.send(net.now, CONSUMER, ModulatorLost(id))
    net.nodes[home].context.send(net.now, CONSUMER, ModulatorLost(SubscriptionId(CONSUMER, 77)))
    net.collect(home)
    net.collect(1 - home)
    net.run(5)
    assert gaps(net, id) == []
    assert {"home_outdated", "not_wanted"} <= net.reasons()
