"""The sweep: Spark maps a DataFrame of planned runs to a DataFrame of their metrics, one simulation per row.

Each row holds its own seed, so any partitioning gives the same result. Finished runs are written at once and skipped by
the next start. A failed run becomes a row with its error. Spark replaces a worker process that crashes; a run that
crashes every worker becomes a row with an error too.
"""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.spark.cluster.remote_executor import run_remotely
from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.journal import RunLog, TaskJournal
from carrycast.analysis.spark.master import count_available_cores, is_local_session
from carrycast.analysis.spark.output import RUNS_FILE, RUNS_FOLDER, atomic_file, lock_folder, report_full_disk
from carrycast.analysis.spark.plan import (
    PlannedRun,
    Simulate,
    execute_once,
    freeze_imports,
    partition_runs,
    plan_runs,
)
from carrycast.analysis.spark.process_pool import run_in_processes
from carrycast.analysis.spark.progress_bar import progress
from carrycast.analysis.spark.records import (
    Record,
    complete_records,
    record_ddl,
    record_schema,
    record_table,
)
from carrycast.analysis.spark.spark_errors import failure_reason
from carrycast.analysis.spark.spark_session import LazySession, as_lazy, scratch_folder
from carrycast.errors import UserError, WorkError
from carrycast.sim.engine import describe_error, run as simulate_run

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# Rows per batch to the driver. A batch of one row costs as much as the shortest run.
BATCH_ROWS = 256


def run_sweep(
    experiments: Sequence[Experiment],
    out: Path,
    spark: "SparkSession | LazySession",
    simulate: Simulate = simulate_run,
    partitions: int | None = None,
    quiet: bool = False,
) -> list[Record]:
    """Execute the missing runs, with a lock on the output folder, and return the records of all runs."""
    with lock_folder(out):
        rows: list[Record] = run_missing(experiments, out, as_lazy(spark), simulate, partitions, quiet).to_pylist()
    return rows


def run_missing(
    experiments: Sequence[Experiment],
    out: Path,
    spark: LazySession,
    simulate: Simulate = simulate_run,
    partitions: int | None = None,
    quiet: bool = False,
) -> "pa.Table":
    """Execute every run that is not finished and write `runs.parquet`; return the experiments' rows, ordered by plan.

    Rows of other experiments stay in `runs.parquet`. Few runs are executed in processes of this machine,
    many on Spark. The caller holds the lock of the folder.
    """
    import pyarrow as pa

    planned = [run for experiment in experiments for run in plan_runs(experiment)]
    log = RunLog(out / RUNS_FOLDER)
    finished = log.open()
    done = set(finished["key"].to_pylist())
    missing = [run for run in planned if run.key not in done]
    if missing:
        title = ", ".join(experiment.name for experiment in experiments)
        with progress(title, len(missing), log.count, quiet):
            if simulate is simulate_run and partitions is None and not spark.is_needed(len(missing)):
                new = run_in_processes(missing, out, count_available_cores())
            else:
                new = _run_on_spark(spark(), missing, out, simulate, partitions)
        finished = pa.concat_tables([finished, new])
    places = {key: place for place, key in enumerate(finished["key"].to_pylist())}
    rows = finished.take([places[run.key] for run in planned])
    write_runs(pa.concat_tables([_read_other_rows(experiments, out, log), rows]), out)
    if missing:
        log.close(finished.filter(finished["error"].is_null()))
    for kept in log.set_aside:
        print(f"carrycast: {kept}: has other columns than this version, or is cut; set aside", file=sys.stderr)
    return rows


