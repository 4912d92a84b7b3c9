"""[002 §6] Partitions, disconnection, reconnection: buffered events are delivered on return, and soft state expires."""

from carrycast.core.model import NodeId, SubscriptionId
from carrycast.core.protocol import Gap
from carrycast.protocols.overlay.messages import ModulatorLost
from carrycast.protocols.overlay.tests.bench import Bench, assert_equals_unmoved
from carrycast.sim.testing import Net

BROKERS = (0, 1)
CONSUMER, PRODUCER = 2, 3


def make_bench(**settings: object) -> Bench:
    return Bench(4, BROKERS, 1, settings)


def test_events_for_a_disconnected_client_are_delivered_on_its_return() -> None:
    net = make_bench(patience_s=500.0, lease_s=500.0)
    id = net.subscribe(CONSUMER)
    net.run(5)
    events = [net.publish(PRODUCER, 0)]
    net.run(5)
    net.unreachable = {CONSUMER}
    for number in range(1, 20):
        events.append(net.publish(PRODUCER, number))
        net.run(5)
    assert len(net.list_outputs(id)) == 1
    net.unreachable = set()
    net.run(40)
    assert_equals_unmoved(net.list_outputs(id), {PRODUCER: events})


def test_events_of_a_disconnected_producer_are_sent_on_its_return() -> None:
    net = make_bench(patience_s=500.0, lease_s=500.0)
    id = net.subscribe(CONSUMER)
    net.run(5)
    events = [net.publish(PRODUCER, 0)]
    net.run(5)
    net.unreachable = {PRODUCER}
    for number in range(1, 20):
        events.append(net.publish(PRODUCER, number))
        net.run(5)
    net.unreachable = set()
    net.run(60)
    assert_equals_unmoved(net.list_outputs(id), {PRODUCER: events})


def test_a_client_attaches_to_another_broker_after_its_patience() -> None:
    net = make_bench(patience_s=30.0)
    id = net.subscribe(CONSUMER, None)
    net.run(5)
    home = net.nodes[CONSUMER].client.home
    assert home is not None
    net.unreachable = {home}
    net.distance = {(CONSUMER, home): 9}
    net.run(150)
    other = 1 - home
    assert net.nodes[CONSUMER].client.home == other
    event = net.publish(PRODUCER, 0)
    net.run(60)
    assert [one.id for one in net.list_outputs(id)] == [event.id]
    # When the old home broker is back, it yields to the newer one, and no event is duplicated.
    net.unreachable = set()
    net.run(60)
    assert net.find_place(id) == other
    again = net.publish(PRODUCER, 1)
    net.run(20)
    assert [one.id for one in net.list_outputs(id)] == [event.id, again.id]


def test_a_home_broker_that_crashes_loses_the_state_of_modulators() -> None:
    net = make_bench()
    id = net.subscribe(CONSUMER)
    net.run(5)
    home = net.find_place(id)
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
    taken = [event.derived_from[0].sequence for event in net.list_outputs(id)]
    assert taken == [0, 1, 2, 3]
    assert net.list_outputs(id)[-1].attributes["count"] == 1, "the modulator has restarted"


def test_a_partition_loses_no_event() -> None:
    """Two islands with a broker each, which are disconnected in the middle of the run."""
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
    assert net.list_delivered(3) == events


def test_events_after_a_subscription_had_expired_are_no_duplicates() -> None:
    """The islands are disconnected for longer than the lease of a subscription."""
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
    assert net.list_delivered(3) == before + after


def list_gaps(net: Bench, id: SubscriptionId) -> list[str]:
    """Return the reasons of the gaps of a subscription."""
    return [fact.reason for _, fact in net.facts if isinstance(fact, Gap) and fact.subscription == id]


def test_the_consumer_is_notified_when_its_modulator_restarts_without_state() -> None:
    net = make_bench()
    ids = {processor: net.subscribe(CONSUMER, processor) for processor in ("chain", None)}
    net.run(5)
    home = net.find_place(ids["chain"])
    assert home is not None
    net.publish(PRODUCER, 0)
    net.run(3)
    assert list_gaps(net, ids["chain"]) == []
    net.crash(home)
    net.run(20)
    net.start(home)
    net.run(100)
    net.publish(PRODUCER, 1)
    net.run(30)
    assert [event.attributes["count"] for event in net.list_outputs(ids["chain"])] == [1, 1]
    assert list_gaps(net, ids["chain"]) == ["processor_restarted"]
    # Without a processor there is no state, so there is no gap.
    assert len(net.list_outputs(ids[None])) == 2
    assert list_gaps(net, ids[None]) == []


def test_a_durable_broker_that_restarts_causes_no_gap() -> None:
    net = make_bench(durable=True)
    id = net.subscribe(CONSUMER)
    net.run(5)
    home = net.find_place(id)
    assert home is not None
    for number in range(2):
        net.publish(PRODUCER, number)
        net.run(3)
    net.crash(home)
    net.start(home)
    net.run(60)
    net.publish(PRODUCER, 2)
    net.run(30)
    assert [event.attributes["count"] for event in net.list_outputs(id)] == [1, 2, 3]
    assert list_gaps(net, id) == []


def test_a_modulator_whose_broker_is_lost_restarts_at_the_home_broker() -> None:
    """The modulator ran at another broker, so the client reaches its home broker all the time."""
    net = make_bench(load_balancing_by="", home_change_by="")
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
    assert net.find_place(id) == other
    net.publish(PRODUCER, 1)
    net.run(5)
    known = {"home broker": f"broker {home}", "modulators of this node": f"{id} at broker {other}"}
    assert net.nodes[CONSUMER].report("broker {}".format) == known
    assert net.nodes[other].report(str)["modulators here"] == f"chain for {id} of {CONSUMER}"
    net.crash(other)
    net.start(other)
    net.run(150)
    assert net.find_place(id) == home
    assert list_gaps(net, id) == ["processor_restarted"]
    net.publish(PRODUCER, 2)
    net.run(30)
    assert [event.attributes["count"] for event in net.list_outputs(id)] == [1, 2, 1]
    assert net.nodes[other].report(str)["modulators here"] == "none"


def test_a_lost_modulator_is_accepted_only_from_the_home_broker() -> None:
    net = make_bench()
    id = net.subscribe(CONSUMER)
    net.run(5)
    home = net.nodes[CONSUMER].client.home
    assert home is not None
    net.nodes[1 - home].context.send(net.now, CONSUMER, ModulatorLost(id))
    net.nodes[home].context.send(net.now, CONSUMER, ModulatorLost(SubscriptionId(CONSUMER, 77)))
    net.collect(home)
    net.collect(1 - home)
    net.run(5)
    assert list_gaps(net, id) == []
    assert {"home_outdated", "not_wanted"} <= net.list_reasons()
