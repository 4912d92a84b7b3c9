"""A protocol has a default router; the scenario or the protocol's table may choose another."""

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import ClassVar

import pytest

from carrycast.core.model import NodeId
from carrycast.core.plugins import PROTOCOLS
from carrycast.core.protocol import Link, Place, Protocol, StackPlan, UsesRouter
from carrycast.core.protocol.registry import protocol_names
from carrycast.core.wire import Message
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.overrides import parse_protocol, parse_protocols, protocol_label
from carrycast.sim.scenario.scenario import parse_scenario
from tests.pipeline.scenarios import tiny


class Routed(Protocol, UsesRouter):
    """Names its router; one variant names another."""

    name = "routed"
    router = "aodv"
    variants: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "by_place": {"router": {"name": "gpsr", "beacon_s": 2.0}},
        "older": {"router": "aodv/ns2"},
    }

    def on_packet(self, now: float, origin: NodeId, message: Message, hops: int) -> None: ...
    def on_unreachable(self, now: float, target: NodeId | Place, message: Message) -> None: ...


class Listening(Routed):
    """Also handles links."""

    name = "listening"

    def on_link_up(self, now: float, link: Link) -> None: ...


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    names = protocol_names()
    for kind in (Routed, Listening):
        module = ModuleType(f"{PROTOCOLS}.{kind.name}")
        vars(module)["PROTOCOL"] = kind
        monkeypatch.setitem(sys.modules, module.__name__, module)
    known = {PROTOCOLS: [*names, "routed", "listening"], "carrycast.routers": ["aodv", "gpsr"]}
    monkeypatch.setattr("carrycast.core.plugins.folders_of", known.__getitem__)


def plan(protocol: dict[str, object], **tables: object) -> StackPlan:
    return tiny("flooding", protocol=protocol, **tables).make_stack_plan()


def router(protocol: dict[str, object], **tables: object) -> tuple[str, dict[str, object]]:
    """The name of the router, and its settings that differ from the defaults."""
    found = plan(protocol, **tables)
    assert found.router is not None
    assert found.router_settings is not None
    usual = found.router.settings_type()
    names = usual.__struct_fields__
    changed = {name: getattr(found.router_settings, name) for name in names}
    return found.router.name, {name: value for name, value in changed.items() if value != getattr(usual, name)}


def test_a_protocol_brings_its_router_and_a_variant_may_bring_another() -> None:
    assert router({"name": "routed"}) == ("aodv", {})
    assert router({"name": "routed", "variant": "by_place"}) == ("gpsr", {"beacon_s": 2.0})
    name, changed = router({"name": "routed", "variant": "older"})
    assert (name, changed["max_hops"]) == ("aodv", 30)


def test_the_scenarios_router_goes_before_what_is_brought_and_the_protocols_own_table_before_both() -> None:
    stated = {"name": "gpsr", "planarization": "rng"}
    for brought in ({}, {"variant": "by_place"}, {"variant": "older"}):
        assert router({"name": "routed", **brought}, router=stated) == ("gpsr", {"planarization": "rng"})
        assert router({"name": "routed", **brought, "router": "aodv"}, router=stated) == ("aodv", {})
    table = {"name": "gpsr", "beacon_s": 3.0}
    assert router({"name": "routed", "router": table}) == ("gpsr", {"beacon_s": 3.0})


def test_a_protocol_that_uses_none_takes_no_notice_of_a_scenarios_router() -> None:
    without, beside = (tiny("flooding", **tables) for tables in ({}, {"router": {"name": "gpsr"}}))
    assert beside.make_stack_plan().router is None
    assert run(beside, 1).fingerprint == run(without, 1).fingerprint


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        (
            {"protocol": {"name": "flooding", "router": "aodv"}},
            "protocol.router: flooding uses no router; leave it out",
        ),
        ({"router": {"name": "gpst"}}, "router.name: there is no router 'gpst': did you mean 'gpsr'? "),
        ({"router": {"name": "gpsr", "beacons": 1}}, "router: unknown key 'beacons'; did you mean"),
        ({"protocol": {"name": "routed", "router": "aodv/ns3"}}, "protocol.router.variant: "),
        (
            {"protocol": {"name": "routed", "router": 5}},
            "protocol.router: write a name, 'name/variant' or a table, not 5",
        ),
        (
            {"protocol": {"name": "routed", "router": {"variant": "ns2"}}},
            "protocol.router.name: is needed, as a text; `ca",
        ),
    ],
)
def test_what_is_wrong_with_a_router_is_said_at_loading(tables: dict[str, object], told: str) -> None:
    with pytest.raises(UserError) as error:
        tiny(**tables)  # type: ignore[arg-type]
    assert str(error.value).startswith(f"tiny: {told}")


def test_a_router_that_finds_its_neighbors_needs_no_beacons_beneath_it() -> None:
    assert plan({"name": "flooding"}).beacons is not None
    assert plan({"name": "routed"}).beacons is None
    assert plan({"name": "listening"}).beacons is not None, "the protocol itself is told of links"
    assert plan({"name": "flooding"}, discovery={"mode": "none"}).beacons is None


def test_a_router_is_written_on_the_command_line_like_any_setting() -> None:
    assert parse_protocol("routed/older:router=aodv/ns2") == {
        "name": "routed",
        "variant": "older",
        "router": "aodv/ns2",
    }
    written = "routed:router={name='gpsr', beacon_s=0.5},flooding"
    first, second = parse_protocols(written)
    assert (first["router"], second) == ({"name": "gpsr", "beacon_s": 0.5}, {"name": "flooding"})
    assert protocol_label(first) == "routed router=(gpsr beacon_s=0.5)"


@pytest.mark.parametrize(
    ("protocol", "router", "needed"),
    [
        ({"name": "topic_holder", "variant": "broker_aodv"}, "gpsr", "routes to nodes with these settings"),
        ({"name": "topic_holder", "variant": "rendezvous_aodv"}, "gpsr", "routes to nodes with these settings"),
        ({"name": "topic_holder", "variant": "broker_gpsr"}, "aodv", "routes to places with these settings"),
        ({"name": "overlay"}, "gpsr", "routes to nodes"),
    ],
)
def test_a_protocol_is_refused_over_a_router_that_cannot_find_its_targets(
    protocol: dict[str, object], router: str, needed: str
) -> None:
    tables = {"duration_s": 1.0, "nodes": 2, "mobility": {"model": "line"}, "roles": {"broker": "100%"}}
    parse_scenario({**tables, "protocol": protocol}, "x")
    for written in ({"protocol": {**protocol, "router": router}}, {"protocol": protocol, "router": {"name": router}}):
        with pytest.raises(UserError) as refused:
            parse_scenario({**tables, **written}, "x")
        told = f"x: protocol: {protocol['name']} needs {needed}; what is offered, over the router {router}, is "
        assert str(refused.value).startswith(told)
