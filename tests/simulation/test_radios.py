"""Radios with powers in whole runs: airtime in traces, energy, roles, obstacles and errors of scenarios."""

import json
from pathlib import Path

import pytest

from carrycast.errors import UserError
from carrycast.sim.engine import run
from carrycast.sim.scenario import Scenario, check_files, parse_scenario
from carrycast.trace import Level, read_trace
from carrycast.trace.folds.batch import TraceBatch
from carrycast.trace.folds.traffic import TrafficFold

BASE: dict[str, object] = {
    "duration_s": 20.0,
    "nodes": 8,
    "area_m": [200.0, 200.0],
    "mobility": {"model": "random_waypoint", "speed_min_mps": 1, "speed_max_mps": 10},
    "protocol": {"name": "flooding"},
    "subscribe": [{"nodes": "all", "filter": "topic = 'a'"}],
    "publish": [{"nodes": [0], "every_s": 2.0, "attributes": {"topic": "a"}, "lease_s": 20.0}],
}
RADIOS: list[dict[str, object]] = [
    {"model": "wifi", "fading": "nakagami", "shadowing_db": 4.0},
    {"model": "wifi", "preset": "802.11b", "path_exponent": 3.0},
    {"model": "lora", "duty_cycle": 1.0},
    {"model": "ieee802154", "fading": "rayleigh"},
    {"model": "serial"},
    {"model": "csma", "preset": "ns2-default"},
    {"model": "disk", "rate_bps": 1e6},
]


def scenario(radio: dict[str, object], **more: object) -> Scenario:
    return parse_scenario({**BASE, "radio": radio, **more}, "test")


@pytest.mark.parametrize("radio", RADIOS, ids=lambda radio: f"{radio['model']} {radio.get('preset', '')}")
def test_runs_are_repeatable_and_the_trace_has_the_airtime_of_the_radio(radio: dict[str, object]) -> None:
    first = run(scenario(radio), 1, Level.FULL)
    again = run(scenario(radio), 1)
    assert first.fingerprint == again.fingerprint
    assert first.metrics == again.metrics
    table = first.trace.table()
    in_rows = TrafficFold().amounts(TraceBatch.of(table))["airtime_us"]
    assert int(in_rows.sum()) == first.metrics["airtime_us"]
    sent = [row["airtime_us"] for row in table.to_pylist() if row["kind"] in ("send", "retry")]
    assert sent
    assert None not in sent


def test_the_airtime_of_lora_is_a_hundred_times_that_of_wifi() -> None:
    air_us = {}
    radios: list[dict[str, object]] = [{"model": "wifi"}, {"model": "lora", "duty_cycle": 1.0}]
    for radio in radios:
        metrics = run(scenario(radio, discovery={"mode": "none"}), 1).metrics
        air_us[radio["model"]] = float(metrics["airtime_us"] or 0) / float(metrics["transmissions"] or 1)
    assert air_us["lora"] > 100 * air_us["wifi"]


def test_a_node_without_energy_is_silent_and_deaf() -> None:
    # Node 0 publishes; 3 J last for 10 s of idling.
    energy = {"battery_j": 3.0, "idle_w": 0.3, "enforced": True}
    tired = run(scenario({"model": "disk"}, energy=energy), 1, Level.FULL)
    rested = run(scenario({"model": "disk"}, energy={**energy, "enforced": False}), 1)
    reasons = [row["reason"] for row in tired.trace.table().to_pylist() if row["kind"] == "drop"]
    assert "battery_empty" in reasons
    assert 0.3 < float(tired.metrics["delivery_ratio"] or 0) < 0.7 < float(rested.metrics["delivery_ratio"] or 0)
    late = [row for row in tired.trace.table().to_pylist() if row["kind"] == "receive" and row["time_s"] > 10.01]
    assert not late


def test_sending_takes_energy_by_airtime() -> None:
    # A LoRa frame of 0.2 s at 100 W empties a battery of 30 J with the second one.
    energy = {"battery_j": 30.0, "idle_w": 0.0, "send_w": 100.0, "receive_w": 0.0, "enforced": True}
    tired = run(
        scenario({"model": "lora", "duty_cycle": 1.0}, energy=energy, discovery={"mode": "none"}), 1, Level.FULL
    )
    rows = tired.trace.table().to_pylist()
    sent = [row for row in rows if row["kind"] == "send" and row["node"] == 0]
    assert 1 <= len(sent) <= 2
    assert any(row["reason"] == "battery_empty" and row["node"] == 0 for row in rows)


def test_an_override_names_a_role() -> None:
    radio: dict[str, object] = {"model": "wifi", "override": [{"nodes": "weak", "tx_power_dbm": -100.0}]}
    found = run(scenario(radio, roles={"weak": [0]}), 1)
    # Its own events do not leave it.
    assert found.metrics["delivery_ratio"] == 0.0
    with pytest.raises(UserError, match=r"radio.override\[0\].nodes: there is no role 'weak'"):
        scenario(radio)
    with pytest.raises(UserError, match=r"there is no node 9; the scenario has 8"):
        scenario({"model": "wifi", "override": [{"nodes": [9]}]})


def test_buildings_separate_nodes(tmp_path: Path) -> None:
    house = [[[40, -50], [60, -50], [60, 50], [40, 50], [40, -50]]]
    (tmp_path / "house.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": house}))
    places = {"model": "given", "positions": [[0.0, 0.0], [100.0, 0.0]]}
    radio: dict[str, object] = {"model": "wifi", "path_loss": "free_space"}
    ratios = []
    for obstacles in (None, "house.geojson", "none.geojson"):
        more = {} if obstacles is None else {"obstacles": obstacles, "obstacle_units": "meters"}
        found = scenario({**radio, **more}, nodes=2, mobility=places, base=str(tmp_path))
        if obstacles == "none.geojson":
            with pytest.raises(UserError, match=r"none.geojson: there is no such file of buildings"):
                check_files(found)
        else:
            ratios.append(run(found, 1).metrics["delivery_ratio"])
    assert ratios == [1.0, 0.0]


@pytest.mark.parametrize(
    ("radio", "says"),
    [
        ({"model": "wifi", "data_rate_bps": 7e6}, "data_rate_bps must be a rate of 802.11p: 3, 4.5, 6"),
        ({"model": "wifi", "nakagami": [[5, 1]]}, "nakagami must begin at distance 0"),
        ({"model": "lora", "min_exponent": 9}, "max_exponent must be at least min_exponent"),
        ({"model": "wifi", "path_loss": "two-ray"}, "path_loss"),
    ],
)
def test_contradictions_are_refused_with_one_line(radio: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as raised:
        scenario(radio)
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_powers_need_positions() -> None:
    with pytest.raises(UserError, match="wifi must know where nodes are"):
        parse_scenario(
            {**{key: value for key, value in BASE.items() if key != "mobility"}, "contacts": "a.txt",
             "radio": {"model": "wifi"}}, "test"
        )  # fmt: skip


def test_the_trace_can_be_read_again(tmp_path: Path) -> None:
    run(scenario({"model": "wifi"}), 1, Level.FULL).trace.save(tmp_path / "kept")
    assert "airtime_us" in read_trace(tmp_path / "kept")[0].column_names
