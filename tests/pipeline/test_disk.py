"""A disk that fills up: one line that says where, nothing half-written that looks whole, nothing finished lost."""

import os
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
from carrycast.analysis.spark.output import write_atomically
from carrycast.analysis.spark.sweep import run_sweep
from carrycast.errors import WorkError
from carrycast.sim.engine.simulation import RunResult, run
from carrycast.sim.scenario.scenario import Scenario
from carrycast.trace import Level
from tests.pipeline.scenarios import tiny_experiment

NO_ROOM = "cannot be written: No space left on device; make room and start it again: what is done is kept"

# A limit on the size of files fails as a full disk does, and needs no disk of its own.
LIMITED = """
import resource, signal, sys
from pathlib import Path
import msgspec
import pyarrow as pa
from carrycast.errors import WorkError
from carrycast.analysis.spark.journal import RunLog
from carrycast.analysis.spark.plan import plan_runs
from carrycast.analysis.spark.records import record_table
from carrycast.analysis.spark.sweep import make_worker, write_runs
from carrycast.sim.engine.simulation import run
from tests.pipeline.scenarios import tiny_experiment

out = Path(sys.argv[1])
rows = [msgspec.structs.asdict(planned) for planned in plan_runs(tiny_experiment(("flooding",), runs=12))]
batches = pa.Table.from_pylist(rows).to_batches()

def tried(work):
    try:
        work()
    except WorkError as error:
        print(error)

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (7000, 7000))
tried(lambda: list(make_worker(str(out), run)(batches)))
kept = RunLog(out / "runs").read_finished()
tried(lambda: write_runs(kept, out))
tried(lambda: RunLog(out / "runs").open())
print(len(kept), sorted(path.name for path in out.iterdir()))
"""


def test_what_is_done_stays_when_a_journal_has_no_room(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)], env=environment, capture_output=True, text=True, check=True
    )
    too_large = NO_ROOM.replace("No space left on device", "File too large")
    journal, runs, folded, kept = done.stdout.splitlines()
    assert journal == f"{tmp_path}/runs: {NO_ROOM}"
    assert runs == f"{tmp_path}/runs.parquet: {too_large}"
    assert folded == f"{tmp_path}/runs/folded.parquet: {too_large}"
    count, _, names = kept.partition(" ")
    assert 3 < int(count) < 12
    assert names == "['runs']"
    assert [path.suffix for path in (tmp_path / "runs").iterdir()] == [".journal"]
    # With room again nothing is done twice.
    assert len(RunLog(tmp_path / "runs").open()) == int(count)


def test_what_was_there_stays_when_its_successor_has_no_room(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_atomically(path, b"before")
    (tmp_path / f".page.html-{os.getpid()}.tmp").symlink_to("/dev/full")
    with pytest.raises(WorkError, match=f"page.html: {NO_ROOM}"):
        write_atomically(path, b"after")
    assert path.read_bytes() == b"before"
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


class Filling:
    """Finds no room for the trace of a seed, as the system says it."""

    def __call__(self, scenario: Scenario, seed: int, trace: Level, trace_directory: Path | None) -> RunResult:
        assert trace_directory is not None
        if seed == 3:
            trace_directory.mkdir(parents=True)
            (trace_directory / "part").write_bytes(b"half")
            with open("/dev/full", "wb") as file:
                file.write(b"another")
        return run(scenario, seed, trace, trace_directory)


def test_a_sweep_without_room_for_a_trace_ends_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    plain = tiny_experiment(("flooding",), runs=3)
    traced = Experiment(msgspec.structs.replace(plain.definition, trace=Level.DELIVERIES), plain.points, plain.seeds)
    with pytest.raises(WorkError) as raised:
        run_sweep([traced], tmp_path, spark, Filling(), partitions=1, quiet=True)
    assert str(raised.value) == f"the sweep failed: {tmp_path}: {NO_ROOM}"
    assert not (tmp_path / "runs.parquet").exists()
    kept = RunLog(tmp_path / "runs").read_finished()
    assert sorted(kept["seed"].to_pylist()) == [1, 2]
    assert sorted(path.name for path in (tmp_path / "traces").iterdir()) == sorted(kept["key"].to_pylist())
    again = run_sweep([traced], tmp_path, spark, partitions=1, quiet=True)
    assert [record["error"] for record in again] == [None] * 3
    assert isinstance(pq.read_table(tmp_path / "runs.parquet"), pa.Table)
