"""What a router knows of distances can be read above it, if it is one that counts hops."""

from random import Random

import pytest

from carrycast.core.protocol import Capability, Stack, StackPlan
from carrycast.core.protocol.effects import RecordingPort
from carrycast.errors import UserError
from carrycast.node.runtime.host import HostFacts, LiveHost
from carrycast.routers.aodv.router import Aodv
from carrycast.routers.aodv.settings import AodvSettings
from carrycast.sim.scenario.scenario import parse_scenario
from tests.routing.courier import Courier
from tests.routing.networks import over, placed

LINE = [(0, 1), (1, 2), (2, 3)]


def test_above_aodv_a_protocol_reads_how_long_its_routes_are() -> None:
    net = over("aodv", LINE)
    host = net.protocol(0).host
    assert Capability.DISTANCES in host.offers
    assert (host.hops_to(net.now, 0), host.hops_to(net.now, 3)) == (0, None)
    net.run(5)
    assert net.count_sent("RouteRequest") == 0, "to ask looks for no way"
    net.publish(0, {"to": 3})
    net.run(1)
    assert host.hops_to(net.now, 3) == 3
    assert net.protocol(3).host.hops_to(net.now, 0) == 3
    net.run(3600)
    assert host.hops_to(net.now, 3) is None, "the route is long over"


def test_only_the_protocol_stands_on_the_router() -> None:
    router = over("aodv", LINE).machine(0).stack.router
    assert router is not None
    assert Capability.DISTANCES not in router.host.offers
    with pytest.raises(TypeError, match="no router here that counts hops"):
        router.host.hops_to(0.0, 1)


def test_above_gpsr_there_are_no_distances() -> None:
    host = placed("gpsr", [(0.0, 0.0), (100.0, 0.0)]).protocol(0).host
    assert Capability.DISTANCES not in host.offers
    with pytest.raises(TypeError, match="no router here that counts hops"):
        host.hops_to(0.0, 1)


def test_a_protocol_that_needs_distances_is_refused_over_a_router_that_knows_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Courier, "needs", frozenset({Capability.DISTANCES}))
    over("aodv", LINE)
    with pytest.raises(UserError) as refused:
        placed("gpsr", [(0.0, 0.0), (100.0, 0.0)])
    told = "net: protocol: courier needs distances; what is offered, over the router gpsr, is "
    assert str(refused.value).startswith(told)
    table = {"duration_s": 1.0, "nodes": 2, "mobility": {"model": "line"}, "protocol": {"name": "flooding"}}
    assert Capability.DISTANCES not in parse_scenario(table, "x").offers()


def test_a_live_node_reads_them_too() -> None:
    plan = StackPlan(Courier, Courier.settings_type(), Aodv, AodvSettings())
    stack = Stack(
        plan,
        7,
        lambda layer: RecordingPort(),
        lambda layer: LiveHost(layer, HostFacts(), None, 0),
        lambda layer: Random(1),
        ("radio",),
        lambda neighbor, interface: 0.001,
    )
    host = stack.protocol.host
    assert Capability.DISTANCES in host.offers
    assert host.hops_to(0.0, 7) == 0
    assert isinstance(stack.router, Aodv)
    stack.router.table.update_previous_hop(0.0, 9, 5.0)
    assert (host.hops_to(4.0, 9), host.hops_to(6.0, 9)) == (1, None)
