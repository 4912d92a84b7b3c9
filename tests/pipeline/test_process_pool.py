"""Small sweeps run in processes of this machine, without Spark and Java, and give the same rows and means."""

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from carrycast.analysis.spark import spark_session
from carrycast.analysis.spark.experiment import Experiment, vary_scenario
from carrycast.analysis.spark.plan import plan_runs
from carrycast.analysis.spark.process_pool import run_in_processes
from carrycast.analysis.spark.records import Record, record_table
from carrycast.analysis.spark.spark_session import SMALL_SWEEP, LazySession
from carrycast.analysis.spark.summary import (
    summarize,
    summarize_differences,
    summarize_record_differences,
    summarize_records,
)
from carrycast.analysis.spark.sweep import run_sweep
from carrycast.errors import WorkError
from tests.cli.console import REPOSITORY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK = REPOSITORY / "examples" / "quick.toml"


def experiment(runs: int = 2) -> Experiment:
    return vary_scenario(QUICK, ["radio.range_m=80,100"], (), runs, "vary")


def comparable(records: list[Record]) -> list[Record]:
    return [{key: value for key, value in record.items() if key != "cpu_s"} for record in records]


def test_without_java_and_pyspark_protocols_are_compared(tmp_path: Path) -> None:
    script = f"""
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
import carrycast
result = carrycast.compare({str(QUICK)!r}, ["flooding", "gossip:p=0.5"], runs=3, out={str(tmp_path / "out")!r})
assert result.failed == 0
assert len(result.advice_sentences) > 0
assert result.report.is_file()
rows = carrycast.sweep({str(QUICK)!r}, {{"radio.range_m": [50, 100]}}, 1).to_arrow()
assert rows.num_rows == 2
"""
    # No guard around the main module: a script, or a notebook, calls the functions as they are.
    environment = {**os.environ, "JAVA_HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY / "src")}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment, timeout=300)


def test_processes_and_spark_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: "SparkSession"
) -> None:
    monkeypatch.setattr(spark_session, "_running", None)
    here = run_sweep([experiment()], tmp_path / "here", LazySession(), quiet=True)
    there = run_sweep([experiment()], tmp_path / "there", spark, quiet=True)
    assert comparable(here) == comparable(there)
    assert all(record["error"] is None for record in here)


def test_means_and_differences_are_those_of_spark(tmp_path: Path, spark: "SparkSession") -> None:
    records = run_sweep([experiment(4)], tmp_path / "out", spark, quiet=True)
    # A failed run, and a metric that does not exist in one.
    records[0] = {**records[0], "delay_p50_s": None}
    frame = spark.createDataFrame(record_table(records))
    metrics = ["delivery_ratio", "delay_p50_s", "total_bytes"]
    assert sorted(summarize_records(records, metrics)) == sorted(summarize(frame, metrics))
    points = sorted({str(record["point"]) for record in records})
    pairs = [("vary", points[1], points[0])]
    wanted = spark.createDataFrame(pairs, "experiment string, point string, reference string")
    assert sorted(summarize_record_differences(records, pairs, metrics)) == sorted(
        summarize_differences(frame, wanted, metrics)
    )


def test_a_run_that_kills_its_worker_becomes_a_failed_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "modules"
    plugin.mkdir()
    # Imported by every worker before it works: the second run of each task ends the process.
    (plugin / "sitecustomize.py").write_text(
        "import os, sys\n"
        "if 'process_pool' in ' '.join(sys.orig_argv):\n"
        "    import carrycast.analysis.spark.plan as plan\n"
        "    real = plan.execute_run\n"
        "    plan.execute_run = lambda planned, *rest: os._exit(9) if planned.seed == 2 else real(planned, *rest)\n"
    )
    monkeypatch.syspath_prepend(str(plugin))
    planned = plan_runs(experiment())
    rows = run_in_processes(planned, tmp_path / "out", 2).to_pylist()
    assert [row["seed"] for row in rows if row["error"] is not None] == [run.seed for run in planned if run.seed == 2]
    assert "the worker died each of the 3 times" in str(next(row["error"] for row in rows if row["seed"] == 2))


def test_a_full_disk_ends_the_sweep_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "modules"
    plugin.mkdir()
    (plugin / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'process_pool' in ' '.join(sys.orig_argv):\n"
        "    import carrycast.analysis.spark.plan as plan\n"
        "    from carrycast.errors import WorkError\n"
        "    def fail(*arguments): raise WorkError('the disk is full')\n"
        "    plan.execute_run = fail\n"
    )
    monkeypatch.syspath_prepend(str(plugin))
    with pytest.raises(WorkError, match=r"^the disk is full$"):
        run_in_processes(plan_runs(experiment()), tmp_path / "out", 2)


def test_spark_is_needed_for_many_runs_and_where_it_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "_running", None)
    assert not LazySession().is_needed(SMALL_SWEEP)
    assert LazySession().is_needed(SMALL_SWEEP + 1)
    assert LazySession("local[2]").is_needed(1)
