"""Unicast: its handlers one by one, and flows over routers."""

import pytest

from carrycast.core.model import Event, EventId, Position, Subscription, SubscriptionId
from carrycast.core.protocol import Fact, Place
from carrycast.core.protocol.effects import Deliver, Effect, Note, SendRoutedEach
from carrycast.errors import UserError
from carrycast.protocols.unicast.protocol import UnicastEvent
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario import parse_scenario
from carrycast.sim.testing import IsolatedHost, Net, isolate_protocol

WANTED = Subscription(SubscriptionId(0, 0), "flow = 1")


class Directory(IsolatedHost):
    def directory(self, role: str) -> tuple[int, ...]:
        return (0, 1, 2, 3)


def event(number: int = 0, lease_s: float = 30.0, **attributes: object) -> Event:
    return Event(EventId(0, number), attributes, lease_s=lease_s)  # type: ignore[arg-type]


def publish(one: Event) -> list[Effect]:
    protocol, port = isolate_protocol("unicast", host=Directory())
    protocol.on_publish(1.0, one)
    return port.take()


def test_an_event_goes_to_the_node_that_it_names() -> None:
    one = event(to=2)
    assert publish(one) == [SendRoutedEach((2,), UnicastEvent(one, 0, 30.0))]


@pytest.mark.parametrize("to", ["2", True, 2.0, None])
def test_an_event_that_names_no_node_goes_to_all_others(to: object) -> None:
    one = event() if to is None else event(to=to)
    assert publish(one) == [SendRoutedEach((1, 2, 3), UnicastEvent(one, 0, 30.0))]


def test_a_packet_lives_no_longer_than_life_s() -> None:
    one = event(to=2, lease_s=1e6)
    assert publish(one) == [SendRoutedEach((2,), UnicastEvent(one, 0, 60.0))]


def test_a_packet_is_delivered_once() -> None:
    protocol, port = isolate_protocol("unicast", host=Directory())
    protocol.on_subscribe(0.0, WANTED)
    one = event(flow=1, to=0)
    for _ in range(2):
        protocol.on_packet(1.0, 3, UnicastEvent(one, 0, 30.0), 4)  # type: ignore[attr-defined]
    assert port.take() == [
        Deliver(WANTED.id, one, 4),
        Note(Fact("drop", event=one.id, peer=3, reason="repeated")),
    ]


def test_an_event_for_an_unknown_node_is_dropped_by_name() -> None:
    one = event(to=99)
    assert publish(one) == [Note(Fact("drop", event=one.id, peer=99, reason="unknown_target"))]


def test_an_oracle_gives_the_place_of_a_node_unless_it_is_absent() -> None:
    tables = {"router": {"name": "gpsr"}, "radio": {"range_m": 120.0}}
    net = Net(3, "unicast", {"locate": "oracle"}, tables, 1, [(0, 0), (100, 0), (200, 0)])
    machine = net.machine(0)
    protocol, port = isolate_protocol("unicast", host=machine.stack.protocol.host, locate="oracle")
    one = event(to=2)
    protocol.on_publish(1.0, one)
    target = Place(Position(200.0, 0.0), 0.0, 2)
    assert port.take() == [SendRoutedEach((target,), UnicastEvent(one, 0, 30.0))]


ROUTERS = ["aodv", "olsr", "dsdv", "shortest_path"]


@pytest.mark.parametrize("router", ROUTERS)
def test_flows_arrive_on_a_static_network(router: str) -> None:
    scenario = parse_scenario(
        {
            "duration_s": 60.0,
            "nodes": 9,
            "mobility": {"model": "grid", "spacing_m": 100.0},
            "radio": {"model": "disk", "range_m": 120.0},
            "discovery": {"mode": "none"},
            "protocol": {"name": "unicast", "router": router},
            "flow": [{"from": "all", "rate_per_s": 1.0, "from_s": 25.0, "to_s": 55.0}],
        },
        "static",
    )
    metrics = run(scenario, 1).metrics
    assert metrics["flow_delivery_ratio"] == 1.0
    assert metrics["duplicates"] == 0


def test_it_is_refused_over_a_router_that_cannot_address_its_targets() -> None:
    with pytest.raises(UserError, match="unicast needs routes to nodes with these settings"):
        Net(2, "unicast", {}, {"router": {"name": "gpsr"}}, 1, [(0, 0), (1, 0)])
