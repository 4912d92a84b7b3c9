"""Numbers that nobody means: every one is refused in one line, or the run ends."""

import math
import typing
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Any

import msgspec
import pytest

from carrycast.core.protocol.application import applications
from carrycast.core.protocol.registry import find_protocol, find_router, protocol_names, router_names
from carrycast.errors import UserError, WorkError
from carrycast.node.config_file import NodeFile, ProcessorSection, TraceSection
from carrycast.node.link.config import DiscoverySection, LinkSettings, ListenSection
from carrycast.sim.engine.failure import RunError
from carrycast.sim.engine.kernel import Kernel
from carrycast.sim.engine.simulation import run
from carrycast.sim.mobility.model import movement_models
from carrycast.sim.radio.disk_settings import DiskRadio
from carrycast.sim.radio.dot11 import CsmaRadio
from carrycast.sim.scenario.applications import Calendar
from carrycast.sim.scenario.faults import Fault
from carrycast.sim.scenario.measures import RequestedMetric
from carrycast.sim.scenario.resources import ComputerSettings, EnergySettings, ServiceSettings
from carrycast.sim.scenario.scenario import BeaconMode, Measure, ProcessorEntry, Scenario, Wire, parse_scenario
from carrycast.sim.scenario.workload import PublishEntry, RequestEntry, SubscribeEntry
from carrycast.sim.testing import example_tables

EXTREMES = (math.inf, math.nan, 1e308, 1e-300, 0, -1, 10**30)
BUDGET = 60_000
"""Entries of the queue that a run of three nodes over two seconds may make."""

BASE: dict[str, Any] = {
    "name": "extreme",
    "duration_s": 2.0,
    "nodes": 3,
    "area_m": [100.0, 100.0],
    "mobility": {"model": "random_static"},
    "discovery": {"mode": "oracle"},
    "protocol": {"name": "epidemic"},
    "subscribe": [{"filter": "kind = 'a'"}],
    "publish": [{"nodes": [0], "attributes": {"kind": "a"}, "count": 3, "payload_bytes": 50}],
}


class UnendingError(Exception):
    """The run had not ended after many times what it should have done."""


@pytest.fixture(autouse=True)
def _bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    put = Kernel.at

    def counted(self: Kernel, *entry: Any) -> None:
        if self._sequence > BUDGET:
            raise UnendingError
        put(self, *entry)

    monkeypatch.setattr(Kernel, "at", counted)


def numbers(kind: Any) -> Iterator[str]:
    """The keys of a settings type that take a number."""
    hints = typing.get_type_hints(kind)
    for field in msgspec.structs.fields(kind):
        hint = hints[field.name]
        options = typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, UnionType) else (hint,)
        if {int, float} & set(options) and set(options) <= {int, float, NoneType, str, list[int]}:
            yield field.encode_name


def ends(tables: dict[str, Any], what: str) -> None:
    """Refused in one line, or done."""
    try:
        run(parse_scenario(tables, "extreme.toml"), 1, engine="python")
    except RunError as error:
        pytest.fail(f"{what}: {error}")
    except (UserError, WorkError) as error:
        if "\n" in str(error):
            pytest.fail(f"{what}: {error}")


def cases(name: str, kind: Any, table: dict[str, Any] | None = None) -> list[Any]:
    return [pytest.param(table or {}, key, id=f"{name}.{key}") for key in numbers(kind)]


@pytest.mark.parametrize(
    ("table", "key"),
    [case for name in protocol_names() for case in cases(name, find_protocol(name).settings_type, {"name": name})],
)
def test_settings_of_protocols(table: dict[str, Any], key: str) -> None:
    around = {**BASE, **example_tables(table["name"])}
    for value in EXTREMES:
        ends({**around, "protocol": {**table, key: value}}, f"{table['name']}.{key} = {value}")


@pytest.mark.parametrize(
    ("table", "key"),
    [case for name in router_names() for case in cases(name, find_router(name).settings_type, {"name": name})],
)
def test_settings_of_routers(table: dict[str, Any], key: str) -> None:
    around = {**BASE, **example_tables("topic_holder"), "protocol": {"name": "topic_holder"}}
    for value in EXTREMES:
        ends({**around, "router": {**table, key: value}}, f"{table['name']}.{key} = {value}")


@pytest.mark.parametrize(
    ("table", "key"),
    [case for name, kind in movement_models().items() for case in cases(name, kind, {"model": name})],
)
def test_settings_of_movement_models(table: dict[str, Any], key: str) -> None:
    for value in EXTREMES:
        ends({**BASE, "mobility": {**table, key: value}}, f"{table['model']}.{key} = {value}")


TABLES: dict[str, tuple[Any, dict[str, Any]]] = {
    "radio:disk": (DiskRadio, {"model": "disk"}),
    "radio:slow": (DiskRadio, {"model": "disk", "rate_bps": 1e6, "loss": 0.1}),
    "radio:csma": (CsmaRadio, {"model": "csma"}),
    "discovery": (BeaconMode, {"mode": "beacon"}),
    "energy": (EnergySettings, {}),
    "service": (ServiceSettings, {"time_s": 0.001}),
    "wires[]": (Wire, {"tree": 1, "rate_bps": 1e6}),
    "subscribe[]": (SubscribeEntry, {"filter": "kind = 'a'"}),
    "subscribe[]:born": (SubscribeEntry, {"filter": "kind = 'a'", "births_per_s": 1.0, "lifetime_s": 1.0}),
    "publish[]": (PublishEntry, {"attributes": {"kind": "a"}}),
    "publish[]:count": (PublishEntry, {"attributes": {"kind": "a"}, "count": 2}),
    "request[]": (RequestEntry, {"filter": "kind = 'a'"}),
    "measure.more[]": (RequestedMetric, {"name": "samples", "counts": "probe", "probe": "load"}),
}
for _kind in typing.get_args(Fault):
    _given = {"nodes": "all", "between": [0, 1], "at_s": 1.0, "every_s": 1.0, "for_s": 1.0, "delay_s": 0.1}
    _given |= {"probability": 0.1, "error_m": 1.0}
    _tag = str(_kind.__struct_config__.tag)
    _own = {key: _given[key] for key in _kind.__struct_fields__ if key in _given}
    for _name in ("at_s", "every_s"):
        _both = {"at_s", "every_s"} <= set(_kind.__struct_fields__)
        _table = {key: value for key, value in _own.items() if not _both or key not in {"at_s", "every_s"} - {_name}}
        TABLES[f"faults[]:{_tag} by {_name}"] = (_kind, {"kind": _tag, **_table})