def runs_dataframe(spark: "SparkSession", runs: Sequence[PlannedRun], partitions: int | None = None) -> "DataFrame":
    """Return planned runs as a DataFrame with one partition per task."""
    parts = partition_runs(runs, spark.sparkContext.defaultParallelism, not is_local_session(spark))
    if partitions is not None:
        parts = [[run for part in parts[place::partitions] for run in part] for place in range(partitions)]
    rows = [[msgspec.structs.astuple(run) for run in part] for part in parts]
    schema = ", ".join(f"{field} {'bigint' if field == 'seed' else 'string'}" for field in PlannedRun.__struct_fields__)
    # Each slice of the RDD has one element, a list of rows, so that a slice is a task.
    rdd = spark.sparkContext.parallelize(rows, len(rows)).flatMap(_identity)
    return spark.createDataFrame(rdd, schema, verifySchema=False)


def simulate_dataframe(runs: "DataFrame", out: Path, simulate: Simulate = simulate_run) -> "DataFrame":
    """Return the DataFrame that executes planned runs and has the rows of runs.parquet."""
    return runs.mapInArrow(make_worker(str(out), simulate), record_ddl())


def write_runs(rows: "pa.Table", out: Path) -> None:
    """Write `runs.parquet` atomically."""
    import pyarrow.parquet as pq

    with atomic_file(out / RUNS_FILE) as unfinished:
        pq.write_table(rows, unfinished, compression="zstd")


def read_runs(out: Path) -> list[Record]:
    """Read the rows of a `runs.parquet`."""
    rows: list[Record] = read_runs_table(out).to_pylist()
    return rows


def read_runs_table(out: Path) -> "pa.Table":
    """Read a `runs.parquet` as an Arrow table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = out / RUNS_FILE
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file; give a directory that sweep or reproduce wrote") from None
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read: {describe_error(error)}") from None
    records = complete_records(table)
    if records is None:
        raise UserError(f"{path}: does not have the columns of a sweep; run the sweep again")
    return records


def _read_other_rows(experiments: Sequence[Experiment], out: Path, log: RunLog) -> "pa.Table":
    """Return the rows of other experiments in `runs.parquet`. An unreadable file is moved aside."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not (out / RUNS_FILE).exists():
        return record_table([])
    try:
        rows = read_runs_table(out)
    except UserError:
        log.move_aside(out / RUNS_FILE)
        return record_table([])
    mine = pa.array([experiment.name for experiment in experiments])
    return rows.filter(pc.invert(pc.is_in(rows["experiment"], mine)))


def _run_on_spark(
    spark: "SparkSession", runs: Sequence[PlannedRun], out: Path, simulate: Simulate, partitions: int | None
) -> "pa.Table":
    """Execute runs, in this process or on a cluster, and return their rows."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    frame = runs_dataframe(spark, runs, partitions)
    try:
        if not is_local_session(spark):
            return record_table(run_remotely(spark, frame, runs, out, simulate, scratch_folder(spark)))
        rows = simulate_dataframe(frame, out.resolve(), simulate).toArrow()
    except (PySparkException, Py4JError, WorkError) as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        if isinstance(error, WorkError):
            raise error from None
        reason = failure_reason(error)
        hint = "" if "start it again" in reason else "; start it again to go on where it stopped"
        raise WorkError(f"the sweep failed: {reason}{hint}") from None
    return rows.cast(record_schema())


def _is_interrupt(error: BaseException | None) -> bool:
    """Whether the user interrupted the job. Spark then fails too, and its error hides the interrupt."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _identity(rows: Iterable[tuple[object, ...]]) -> Iterable[tuple[object, ...]]:
    return rows


def make_worker(out: str, simulate: Simulate) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    """Return the function for `mapInArrow`: from the planned runs of a partition to their records, also journaled."""

    def work(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is not None:
            freeze_imports()
        folder = Path(out) / RUNS_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        with (
            report_full_disk(folder),
            TaskJournal(folder, context.partitionId() if context is not None else 0) as journal,
        ):
            for batch in batches:
                for first in range(0, batch.num_rows, BATCH_ROWS):
                    rows = batch.slice(first, BATCH_ROWS).to_pylist()
                    runs = msgspec.convert(rows, list[PlannedRun])
                    records = [execute_once(planned, journal, Path(out), simulate) for planned in runs]
                    yield from record_table(records).to_batches()

    return work
