"""Adaptors: home brokers and modulators follow clients and load; roles decide which adaptors a broker runs."""

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


def make_bench(**settings: object) -> Bench:
    """Make a network in which the home broker of the consumer is 0 and that of the producer is 1, far from 0."""
    net = Bench(5, BROKERS, 1, {"look_s": 1e5, "update_s": 2.0, **settings})
    net.distance = {(CONSUMER, 0): 1, (CONSUMER, 1): 2, (CONSUMER, 2): 3}
    net.distance |= {(PRODUCER, 1): 1, (PRODUCER, 0): 4, (PRODUCER, 2): 3}
    net.distance |= {(0, 1): 2, (0, 2): 1, (1, 2): 1}
    return net


def make_stream(net: Bench) -> SubscriptionId:
    """Make a stream from the producer to the consumer."""
    id = net.subscribe(CONSUMER)
    net.run(8)
    net.publish(PRODUCER, 0)
    net.run(8)
    assert net.find_place(id) == 0
    assert net.nodes[PRODUCER].client.home == 1
    return id


def test_the_home_broker_adaptor_is_as_short_as_in_the_paper() -> None:
    """[002 §3.2] "the home broker change adaptation that has less than 50 lines Java code"."""
    lines = getsource(HomeBrokerChange).splitlines()
    assert len([line for line in lines if line.strip() and not line.strip().startswith("#")]) < 50


@pytest.mark.parametrize(
    ("distance", "load", "moves"),
    [(1.0, 0.0, True), (2.0, 0.0, True), (3.0, 0.0, False), (1.0, 0.95, False)],
    ids=["nearer", "as near in all, shorter path", "longer in all", "overloaded"],
)
def test_a_client_moves_if_the_path_from_its_producers_is_shorter(distance: float, load: float, moves: bool) -> None:
    net = make_bench()
    id = make_stream(net)
    net.distance[CONSUMER, 1] = int(distance)
    # Over 0: 2 hops from the producer's home broker 1, and 1 more. Over 1: only the distance of the client.
    net.report(CONSUMER, 1, distance, load)
    net.run(5)
    assert (net.find_place(id), net.nodes[CONSUMER].client.home) == ((1, 1) if moves else (0, 0))
    net.publish(PRODUCER, 1)
    net.run(5)
    assert [event.attributes["count"] for event in net.list_outputs(id)] == [1, 2]


def test_a_client_of_an_overloaded_home_broker_moves_farther_away() -> None:
    net = make_bench()
    make_stream(net)
    net.hosts[0].busy = 0.99
    net.report(CONSUMER, 2, 3.0)
    net.run(5)
    assert net.nodes[CONSUMER].client.home == 2


@pytest.mark.parametrize("busy", [0.4, 0.95])
def test_an_unreported_load_is_taken_from_topology_items(busy: float) -> None:
    """The router knows the distances of brokers and not their loads; topology items have them."""
    net = make_bench()
    make_stream(net)
    net.hosts[1].busy = busy
    net.run(8)
    assert net.broker(0).brokers.load_of(1) == busy
    net.report(CONSUMER, 1, 1.0, None)
    net.run(5)
    assert net.nodes[CONSUMER].client.home == (1 if busy < 0.9 else 0)
    assert net.broker(0).relocation.outgoing == {}
    assert net.list_reasons("relocation_refused") == set(), "no relocation was started"


def test_brokers_of_other_roles_do_not_move_clients() -> None:
    net = make_bench(home_change_by="strong")
    make_stream(net)
    net.report(CONSUMER, 1, 1.0)
    net.run(5)
    assert net.nodes[CONSUMER].client.home == 0
    assert net.broker(0).relocation.outgoing == {}


