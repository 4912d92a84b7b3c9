"""What stands in an output folder: one writer at a time, experiments that add up, and nothing that gets lost."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.journal import RunLog
from carrycast.analysis.spark.output import lock_folder
from carrycast.analysis.spark.records import record_table
from carrycast.analysis.spark.reproduction import read_stored_experiments, report, reproduce_experiments
from carrycast.analysis.spark.sweep import read_runs, run_sweep
from carrycast.errors import UserError, WorkError
from tests.pipeline.scenarios import tiny_experiment

HOLDER = """
import sys, time
from pathlib import Path
from carrycast.analysis.spark.output import lock_folder
with lock_folder(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def named(name: str, protocol: str = "flooding", runs: int = 2) -> Experiment:
    plain = tiny_experiment((protocol,), runs)
    return Experiment(msgspec.structs.replace(plain.definition, name=name), plain.points, plain.seeds)


def test_a_second_sweep_is_refused_and_names_the_first_until_that_is_dead(spark: SparkSession, tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    first = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "held\n"
        with pytest.raises(
            WorkError,
            match=rf"in use by process {first.pid} on \S+ since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d UTC; wait for it, or",
        ):
            run_sweep([named("one")], tmp_path, spark, quiet=True)
        assert not (tmp_path / "runs.parquet").exists()
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert first.stdout is not None
        first.stdout.close()
    assert (tmp_path / ".lock").exists(), "a dead process leaves its lock behind"
    assert len(run_sweep([named("one")], tmp_path, spark, quiet=True)) == 2
    assert not (tmp_path / ".lock").exists()


def test_a_folder_is_let_go_whatever_happens_in_it(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), lock_folder(tmp_path / "new"):
            raise ZeroDivisionError
    with (
        lock_folder(tmp_path / "new"),
        pytest.raises(WorkError, match=f"in use by process {os.getpid()} "),
        lock_folder(tmp_path / "new"),
    ):
        pass


def test_different_experiments_in_one_folder_add_up(spark: SparkSession, tmp_path: Path) -> None:
    first = reproduce_experiments([named("one")], tmp_path, spark, quiet=True)
    second = reproduce_experiments([named("two", "epidemic", 3)], tmp_path, spark, quiet=True)
    assert (first.runs, second.runs) == (2, 3)
    assert [row["experiment"] for row in read_runs(tmp_path)] == ["one"] * 2 + ["two"] * 3
    assert [experiment.name for experiment in read_stored_experiments(tmp_path)] == ["one", "two"]
    assert report(tmp_path).runs == 5
    # The same again replaces its own rows alone.
    again = reproduce_experiments([named("one", runs=1)], tmp_path, spark, quiet=True)
    assert again.runs == 1
    assert [row["experiment"] for row in read_runs(tmp_path)] == ["two"] * 3 + ["one"]


def test_what_another_version_left_does_not_spoil_the_report_of_what_was_run_now(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reproduce_experiments([named("one")], tmp_path, spark, quiet=True)
    (tmp_path / "experiments" / "one" / "claims.py").write_text("from carrycast.analysis.spark import gone\n")
    (tmp_path / "experiments" / "old").mkdir()
    (tmp_path / "experiments" / "old" / "definition.json").write_text('{"definition": 7}')
    assert reproduce_experiments([named("two")], tmp_path, spark, quiet=True).runs == 2
    said = capsys.readouterr().err
    assert "old is left out of the report" in said
    assert "one is left out of the report" in said
    with pytest.raises(UserError, match=r"definition\.json"):
        report(tmp_path)


def test_a_ledger_of_other_columns_is_set_aside_whole(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").mkdir()
    old = record_table([{"key": str(number), "seed": number} for number in range(1000)]).drop_columns(["cpu_s"])
    pq.write_table(old, tmp_path / "runs" / "folded.parquet")
    run_sweep([named("one", runs=1)], tmp_path, spark, quiet=True)
    kept = tmp_path / "set-aside" / "folded-1.parquet"
    assert pq.read_table(kept).num_rows == 1000
    assert f"{kept}: has other columns than this version, or is cut; set aside" in capsys.readouterr().err
    assert len(RunLog(tmp_path / "runs").read_finished()) == 1


def test_what_is_of_another_version_is_set_aside_too(spark: SparkSession, tmp_path: Path) -> None:
    run_sweep([named("one", runs=1)], tmp_path, spark, quiet=True)
    for path in (tmp_path / "runs.parquet", tmp_path / "runs" / "folded.parquet"):
        table = pq.read_table(path)
        assert table.schema.metadata[b"carrycast.runs"] == b"1"
        pq.write_table(table.replace_schema_metadata({b"carrycast.runs": b"0"}), path)
    run_sweep([named("two", runs=1)], tmp_path, spark, quiet=True)
    assert [row["experiment"] for row in read_runs(tmp_path)] == ["two"]
    aside = sorted(path.name for path in (tmp_path / "set-aside").iterdir())
    assert aside == ["folded-1.parquet", "runs-1.parquet"]


def test_files_set_aside_never_replace_each_other(tmp_path: Path) -> None:
    ledger = RunLog(tmp_path / "runs")
    ledger.open()
    for number in range(3):
        pq.write_table(pa.table({"number": [number]}), tmp_path / "runs" / "folded.parquet")
        assert len(ledger.open()) == 0
    kept = sorted(pq.read_table(path)["number"][0].as_py() for path in (tmp_path / "set-aside").iterdir())
    assert kept == [0, 1, 2]
