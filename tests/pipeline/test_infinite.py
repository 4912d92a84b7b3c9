"""Infinite numbers go through a sweep as they go through a run; what is no number is refused."""

import json
import math
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.definition import Axis, Definition
from carrycast.analysis.spark.experiment import expand_experiment
from carrycast.analysis.spark.plan import plan_runs
from carrycast.analysis.spark.reproduction import read_stored_experiments, report, reproduce_experiments
from carrycast.analysis.spark.sweep import read_runs
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.sim.scenario.scenario import parse_scenario
from tests.cli.console import QUICK, call
from tests.pipeline.scenarios import tiny


def test_an_infinite_lease_is_swept_and_reported(spark: SparkSession, tmp_path: Path) -> None:
    table: dict[str, object] = {
        "duration_s": 20.0,
        "nodes": 3,
        "mobility": {"model": "line", "spacing_m": 50.0},
        "radio": {"model": "disk", "range_m": 60.0},
        "protocol": {"name": "epidemic", "max_lease_s": math.inf},
        "subscribe": [{}],
        "publish": [{"count": 2, "lease_s": math.inf}],
    }
    axis = Axis(name="lease", key="publish.0.lease_s", values=[0.001, math.inf])
    study = expand_experiment(Definition(name="leases", scenario=table, runs=2, axes=[axis]), tmp_path)
    assert len({planned.key for planned in plan_runs(study)}) == 4
    found = reproduce_experiments([study], tmp_path / "out", spark, quiet=True)
    assert found.failed == 0
    rows = read_runs(tmp_path / "out")
    assert [row["fingerprint"] for row in rows] == [
        run(point.scenario, seed).fingerprint for point in study.points for seed in (1, 2)
    ]
    assert json.loads(str(rows[-1]["parameters"])) == {"lease": math.inf}
    (stored,) = read_stored_experiments(tmp_path / "out")
    assert [point.scenario.publish for point in stored.points] == [point.scenario.publish for point in study.points]
    assert report(tmp_path / "out").failed == 0


def test_compare_takes_infinite_settings(spark: SparkSession, tmp_path: Path) -> None:
    arguments = ["--protocols", "flooding,epidemic:max_lease_s=inf", "--runs", "1", "--set", "publish.0.lease_s=inf"]
    done = call("compare", QUICK, *arguments, "--out", tmp_path / "out", "--json")
    assert done.object(0)["failed"] == 0, done.err


@pytest.mark.parametrize("number", ["nan", "-inf", "-nan"])
def test_what_no_setting_can_mean_is_refused(number: str) -> None:
    refusal = call("run", QUICK, "--set", f"publish.0.lease_s={number}").refusal()
    assert "publish[0].lease_s: " in refusal
    assert "give a number, or inf for no limit" in refusal
    with pytest.raises(UserError, match=r"protocol\.max_lease_s: .* is no value"):
        tiny("epidemic", protocol={"name": "epidemic", "max_lease_s": float(number)}).make_stack_plan()


def refusal(table: dict[str, object]) -> str:
    """What is said of a scenario; nothing if it runs."""
    try:
        run(parse_scenario(table, "infinite"), 1)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "change",
    [
        {"duration_s": math.inf},
        {"area_m": [math.inf, 100.0]},
        {"radio": {"model": "disk", "range_m": math.inf}},
        {"radio": {"model": "disk", "delay_s": math.inf}},
        {"radio": {"model": "disk", "rate_bps": math.inf}},
        {"mobility": {"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": math.inf}},
        {"mobility": {"model": "random_waypoint", "speed_min_mps": 1.0, "speed_max_mps": 2.0, "pause_max_s": math.inf}},
        {"mobility": {"model": "line", "spacing_m": math.inf}},
        {"publish": [{"count": 1, "from_s": math.inf}]},
        {"publish": [{"count": 1, "lease_s": math.inf}]},
        {"subscribe": [{"at_s": math.inf}]},
        {"discovery": {"mode": "beacon", "period_s": math.inf}},
        {"wires": [{"between": [[0, 1]], "delay_s": math.inf}]},
        {"measure": {"from_s": math.inf}},
    ],
    ids=str,
)
def test_an_infinite_setting_is_run_or_refused_in_one_line(change: dict[str, object]) -> None:
    table: dict[str, object] = {
        "duration_s": 10.0,
        "nodes": 3,
        "mobility": {"model": "line", "spacing_m": 50.0},
        "protocol": {"name": "flooding"},
        "subscribe": [{}],
        "publish": [{"count": 1}],
    }
    assert "\n" not in refusal({**table, **change})
