"""A metric is one file: once its package is installed, it is in runs, comparisons, traces, minutes and SQL."""

import json
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.comparison import compared_metrics
from carrycast.analysis.spark.records import metric_columns, metric_value
from carrycast.core import plugins
from carrycast.sim.scenario.measures import metric_meanings
from tests.cli.console import EXAMPLES, call

ADDED = {"meetings": "Meetings", "last_delivery": "LastDelivery", "drop_sum": "DropSum"}
METRICS = {"meetings", "last_delay_s", "dropped"}
QUICK = EXAMPLES / "quick.toml"


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        name: EntryPoint(name, f"tests.pipeline.plugin_metrics:{fold}", "carrycast.metrics")
        for name, fold in ADDED.items()
    }
    before = plugins._entry_points
    monkeypatch.setattr(
        plugins, "_entry_points", lambda group: found if group == "carrycast.metrics" else before(group)
    )


def test_a_run_its_trace_its_minutes_and_sql_have_it(spark: SparkSession, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    run = call("run", QUICK, "--protocol", "epidemic", "--trace", trace, "--json").object()["metrics"]
    assert isinstance(run, dict)
    own = {name: run[name] for name in METRICS}
    assert own["meetings"] > 0
    assert own["last_delay_s"] > 0
    [found] = json.loads(json.dumps(call("metrics", trace, "--json").object()["runs"]))
    assert found["metrics"] == run
    [less] = json.loads(json.dumps(call("metrics", trace, "--level", "deliveries", "--json").object()["runs"]))
    assert less["metrics"]["last_delay_s"] == own["last_delay_s"]
    assert "meetings" not in less["metrics"]
    minutes = json.loads(json.dumps(call("metrics", trace, "--minutes", "--json").object()["minutes"]))
    assert sum(minute["dropped"] for minute in minutes) == own["dropped"]
    question = "select meetings, last_delay_s, dropped, delivered from metrics"
    [row] = json.loads(json.dumps(call("sql", trace, question, "--json").object()["rows"]))
    assert row == [own["meetings"], own["last_delay_s"], own["dropped"], run["delivered"]]


def test_a_watch_counts_its_sums(spark: SparkSession, tmp_path: Path) -> None:
    trace, out = tmp_path / "trace", tmp_path / "watch"
    run = call("run", QUICK, "--protocol", "epidemic", "--trace", trace, "--json").object()["metrics"]
    assert isinstance(run, dict)
    found = call("watch", tmp_path / "trace", "--out", out, "--once", "--json").object()["minutes"]
    assert sum(minute.get("dropped", 0) for minute in json.loads(json.dumps(found))) == run["dropped"]


def test_comparisons_and_claims_know_it() -> None:
    assert set(compared_metrics()) > METRICS
    assert set(metric_meanings()) > METRICS
    record = metric_columns({"delivered": 3, "meetings": 7})
    assert metric_value(record, "meetings") == 7.0


def test_two_metrics_of_one_name_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.pipeline.plugin_metrics.Meetings.metrics", {"delivered": None})
    said = call("run", QUICK, "--json")
    assert said.status == 2
    assert "the plug-in 'meetings' has a metric 'delivered', and so has 'carrycast'; rename it" in said.err
