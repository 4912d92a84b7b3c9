"""Protocols and settings in the syntax of the command line."""

import subprocess
import sys

import pytest

from carrycast.errors import UserError
from carrycast.sim.scenario.overrides import (
    apply_overrides,
    parse_assignment,
    parse_protocol,
    parse_protocols,
    protocol_label,
    resolve_scenario,
)
from tests.pipeline.scenarios import tiny


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("flooding", {"name": "flooding"}),
        ("gossip:p=0.3", {"name": "gossip", "p": 0.3}),
        ("adaptive/paper:tau=5,fast=true", {"name": "adaptive", "variant": "paper", "tau": 5, "fast": True}),
        ("x:mode=slow,label='a,b=c',limit=inf", {"name": "x", "mode": "slow", "label": "a,b=c", "limit": float("inf")}),
        (" gossip : p = 0.3 ".replace(" :", ":"), {"name": "gossip", "p": 0.3}),
    ],
)
def test_a_protocol_is_a_name_perhaps_a_variant_and_settings(text: str, table: dict[str, object]) -> None:
    assert parse_protocol(text) == table


def test_a_list_keeps_settings_with_their_protocol() -> None:
    assert parse_protocols("flooding,gossip:p=0.3,sure_hops=1,epidemic") == [
        {"name": "flooding"},
        {"name": "gossip", "p": 0.3, "sure_hops": 1},
        {"name": "epidemic"},
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "--protocols: names no protocol; write name, name/variant or name:key=value,key=value"),
        ("p=1,gossip", "--protocols: 'p=1' stands before any protocol"),
        ("gossip:", "--protocols: 'gossip:' is not a protocol"),
        ("gossip/:p=1", "--protocols: 'gossip/:p=1' is not a protocol"),
        ("gossip:p", "--protocols: 'gossip:p': 'p' is not of the form key=value"),
        ("gossip:p=1,p=2", "--protocols: 'gossip:p=1,p=2': 'p=2' is given twice"),
        ("gossip:p=?", "--protocols: gossip:p: '?' is not a value"),
        ("flooding,flooding", "--protocols: 'flooding' is there twice"),
    ],
)
def test_a_list_that_cannot_be_read_says_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(UserError) as error:
        parse_protocols(text)
    assert str(error.value).startswith(told)


def test_labels_are_short() -> None:
    assert protocol_label({"name": "gossip", "p": 0.30, "on": True}) == "gossip p=0.3 on=true"
    assert protocol_label({"name": "asp", "variant": "best"}) == "asp/best"


def test_settings_are_replaced_by_their_dotted_names() -> None:
    changed = apply_overrides(
        tiny("gossip"),
        {
            "protocol.p": 0.25,
            "radio.range_m": 99,
            "publish.0.count": 3,
            "measure.to_s": 50.0,
            "discovery.mode": "beacon",
        },
    )
    assert changed.protocol == {"name": "gossip", "p": 0.25}
    assert changed.radio_model().range_m == 99.0
    assert changed.publish[0].count == 3
    assert changed.measure.to_s == 50.0
    assert apply_overrides(tiny(), {"protocol": "gossip:p=0.5"}).protocol == {"name": "gossip", "p": 0.5}


def test_replacing_leaves_the_original_as_it_was() -> None:
    scenario = tiny("gossip")
    apply_overrides(scenario, {"protocol.p": 0.25, "publish.0.count": 3})
    assert scenario == tiny("gossip")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("protocol.q", 1, "--set: protocol: unknown key 'q'; allowed: jitter_s, max_hops, seen_s"),
        ("radio.range_m", -5, "--set: radio.range_m: Expected `float` > 0.0 (it is -5)"),
        ("speed", 1, "--set speed: a scenario has no 'speed'; it has advertise, applications, area_m,"),
        ("base", "/", "--set base: a scenario has no 'base'"),
        ("nodes.x", 1, "--set nodes.x: nodes is a plain value and has nothing below it"),
        ("publish.7.count", 1, "--set publish.7.count: '7' is not an entry of publish; there are 0 to 0"),
        ("protocol.name", "floding", "--set: protocol.name: there is no protocol 'floding': did you mean 'flooding'?"),
    ],
)
def test_a_setting_that_cannot_be_replaced_is_named(key: str, value: object, told: str) -> None:
    with pytest.raises(UserError) as error:
        apply_overrides(tiny(), {key: value})
    assert str(error.value).startswith(told)


def test_assignments_are_typed_as_toml() -> None:
    assert parse_assignment("protocol.p=0.5") == ("protocol.p", 0.5)
    assert parse_assignment("discovery.mode=beacon") == ("discovery.mode", "beacon")
    assert parse_assignment("area_m=[10.0, 20.0]") == ("area_m", [10.0, 20.0])
    for text in ("p", "=1", "p="):
        with pytest.raises(UserError, match="--set"):
            parse_assignment(text)


def test_reading_protocols_and_experiments_needs_no_spark() -> None:
    script = (
        "import sys\n"
        "import carrycast.sim.scenario.overrides, carrycast.sim.scenario.overrides\n"
        "import carrycast.analysis.spark.experiment\n"
        "import carrycast.analysis.spark.comparison, carrycast.analysis.spark.reproduction\n"
        "import carrycast.analysis.spark.sweep\n"
        "print([name for name in ('pyspark', 'pandas', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_scenario_that_names_no_protocol_runs_drift() -> None:
    tables = {"name": "plain", "duration_s": 10.0, "nodes": 2, "mobility": {"model": "grid", "spacing_m": 10.0}}
    assert resolve_scenario(tables).protocol == {"name": "drift"}
    assert resolve_scenario(tables, "flooding").protocol == {"name": "flooding"}
