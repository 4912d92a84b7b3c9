"""The rooms of a cluster, one by one; `test_standalone.py` has a real one."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import numpy as np
import pytest
from pyspark.sql import SparkSession

from carrycast.analysis.spark.cluster import remote_executor
from carrycast.analysis.spark.cluster.artifacts import send_files
from carrycast.analysis.spark.cluster.executors import WorkerState, check_workers
from carrycast.analysis.spark.cluster.remote_executor import ResultReceiver, WorkerResult, run_remotely
from carrycast.analysis.spark.definition import Axis, Definition
from carrycast.analysis.spark.experiment import expand_experiment
from carrycast.analysis.spark.journal import RunLog, TaskJournal
from carrycast.analysis.spark.master import check_master, count_cores, is_local, is_on_this_machine
from carrycast.analysis.spark.plan import execute_run, partition_runs, plan_runs
from carrycast.analysis.spark.records import Record
from carrycast.analysis.spark.spark_errors import failure_reason
from carrycast.analysis.spark.spark_session import JAVA_OPTIONS, merge_settings, parse_conf, read_spark_defaults
from carrycast.analysis.spark.sweep import runs_dataframe
from carrycast.core.model import Area
from carrycast.errors import UserError, WorkError
from carrycast.sim.engine.simulation import run
from carrycast.trace import Level
from tests.cli.console import QUICK, call
from tests.pipeline.deaths import DyingAlways
from tests.pipeline.scenarios import tiny, tiny_experiment
from tests.unit.mobility.test_fleet import save


@pytest.mark.parametrize(
    ("master", "cores", "local", "here"),
    [
        ("local", 1, True, True),
        ("local[3,4]", 3, True, True),
        ("local-cluster[2,3,1024]", 6, False, True),
        ("spark://127.0.0.1:7077", None, False, True),
        ("spark://localhost:7077,[::1]:7077", None, False, True),
        ("spark://127.0.0.1:7077,head:7077", None, False, False),
        ("yarn", None, False, False),
    ],
)
def test_a_master_says_where_it_is_and_with_how_many_cores(
    master: str, cores: int | None, local: bool, here: bool
) -> None:
    assert (count_cores(master), is_local(master), is_on_this_machine(master)) == (cores, local, here)


def test_spark_connect_is_refused_with_what_to_give_instead() -> None:
    with pytest.raises(UserError, match=r"is Spark Connect, which returns nothing.*give spark://HOST:PORT"):
        check_master("sc://somewhere:15002")


@pytest.mark.parametrize("text", ["", "spark.x", "=1", "x=1", "spark.x=", "spark.x y=1", "spark.master=local"])
def test_what_is_no_setting_of_spark_is_refused(text: str) -> None:
    refusal = call("compare", QUICK, "--protocols", "flooding", "--conf", text).refusal()
    assert f"--conf {text!r}: " in refusal


def test_what_is_said_comes_before_the_file_and_the_file_before_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert read_spark_defaults() == {}
    (tmp_path / "conf").mkdir()
    written = tmp_path / "conf" / "spark-defaults.conf"
    written.write_text(
        "# of the cluster\n! too\n\nspark.master  spark://head:7077\nspark.a=1\nspark.b : 2\n  spark.c   3 4 \n"
        "spark.sql.session.timeZone CET\nspark.driver.extraJavaOptions -Dx=1 \\\n   -Dy=2\nspark.empty\n"
    )
    fixed = {"spark.sql.session.timeZone": "UTC", JAVA_OPTIONS: "-Dours"}
    found = merge_settings({"spark.a": "ours", "spark.d": "ours"}, fixed, parse_conf(["spark.b=said", "spark.e=a=b"]))
    assert found == {
        "spark.a": "1",
        "spark.b": "said",
        "spark.c": "3 4",
        "spark.d": "ours",
        "spark.e": "a=b",
        "spark.sql.session.timeZone": "UTC",
        JAVA_OPTIONS: "-Dours -Dx=1 -Dy=2",
    }
    written.write_bytes(b"spark.a \xff")
    with pytest.raises(UserError, match=r"spark-defaults\.conf: cannot be read: "):
        read_spark_defaults()
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    assert read_spark_defaults() == {}


def test_a_worker_without_a_package_is_named_with_what_to_install() -> None:
    lacking = WorkerState("far", "/usr/bin/python3", ("msgspec", "pyarrow"), "")
    check_workers([WorkerState("near", "python3", (), "")], "spark://m:1")
    with pytest.raises(WorkError) as raised:
        check_workers([WorkerState("near", "python3", (), ""), lacking], "spark://m:1")
    assert str(raised.value) == (
        "spark://m:1: the Python of its workers, /usr/bin/python3 on far, has no msgspec, pyarrow: "
        "`/usr/bin/python3 -m pip install msgspec pyarrow` there, or name another with PYSPARK_PYTHON"
    )
    with pytest.raises(WorkError, match="carrycast does not work on far with python3: SyntaxError: no"):
        check_workers([WorkerState("far", "python3", (), "SyntaxError: no")], "spark://m:1")


def test_what_spark_says_becomes_one_line() -> None:
    python = (
        'An exception was thrown:\nTraceback (most recent call last):\n  File "x"\n    y()\nValueError: no\n  at java'
    )
    assert failure_reason(Exception(python)) == "ValueError: no"
    ours = "Traceback (most recent call last):\n  z\ncarrycast.errors.WorkError: out: cannot be written"
    assert failure_reason(Exception(ours)) == "out: cannot be written"
    java = "An error occurred while calling x.\n: SparkException: Job: Task 0, most recent failure: Lost: b\n\tat"
    assert failure_reason(Exception(java)) == "Lost: b"
    assert failure_reason(KeyError()) == "KeyError"


def test_tasks_of_a_cluster_are_small_and_those_with_traces_smaller() -> None:
    runs = plan_runs(tiny_experiment(("flooding",), runs=640))
    assert [len(partition_runs(runs, cores=2, remote=remote)) for remote in (False, True)] == [16, 64]
    traced = [msgspec.structs.replace(run, trace="full") for run in runs]
    assert max(map(len, partition_runs(traced, cores=2, remote=True))) == 4


def test_a_parcel_is_taken_in_once_and_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    cancelled: list[bool] = []
    (tmp_path / "runs").mkdir()
    with TaskJournal(tmp_path / "runs", 0) as journal:
        home = ResultReceiver(tmp_path, journal, lambda: cancelled.append(True))
        parcel = msgspec.msgpack.encode(WorkerResult('{"key": "one", "error": null}', {"trace/part": b"1"}))
        home.receive(parcel)
        home.receive(parcel)
        assert (tmp_path / "traces" / "one" / "trace" / "part").read_bytes() == b"1"
        for name in ("../../x", "/x"):
            home.error = None
            home.receive(msgspec.msgpack.encode(WorkerResult('{"key": "two"}', {name: b"1"})))
            assert "leads out of its folder" in str(home.error)
        assert len(cancelled) == 2
    assert list(home.records) == ["one"]
    assert RunLog(tmp_path / "runs").count() == 1
    assert [path.name for path in (tmp_path / "traces").iterdir()] == ["one"]


def without_cost(records: list[Record]) -> list[Record]:
    known = [
        {key: value for key, value in record.items() if key != "cpu_s" and value is not None} for record in records
    ]
    return sorted(known, key=lambda record: str(record["key"]))


def sent_and_hidden(spark: SparkSession, folder: Path, paths: Iterable[Path]) -> dict[str, str]:
    """These workers are on the same machine: what they were sent is not to be found where it was."""
    found = list(paths)
    names = send_files(spark, folder, found)
    for path in found:
        path.parent.rename(path.parent.with_name("buses-hidden"))
    return names


def test_a_fleet_travels_and_a_run_that_ends_its_workers_ends_no_sweep(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # These workers have carrycast in place; all others of the session shall have it there too.
    monkeypatch.setattr(remote_executor, "send_code", lambda spark, folder: None)
    monkeypatch.chdir(tmp_path)
    model = tiny().mobility_model()
    assert model is not None
    save(tmp_path / "buses", model.trajectories(12, Area(600.0, 600.0), 120.0, np.random.default_rng(1)))
    table = msgspec.to_builtins(tiny(mobility={"model": "fleet", "folder": "buses"}))
    table.pop("base")
    axes = [Axis(name="protocol", values=["flooding"])]
    definition = Definition(name="fleet", scenario=table, runs=3, axes=axes, trace=Level.DELIVERIES)
    runs = plan_runs(expand_experiment(definition, tmp_path))
    out = tmp_path / "out"
    (out / "runs").mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    frame = runs_dataframe(spark, runs, partitions=1)
    monkeypatch.setattr(remote_executor, "send_files", sent_and_hidden)
    records = run_remotely(spark, frame, runs, out, DyingAlways(2), tmp_path / "scratch")
    (tmp_path / "buses-hidden").rename(tmp_path / "buses")
    failed = [record for record in records if record.get("error")]
    assert [(record["seed"], record["error"]) for record in failed] == [
        (2, "the worker died each of the 3 times that this run was tried")
    ]
    here = [execute_run(planned, tmp_path / "here", run) for planned in runs if planned.seed != 2]
    assert all(record.get("error") is None for record in here)
    assert without_cost([record for record in records if record not in failed]) == without_cost(here)
    assert [path.suffix for path in (tmp_path / "scratch").iterdir()] == [".zip"]