def test_an_overloaded_broker_moves_a_modulator_upstream_then_downstream() -> None:
    """[002 §3.4] The producer's home broker is the only one on the path; the client keeps its home broker."""
    net = make_bench(load_s=1.0)
    id = make_stream(net)
    net.hosts[0].busy = 0.95
    net.run(10)
    assert net.find_place(id) in (1, 2)
    assert net.nodes[CONSUMER].client.home == 0
    place = net.find_place(id)
    assert place is not None
    for number in range(1, 5):
        net.publish(PRODUCER, number)
    net.run(10)
    assert [event.attributes["count"] for event in net.list_outputs(id)] == [1, 2, 3, 4, 5]
    # [002 §2.1] The outputs pass through the home broker.
    assert net.broker(place).path_to(CONSUMER)[-1] == 0
    # Downstream: the upstream broker becomes overloaded, and moves it back toward the home broker.
    net.hosts[0].busy = 0.1
    net.run(6)
    net.hosts[place].busy = 0.95
    net.run(12)
    assert net.find_place(id) not in (place, None)
    net.publish(PRODUCER, 5)
    net.run(5)
    assert [event.attributes["count"] for event in net.list_outputs(id)][-1] == 6


def test_a_modulator_stays_if_all_brokers_are_overloaded() -> None:
    net = make_bench(load_s=1.0)
    id = make_stream(net)
    for broker in BROKERS:
        net.hosts[broker].busy = 0.95
    net.run(30)
    assert net.find_place(id) == 0


def test_a_static_overlay_searches_neighbors_once() -> None:
    net = make_bench(topology_by="")
    net.run(5)
    before = {broker: dict(net.broker(broker).brokers.neighbors) for broker in BROKERS}
    net.distance[0, 1] = 9
    net.run(20)
    assert {broker: net.broker(broker).brokers.neighbors for broker in BROKERS} == before
    following = make_bench()
    following.run(5)
    following.distance[0, 1] = 9
    following.run(20)
    assert following.broker(0).brokers.neighbors[1] == 9


def test_topology_changes_travel_one_overlay_hop_in_each_period() -> None:
    """0 - 1 - 2 in a line: 2 learns of 0 a period after 1 does."""
    net = Bench(3, BROKERS, 1, {"update_s": 10.0, "vicinity": "within", "within_hops": 1})
    net.distance = {(0, 1): 1, (1, 2): 1, (0, 2): 2}
    net.run(8)
    assert set(net.broker(0).brokers.topology) >= {0}
    net.run(40)
    updates = [message for _, _, message in net.sent if isinstance(message, Topology)]
    noted = [fact.value for _, fact in net.facts if fact.kind == "update"]
    assert noted == [8.0 * len(msgspec.msgpack.encode(message)) for message in updates]
    assert {len(message.items) for message in updates} <= {1, 2, 3}
    for broker in BROKERS:
        assert set(net.broker(broker).brokers.topology) == {0, 1, 2}
    assert net.broker(0).brokers.path_to(2) == (1, 2)


def test_weights_of_load_and_battery_lead_around_brokers() -> None:
    """[002 §6] From 0 to 3 over 1, which is nearer, or over 2, which has a lower load or a fuller battery."""

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


def test_a_changed_load_or_an_old_row_is_propagated() -> None:
    table = BrokerTables(0, OverlaySettings(item_s=90.0), 1)
    idle = BrokerInformation(0.0, 0.0, None, 0.0)
    assert table.update_neighbors(0.0, {1: 1.0}, idle)
    table.take_changes(0.0)
    assert not table.update_neighbors(10.0, {1: 1.0}, idle._replace(load=0.05))
    assert table.update_neighbors(20.0, {1: 1.0}, idle._replace(load=0.2))
    assert [item.load for item in table.take_changes(20.0)] == [0.2]
    assert table.update_neighbors(51.0, {1: 1.0}, idle._replace(load=0.2))


def test_with_look_on_change_clients_search_when_a_link_changes() -> None:
    """The consumer's path to its home broker breaks, and it finds another broker long before its next period."""
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
