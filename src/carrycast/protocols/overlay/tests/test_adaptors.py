"""Homes and modulators follow clients and load; which brokers adapt what is a matter of roles."""

from inspect import getsource

import msgspec
import pytest

from carrycast.core.model import NodeId, SubscriptionId
from carrycast.protocols.overlay.broker_tables import BrokerInformation, BrokerTables
from carrycast.protocols.overlay.home_broker import HomeBrokerChange
from carrycast.protocols.overlay.messages import SequenceNumber, Topology, TopologyItem
from carrycast.protocols.overlay.protocol import OpportunisticOverlay
from carrycast.protocols.overlay.settings import OverlaySettings
from carrycast.protocols.overlay.tests.bench import Bench
from carrycast.sim.testing import Net

BROKERS = (0, 1, 2)
CONSUMER, PRODUCER = 3, 4


def bench(**settings: object) -> Bench:
    """The consumer is at home with 0, the producer with 1; the producer is far from 0."""
    net = Bench(5, BROKERS, 1, {"look_s": 1e5, "update_s": 2.0, **settings})
    net.distance = {(CONSUMER, 0): 1, (CONSUMER, 1): 2, (CONSUMER, 2): 3}
    net.distance |= {(PRODUCER, 1): 1, (PRODUCER, 0): 4, (PRODUCER, 2): 3}
    net.distance |= {(0, 1): 2, (0, 2): 1, (1, 2): 1}
    return net


def served(net: Bench) -> SubscriptionId:
    """A stream from the producer to the consumer."""
    id = net.subscribe(CONSUMER)
    net.run(8)
    net.publish(PRODUCER, 0)
    net.run(8)
    assert net.place(id) == 0
    assert net.nodes[PRODUCER].client.home == 1
    return id


def test_the_adaptor_of_home_changes_is_as_short_as_the_papers() -> None:
    """[002 §3.2] "the home broker change adaptation that has less than 50 lines Java code"."""
    lines = getsource(HomeBrokerChange).splitlines()
    assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) < 50


@pytest.mark.parametrize(
    ("distance", "load", "moves"),
    [(1.0, 0.0, True), (2.0, 0.0, True), (3.0, 0.0, False), (1.0, 0.95, False)],
    ids=["nearer", "as near in all, shorter path", "longer in all", "overloaded"],
)
def test_a_client_moves_if_the_path_from_its_producers_is_shorter_over_the_other(
    distance: float, load: float, moves: bool
) -> None:
    net = bench()
    id = served(net)
    net.distance[CONSUMER, 1] = int(distance)
    # Over 0: 2 from the producer's home 1, and 1 more. Over 1: nothing, and the distance.
    net.report(CONSUMER, 1, distance, load)
    net.run(5)
    assert (net.place(id), net.nodes[CONSUMER].client.home) == ((1, 1) if moves else (0, 0))
    net.publish(PRODUCER, 1)
    net.run(5)
    assert [event.attributes["count"] for event in net.outputs(id)] == [1, 2]


def test_an_overloaded_home_lets_a_client_go_further_away() -> None:
    net = bench()
    served(net)
    net.hosts[0].busy = 0.99
    net.report(CONSUMER, 2, 3.0)
    net.run(5)
    assert net.nodes[CONSUMER].client.home == 2


@pytest.mark.parametrize("busy", [0.4, 0.95])
def test_the_load_of_a_broker_that_was_not_asked_is_what_it_last_told_the_others(busy: float) -> None:
    """The router knows how far brokers are, and nothing of their load; topology items do."""
    net = bench()
    served(net)
    net.hosts[1].busy = busy
    net.run(8)
    assert net.broker(0).brokers.load_of(1) == busy
    net.report(CONSUMER, 1, 1.0, None)
    net.run(5)
    assert net.nodes[CONSUMER].client.home == (1 if busy < 0.9 else 0)
    assert net.broker(0).relocation.outgoing == {}
    assert net.reasons("relocation_refused") == set(), "nobody was even asked"


def test_brokers_of_other_roles_do_not_move_clients() -> None:
    net = bench(home_change_by="strong")
    served(net)
    net.report(CONSUMER, 1, 1.0)
    net.run(5)
    assert net.nodes[CONSUMER].client.home == 0
    assert net.broker(0).relocation.outgoing == {}


def test_an_overloaded_broker_gives_a_modulator_upstream_and_takes_no_other() -> None:
    """[002 §3.4] The producer's home is the only broker on the way from it; the client stays at home."""
    net = bench(load_s=1.0)
    id = served(net)
    net.hosts[0].busy = 0.95
    net.run(10)
    assert net.place(id) in (1, 2)
    assert net.nodes[CONSUMER].client.home == 0
    place = net.place(id)
    assert place is not None
    for number in range(1, 5):
        net.publish(PRODUCER, number)
    net.run(10)
    assert [event.attributes["count"] for event in net.outputs(id)] == [1, 2, 3, 4, 5]
    # [002 §2.1] The outputs pass the home on their way.
    assert net.broker(place).path_to(CONSUMER)[-1] == 0
    # Downstream: the broker upstream is overloaded in its turn, and gives it back towards the home.
    net.hosts[0].busy = 0.1
    net.run(6)
    net.hosts[place].busy = 0.95
    net.run(12)
    assert net.place(id) not in (place, None)
    net.publish(PRODUCER, 5)
    net.run(5)
    assert [event.attributes["count"] for event in net.outputs(id)][-1] == 6


