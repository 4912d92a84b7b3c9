"""Sweeps: any partitioning gives the same rows; what is done stays done; what breaks becomes a row."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.journal import RunLog, TaskJournal
from carrycast.analysis.spark.plan import partition_runs, plan_runs
from carrycast.analysis.spark.records import METRICS, Record, record_schema
from carrycast.analysis.spark.sweep import read_runs, run_sweep
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from carrycast.trace import Level
from tests.pipeline.deaths import Counting, DyingAlways, DyingOnce
from tests.pipeline.scenarios import tiny, tiny_experiment


def without_cost(records: list[Record]) -> list[Record]:
    return [{key: value for key, value in record.items() if key != "cpu_s"} for record in records]


def test_any_partitioning_gives_the_rows_of_a_plain_loop(spark: SparkSession, tmp_path: Path) -> None:
    experiment = tiny_experiment()
    one = run_sweep([experiment], tmp_path / "one", spark, partitions=1, quiet=True)
    # More partitions than there are runs: some are empty.
    many = run_sweep([experiment], tmp_path / "many", spark, partitions=9, quiet=True)
    assert without_cost(one) == without_cost(many) == without_cost(read_runs(tmp_path / "one"))
    plain = [run(point.scenario, seed) for point in experiment.points for seed in experiment.seeds]
    assert [{metric: record[metric] for metric in METRICS} for record in one] == [outcome.metrics for outcome in plain]
    assert [(record["fingerprint"], record["protocol"]) for record in one] == [
        (outcome.fingerprint, outcome.protocol) for outcome in plain
    ]
    assert pq.read_schema(tmp_path / "one" / "runs.parquet").equals(record_schema())


def test_what_is_done_is_skipped_and_what_failed_is_tried_again(spark: SparkSession, tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    out, experiment = tmp_path / "out", tiny_experiment(("flooding",))
    first = run_sweep([experiment], out, spark, Counting(memory, refuse=(2,)), quiet=True)
    assert [record["error"] is None for record in first] == [True, False, True]
    assert str(first[1]["error"]).startswith("ValueError: seed 2 is refused (pipeline/deaths.py:")
    assert first[1]["delivery_ratio"] is None
    assert first[1]["fingerprint"] is None
    again = run_sweep([tiny_experiment(("flooding",), runs=4)], out, spark, Counting(memory), quiet=True)
    assert [record["error"] for record in again] == [None] * 4
    times = Counter(path.name.split("-")[2] for path in memory.iterdir())
    assert times == {"1": 1, "2": 1, "3": 1, "4": 1}
    assert without_cost(again)[:1] == without_cost(first)[:1]


def test_an_interrupted_sweep_goes_on_where_it_stopped(spark: SparkSession, tmp_path: Path) -> None:
    memory = tmp_path / "memory"
    memory.mkdir()
    out, experiment = tmp_path / "out", tiny_experiment(("flooding",))
    whole = run_sweep([experiment], tmp_path / "whole", spark, quiet=True)
    # What an interruption leaves: journals of finished runs, one of them cut, a fold half written, no runs.parquet.
    runs = out / "runs"
    runs.mkdir(parents=True)
    with TaskJournal(runs, 0) as journal:
        journal.start(str(whole[0]["key"]))
        journal.add(whole[0])
    with TaskJournal(runs, 1) as journal:
        journal.start(str(whole[1]["key"]))
        journal.add(whole[1])
    (cut,) = runs.glob("task-1-*")
    cut.write_bytes(cut.read_bytes()[:-9])
    (runs / ".folded.parquet-77.tmp").write_bytes(b"PAR1")
    resumed = run_sweep([experiment], out, spark, Counting(memory), quiet=True)
    assert without_cost(resumed) == without_cost(whole)
    assert sorted(path.name.split("-")[2] for path in memory.iterdir()) == ["2", "3"]
    assert [path.name for path in runs.iterdir()] == ["folded.parquet"]


def test_a_dead_worker_is_replaced_and_its_runs_are_done(spark: SparkSession, tmp_path: Path) -> None:
    experiment = tiny_experiment()
    records = run_sweep([experiment], tmp_path / "out", spark, DyingOnce(2, tmp_path), quiet=True)
    assert len(list(tmp_path.glob("died-*"))) == 2
    assert without_cost(records) == without_cost(run_sweep([experiment], tmp_path / "calm", spark, quiet=True))


def test_a_run_that_kills_every_worker_becomes_an_error_row(spark: SparkSession, tmp_path: Path) -> None:
    experiment = tiny_experiment(("flooding",))
    records = run_sweep([experiment], tmp_path, spark, DyingAlways(2), partitions=1, quiet=True)
    assert [record["error"] for record in records] == [
        None,
        "the worker died each of the 3 times that this run was tried",
        None,
    ]


def test_a_run_whose_files_are_missing_becomes_an_error_row(spark: SparkSession, tmp_path: Path) -> None:
    experiment = tiny_experiment(("flooding",), runs=1, mobility=None, contacts="gone.parquet")
    (record,) = run_sweep([experiment], tmp_path, spark, quiet=True)
    assert "gone.parquet" in str(record["error"])
    assert "\n" not in str(record["error"])


def test_traces_are_kept_under_the_runs_keys(spark: SparkSession, tmp_path: Path) -> None:
    plain = tiny_experiment(("flooding",), runs=1)
    traced = msgspec.structs.replace(plain.definition, trace=Level.DELIVERIES)
    (record,) = run_sweep([Experiment(traced, plain.points, plain.seeds)], tmp_path, spark, quiet=True)
    assert [path.name for path in (tmp_path / "traces").iterdir()] == [record["key"]]
    rows = pq.read_table(tmp_path / "traces" / str(record["key"]) / "trace").to_pylist()
    assert {row["run"] for row in rows} == {record["run"]}
    assert sum(row["kind"] == "deliver" for row in rows) >= int(str(record["delivered"]))


def test_runs_on_one_movement_follow_each_other() -> None:
    experiment = tiny_experiment(("flooding", "gossip:p=0.5", "epidemic"), runs=40)
    parts = partition_runs(plan_runs(experiment), cores=2)
    assert len(parts) == 16
    assert sum(map(len, parts)) == 120
    for part in parts:
        seeds = [planned.seed for planned in part]
        assert seeds == sorted(seeds)
        assert set(Counter(seeds).values()) == {3}


def test_one_movement_under_many_settings_keeps_every_core_busy() -> None:
    settings = tuple(f"gossip:p=0.{number}" for number in range(10, 90))
    parts = partition_runs(plan_runs(tiny_experiment(settings, runs=1)), cores=2)
    assert [len(part) for part in parts] == [5] * 16


def test_a_key_stands_for_all_that_decides_a_run() -> None:
    keys = [
        planned.key
        for experiment in (
            tiny_experiment(),
            tiny_experiment(("flooding",), nodes=13),
            tiny_experiment(("gossip:p=0.5", "gossip:p=0.6")),
        )
        for planned in plan_runs(experiment)
    ]
    assert len(set(keys)) == len(keys)
    assert [planned.key for planned in plan_runs(tiny_experiment())] == keys[:6]


def test_a_directory_that_is_none_is_told(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: cannot be written to: "):
        run_sweep([tiny_experiment()], tmp_path / "file", spark, quiet=True)
    with pytest.raises(UserError, match=r"runs\.parquet: there is no such file; give a directory that sweep"):
        read_runs(tmp_path)
    (tmp_path / "runs.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UserError, match=r"runs\.parquet: cannot be read: "):
        read_runs(tmp_path)
    pq.write_table(pq.read_table(_other(tmp_path)), tmp_path / "runs.parquet")
    with pytest.raises(UserError, match=r"runs\.parquet: does not have the columns of a sweep"):
        read_runs(tmp_path)


def _other(folder: Path) -> Path:
    outcome = run(tiny(), 1, Level.DELIVERIES)
    outcome.trace.save(folder / "trace")
    return folder / "trace" / "events"


INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
from carrycast.analysis.spark.spark_session import session, stop_session
from carrycast.analysis.spark.sweep import run_sweep
from tests.pipeline.scenarios import tiny_experiment

out = Path(sys.argv[1])

def interrupt():
    while not any(b"\\n{" in path.read_bytes() for path in (out / "runs").glob("*.journal")):
        time.sleep(0.02)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    run_sweep([tiny_experiment(runs=2000)], out, session("interrupted", cores=1), quiet=True)
except KeyboardInterrupt:
    print("interrupted")
stop_session()
"""


def test_an_interrupt_ends_a_sweep_at_once_and_keeps_what_is_done(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout == "interrupted\n", done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs.parquet").exists()
    kept = RunLog(tmp_path / "runs").open().to_pylist()
    assert 0 < len(kept) < 4000
    assert all(record["error"] is None for record in kept)