@pytest.mark.parametrize(("name", "key"), [(name, key) for name, (kind, _) in TABLES.items() for key in numbers(kind)])
def test_numbers_of_scenarios(name: str, key: str) -> None:
    place = name.partition(":")[0]
    _, table = TABLES[name]
    top, _, below = place.removesuffix("[]").partition(".")
    for value in EXTREMES:
        given: Any = {**table, key: value}
        given = [given] if place.endswith("[]") else given
        ends({**BASE, top: {below: given} if below else given}, f"{name}.{key} = {value}")


ENDLESS: list[tuple[dict[str, Any], str]] = [
    ({"faults": [{"kind": "crash", "nodes": "all", "every_s": 1e-6, "down_s": 1e-6}]}, r"faults\[0\].every_s"),
    ({"faults": [{"kind": "crash", "nodes": "50%", "every_s": 1e-9, "down_s": 1e-9}]}, r"faults\[0\].*1e-06"),
    ({"faults": [{"kind": "cut_off", "nodes": "all", "every_s": 1e-6, "for_s": 1e-6}]}, r"faults\[0\].every_s"),
    ({"faults": [{"kind": "link_cuts", "every_s": 1e-6, "for_s": 1.0}]}, r"faults\[0\].every_s"),
    ({"protocol": {"name": "epidemic", "tell_again_s": 1e-12}}, "protocol.tell_again_s"),
    ({"radio": {"model": "disk", "rate_bps": 1e-300}}, "radio.rate_bps"),
    ({"radio": {"model": "disk", "delay_s": math.inf}}, "radio.delay_s"),
    ({"radio": {"model": "disk", "range_m": math.inf}}, "radio.range_m"),
    ({"radio": {"model": "disk", "range_m": 1e308}}, "radio.range_m"),
]


@pytest.mark.parametrize(("change", "told"), ENDLESS, ids=[str(change) for change, _ in ENDLESS])
def test_work_that_cannot_end_is_refused_before_it_begins(change: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        parse_scenario({**BASE, **change}, "extreme.toml")


def test_subscriptions_that_cannot_all_differ_are_refused() -> None:
    five = {"filter": "kind = {kind}", "draw": {"kind": {"choice": ["a", "b", "c", "d", "e"]}}}
    with pytest.raises(UserError, match=r"subscribe\[0\].each: 100 a node, .* only 5 different filters"):
        parse_scenario({**BASE, "subscribe": [{**five, "each": 100}]}, "extreme.toml")
    run(parse_scenario({**BASE, "subscribe": [{**five, "each": 5}]}, "extreme.toml"), 1, engine="python")


NO_LIMIT = {
    "lease_s", "max_lease_s", "seen_s", "max_metric_s", "change_s", "most_speed_mps", "max_load",
    "look_s", "refresh_s", "recover_s", "catch_up_s",
}  # fmt: skip
"""Where inf means no limit, or never."""


def settings_types() -> Iterator[tuple[str, Any]]:
    for name in protocol_names():
        yield name, find_protocol(name).settings_type
    for name in router_names():
        yield name, find_router(name).settings_type
    for name, application in applications().items():
        yield name, application.settings_type
    yield from movement_models().items()
    for name, (kind, _) in TABLES.items():
        yield name, kind
    for kind in (Scenario, ComputerSettings, Calendar, Measure, ProcessorEntry):
        yield kind.__name__, kind
    for kind in (NodeFile, TraceSection, ProcessorSection, ListenSection, DiscoverySection, LinkSettings):
        yield f"node {kind.__name__}", kind


def bounds(hint: Any) -> tuple[bool, bool]:
    """Whether a number has a lower and an upper bound."""
    low = high = False
    for meta in getattr(hint, "__metadata__", ()):
        low |= meta.ge is not None or meta.gt is not None
        high |= meta.le is not None or meta.lt is not None
    for part in typing.get_args(hint):
        below = bounds(part)
        low, high = low or below[0], high or below[1]
    return low, high


@pytest.mark.parametrize(("name", "kind"), list(settings_types()))
def test_every_number_has_stated_bounds(name: str, kind: Any) -> None:
    hints = typing.get_type_hints(kind, include_extras=True)
    fields = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    for key in numbers(kind):
        low, high = bounds(hints[fields[key]])
        # Nodes of an entry may be words too, and are checked against those there are.
        assert (key == "nodes" and kind is not Scenario) or (low and (high or key in NO_LIMIT)), f"{name}.{key}"


@pytest.mark.parametrize("key", ["duration_s", "nodes"])
def test_numbers_of_the_whole(key: str) -> None:
    for value in EXTREMES:
        ends({**BASE, "publish": [], key: value}, f"{key} = {value}")
