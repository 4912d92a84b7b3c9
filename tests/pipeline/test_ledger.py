"""The journals of a sweep's tasks, what is folded of them, and what a worker and a driver make of both."""

import math
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.journal import COMPACTED, FinishedRunCounter, RunLog, TaskJournal
from carrycast.analysis.spark.plan import Simulate, plan_runs
from carrycast.analysis.spark.records import Record, record_table
from carrycast.analysis.spark.reproduction import sweep_experiment
from carrycast.analysis.spark.sweep import make_worker, read_runs
from carrycast.errors import UserError
from carrycast.sim.engine.simulation import run
from tests.pipeline.deaths import Counting
from tests.pipeline.scenarios import tiny_experiment


def record(key: str, **known: object) -> Record:
    return {"experiment": "study", "point": "a / b\nc", "seed": 1, "key": key, "error": None, **known}


def written(folder: Path, task: int, *records: Record, begun: str = "") -> Path:
    folder.mkdir(exist_ok=True)
    before = set(folder.iterdir())
    with TaskJournal(folder, task) as journal:
        for one in records:
            journal.start(str(one["key"]))
            journal.add(one)
        if begun:
            journal.start(begun)
    (path,) = set(folder.iterdir()) - before
    return path


def test_what_a_dead_worker_did_is_done_and_what_it_began_is_counted(tmp_path: Path) -> None:
    written(tmp_path, 3, record("one", delay_mean_s=math.inf), begun="two")
    written(tmp_path, 3, begun="two")
    written(tmp_path, 33, record("other"), begun="two")
    with TaskJournal(tmp_path, 3) as journal:
        assert list(journal.done) == ["one"]
        assert journal.done["one"]["delay_mean_s"] == math.inf
        assert journal.crashes == {"two": 2}


def test_every_number_survives_a_journal(tmp_path: Path) -> None:
    values: list[Record] = [
        record("a", delivery_ratio=0.1 + 0.2, published=2**62, more='{"series": [[1.0, null]]}'),
        record("b", delivery_ratio=None, delay_p50_s=5e-324, delay_mean_s=math.inf),
    ]
    written(tmp_path, 0, *values)
    found = RunLog(tmp_path).open()
    assert found.equals(record_table(values))
    assert pq.read_table(tmp_path / COMPACTED).equals(found)
    assert [path.name for path in tmp_path.iterdir()] == [COMPACTED]


def test_a_line_that_is_cut_costs_one_run_and_a_broken_one_the_file(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    cut = written(runs, 0, record("one"), record("two"))
    cut.write_bytes(cut.read_bytes()[:-1])
    broken = written(runs, 1, record("three"), record("four"))
    broken.write_bytes(broken.read_bytes().replace(b'"key": "three"', b'"key": "thr'))
    ledger = RunLog(runs)
    assert ledger.open()["key"].to_pylist() == ["one"]
    assert [path.read_bytes().count(b"four") for path in ledger.set_aside] == [2]
    with TaskJournal(runs, 1) as journal:
        assert journal.done == {}


def test_a_journal_of_other_columns_is_set_aside(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    other = written(runs, 0, record("one"))
    other.write_bytes(other.read_bytes().replace(b"# carrycast.runs 1 ", b"# carrycast.runs 0 "))
    empty = written(runs, 1)
    empty.write_bytes(b"")
    ledger = RunLog(runs)
    assert len(ledger.open()) == 0
    assert [path.name for path in ledger.set_aside] == [f"{other.stem}-1.journal"]


def test_what_was_done_again_replaces_what_was_folded_and_failures_are_left_out(tmp_path: Path) -> None:
    pq.write_table(record_table([record("one", published=1), record("two", published=1)]), tmp_path / COMPACTED)
    # As versions before journals left them.
    pq.write_table(record_table([record("three", published=1)]), tmp_path / "three.parquet")
    written(tmp_path, 0, record("two", published=2), record("four", error="none of it"))
    found = RunLog(tmp_path).open().select(["key", "published"]).to_pylist()
    assert {row["key"]: row["published"] for row in found} == {"one": 1, "two": 2, "three": 1}
    again = RunLog(tmp_path).open().select(["key", "published"]).to_pylist()
    assert again == found


def test_runs_are_counted_as_their_lines_grow(tmp_path: Path) -> None:
    count = FinishedRunCounter(tmp_path)
    assert count() == 0
    path = written(tmp_path, 0, record("one"), record("two"))
    whole = path.read_bytes()
    for length in range(len(whole) + 1):
        path.write_bytes(whole[:length])
        assert count() == whole[:length].count(b"}\n")
    written(tmp_path, 1, record("three"), begun="four")
    assert count() == 3


def test_an_empty_ledger_has_the_columns_of_a_record(tmp_path: Path) -> None:
    found = RunLog(tmp_path / "runs").open()
    assert isinstance(found, pa.Table)
    assert found.equals(record_table([]))


def worked(experiment: Experiment, out: Path, simulate: Simulate = run) -> list[Record]:
    """What a worker does with all runs of an experiment as one task."""
    rows = [msgspec.structs.asdict(planned) for planned in plan_runs(experiment)]
    batches = pa.Table.from_pylist(rows).to_batches()
    found: list[Record] = pa.Table.from_batches(make_worker(str(out), simulate)(batches)).to_pylist()
    return found


def test_who_takes_over_a_task_does_what_is_left_of_it(tmp_path: Path) -> None:
    experiment = tiny_experiment(("flooding",))
    whole = worked(experiment, tmp_path / "whole")
    written(tmp_path / "runs", 0, whole[0], begun=str(whole[1]["key"]))
    memory = tmp_path / "memory"
    memory.mkdir()
    again = worked(experiment, tmp_path, Counting(memory))
    assert [row["fingerprint"] for row in again] == [row["fingerprint"] for row in whole]
    assert sorted(path.name.split("-")[2] for path in memory.iterdir()) == ["2", "3"]
    assert RunLog(tmp_path / "runs").count() == 3


def test_a_run_that_ended_three_workers_is_not_tried_a_fourth_time(tmp_path: Path) -> None:
    experiment = tiny_experiment(("flooding",))
    key = plan_runs(experiment)[1].key
    for _ in range(3):
        written(tmp_path / "runs", 0, begun=key)
    assert [row["error"] for row in worked(experiment, tmp_path)] == [
        None,
        "the worker died each of the 3 times that this run was tried",
        None,
    ]


def test_where_all_is_done_nothing_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = tiny_experiment(("flooding",))
    rows = worked(experiment, tmp_path)
    monkeypatch.setattr("carrycast.analysis.spark.spark_session.session", forbidden)
    monkeypatch.setattr("carrycast.analysis.spark.sweep.run_in_processes", forbidden)
    told = sweep_experiment(experiment, tmp_path, quiet=True)
    assert [row["seed"] for row in told] == [1, 2, 3]
    assert read_runs(tmp_path) == rows
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [COMPACTED]
    with pytest.raises(UserError, match="is no Spark master"):
        sweep_experiment(experiment, tmp_path, master="nonsense", quiet=True)
    (tmp_path / "runs" / COMPACTED).unlink()
    with pytest.raises(AssertionError, match="runs started"):
        sweep_experiment(experiment, tmp_path, quiet=True)


def forbidden(*_: object) -> None:
    raise AssertionError("runs started")
