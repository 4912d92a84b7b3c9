"""[002 §6] Partitions, disconnection, reconnection: what was kept is delivered on return; soft state ends the rest."""

from driftcast.dissemination.overlay.tests.bench import Bench, assert_never_moved
from driftcast.model import NodeId
from driftcast.testing import Net

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