def test_nobody_light_enough_means_that_it_stays() -> None:
    net = bench(load_s=1.0)
    id = served(net)
    for broker in BROKERS:
        net.hosts[broker].busy = 0.95
    net.run(30)
    assert net.place(id) == 0


def test_an_overlay_that_does_not_follow_looks_once() -> None:
    net = bench(topology_by="")
    net.run(5)
    before = {broker: dict(net.broker(broker).brokers.neighbors) for broker in BROKERS}
    net.distance[0, 1] = 9
    net.run(20)
    assert {broker: net.broker(broker).brokers.neighbors for broker in BROKERS} == before
    following = bench()
    following.run(5)
    following.distance[0, 1] = 9
    following.run(20)
    assert following.broker(0).brokers.neighbors[1] == 9


def test_what_has_changed_goes_one_overlay_hop_in_each_period() -> None:
    """0 - 1 - 2 in a line of neighbors: 2 hears of 0 a period after 1 does."""
    net = Bench(3, BROKERS, 1, {"update_s": 10.0, "vicinity": "within", "within_hops": 1})
    net.distance = {(0, 1): 1, (1, 2): 1, (0, 2): 2}
    net.run(8)
    assert set(net.broker(0).brokers.topology) >= {0}
    net.run(40)
    updates = [message for _, _, message in net.said if isinstance(message, Topology)]
    noted = [fact.value for _, fact in net.facts if fact.kind == "update"]
    assert noted == [8.0 * len(msgspec.msgpack.encode(message)) for message in updates]
    assert {len(message.items) for message in updates} <= {1, 2, 3}
    for broker in BROKERS:
        assert set(net.broker(broker).brokers.topology) == {0, 1, 2}
    assert net.broker(0).brokers.path_to(2) == (1, 2)


def test_costs_other_than_hops_lead_around_busy_and_tired_brokers() -> None:
    """[002 §6] From 0 to 3 over 1, which is nearer, or over 2, which is less busy or has more left."""

    def path(settings: OverlaySettings, busy: float, battery_used: float) -> tuple[NodeId, ...]:
        table = BrokerTables(0, settings, 1)
        table.update_neighbors(0.0, {1: 1.0, 2: 2.0}, BrokerInformation(0.0, 0.0, None, 0.0))
        near = TopologyItem(1, SequenceNumber(1, 1), 0.0, ((3, 1.0),), busy, battery_used)
        table.merge(0.0, [near, TopologyItem(2, SequenceNumber(1, 1), 0.0, ((3, 1.0),))])
        return table.path_to(3)

    assert path(OverlaySettings(), 0.9, 0.9) == (1, 3)
    assert path(OverlaySettings(weight_load=2.0), 0.9, 0.0) == (2, 3)
    assert path(OverlaySettings(weight_load=2.0), 0.4, 0.0) == (1, 3)
    assert path(OverlaySettings(weight_energy=2.0), 0.0, 0.9) == (2, 3)
    assert path(OverlaySettings(weight_hops=3.0, weight_load=2.0, weight_energy=2.0), 0.9, 0.5) == (1, 3)


def test_a_change_of_load_is_news_and_so_is_a_long_silence() -> None:
    table = BrokerTables(0, OverlaySettings(item_s=90.0), 1)
    idle = BrokerInformation(0.0, 0.0, None, 0.0)
    assert table.update_neighbors(0.0, {1: 1.0}, idle)
    table.take_changes(0.0)
    assert not table.update_neighbors(10.0, {1: 1.0}, idle._replace(load=0.05))
    assert table.update_neighbors(20.0, {1: 1.0}, idle._replace(load=0.2))
    assert [item.load for item in table.take_changes(20.0)] == [0.2]
    assert table.update_neighbors(51.0, {1: 1.0}, idle._replace(load=0.2))


def test_clients_look_again_when_a_link_changes_if_they_are_told_to() -> None:
    """The consumer's way to its home breaks, and long before its next period it has another."""
    contacts = [(0, 1, 0.0, 1e5), (0, 2, 0.0, 20.0), (2, 1, 20.0, 1e5), (0, 3, 0.0, 1e5)]
    for look_on_change, home in ((True, 1), (False, 0)):
        net = Net.contacts(
            contacts,
            "overlay",
            {"roles": {"broker": [0, 1]}, "router": {"name": "shortest_path"}},
            look_s=500.0,
            look_on_change=look_on_change,
        )
        net.subscribe(2)
        net.run(30)
        protocol = net.protocol(2)
        assert isinstance(protocol, OpportunisticOverlay)
        assert protocol.client.home == home
