"""Execute the runs of a sweep on a cluster whose executors share no folder with the driver.

When a task ends, its executor sends the records and traces of the runs to the driver through a Spark accumulator. The
driver writes them at once, so that they survive a failure of the cluster. After a worker process has crashed, the runs
of its task execute in subprocesses, so that a run that crashes again is recorded as an error.
"""

import multiprocessing
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.spark.cluster.artifacts import send_code, send_files
from carrycast.analysis.spark.cluster.executors import watch_executors
from carrycast.analysis.spark.journal import TaskJournal
from carrycast.analysis.spark.output import RUNS_FOLDER, TRACES_FOLDER, report_full_disk
from carrycast.analysis.spark.plan import (
    MAX_WORKER_CRASHES,
    PlannedRun,
    Simulate,
    execute_run,
    freeze_imports,
    lost_worker_record,
    make_record,
    parse_planned_scenario,
)
from carrycast.analysis.spark.records import Record, json_text, json_value
from carrycast.analysis.spark.spark_errors import failure_reason
from carrycast.core.settings import relocate
from carrycast.errors import WorkError
from carrycast.sim.scenario import input_files
from carrycast.trace import Level

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession


def execute_in_subprocess(planned: PlannedRun, out: Path, simulate: Simulate) -> Record:
    """Execute a run in a subprocess, for runs that may crash the process."""
    for _ in range(MAX_WORKER_CRASHES):
        record = _run_in_child(planned, out, simulate)
        if record is not None:
            return record
    return lost_worker_record(planned)


def _run_in_child(planned: PlannedRun, out: Path, simulate: Simulate) -> Record | None:
    """Return the record of a run executed in a child process; None if the child crashed."""
    # A forked child inherits `simulate`, which need not be pickled.
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    child = context.Process(target=_send_record, args=(theirs, planned, out, simulate))
    child.start()
    theirs.close()
    try:
        received = json_value(ours.recv_bytes())
    except EOFError:
        return None
    finally:
        ours.close()
        child.join()
    if isinstance(received, str):
        raise WorkError(received)
    assert isinstance(received, dict)
    return received


def _send_record(to: "Connection[bytes, bytes]", planned: PlannedRun, out: Path, simulate: Simulate) -> None:
    try:
        outcome: Record | str = execute_run(planned, out, simulate)
    except WorkError as error:
        outcome = str(error)
    to.send_bytes(json_text(outcome).encode())
    to.close()


MOST_TRACE_BYTES = 64 << 20
"""The limit for one run, because the driver holds the traces of several runs in memory at once."""


class WorkerResult(msgspec.Struct, frozen=True, array_like=True):
    """The result of a run: its record as JSON, and the files of its trace by name."""

    record: str
    trace: dict[str, bytes] = {}


class ResultAccumulator:
    """Accumulates results: collects a list in an executor, calls `receive` in the driver. It has the methods of Spark's
    AccumulatorParam but does not derive from it, so that Spark is imported only when it is needed."""

    def __init__(self, receive: Callable[[bytes], None] | None = None) -> None:
        self._receive = receive

    def __reduce__(self) -> tuple[type["ResultAccumulator"], tuple[()]]:
        """Pickle without `receive`, which only the driver has."""
        return ResultAccumulator, ()

    def zero(self, value: list[bytes]) -> list[bytes]:
        """Return the initial value, as Spark requires."""
        return []

    def addInPlace(self, held: list[bytes], more: list[bytes]) -> list[bytes]:  # noqa: N802 - Spark's name for it
        """Add results, as Spark requires."""
        if self._receive is None:
            return held + more
        for result in more:
            self._receive(result)
        return held


class ResultReceiver:
    """Receives results in the driver: writes traces to their folder and records to a journal."""

    def __init__(self, out: Path, journal: TaskJournal, cancel: Callable[[], None]) -> None:
        self._out = out
        self._journal = journal
        self._cancel = cancel
        self._lock = threading.Lock()
        self.records: dict[str, Record] = {}
        """The records received, by key."""
        self.error: Exception | None = None
        """The first error. After it, no more results are accepted."""

    def receive(self, result: bytes) -> None:
        """Store a result, once. Spark only logs errors raised here, so an error is kept and the job is cancelled."""
        with self._lock:
            if self.error is not None:
                return
            try:
                with report_full_disk(self._out):
                    self._keep(msgspec.msgpack.decode(result, type=WorkerResult))
            except Exception as error:
                self.error = error
        if self.error is not None:
            self._cancel()

    def _keep(self, result: WorkerResult) -> None:
        record = json_value(result.record)
        assert isinstance(record, dict)
        key = str(record["key"])
        if key in self.records:
            return
        if result.trace:
            _unpack_trace(result.trace, self._out / TRACES_FOLDER, key)
        self._journal.add(record)
        self.records[key] = record


def run_remotely(
    spark: "SparkSession", frame: "DataFrame", runs: Sequence[PlannedRun], out: Path, simulate: Simulate, scratch: Path
) -> list[Record]:
    """Execute runs on a cluster and return their records; raise a WorkError if some did not reach the driver."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context, master = spark.sparkContext, spark.sparkContext.master
    send_code(spark, scratch)
    places = send_files(spark, scratch, _input_paths(runs))
    with TaskJournal(out / RUNS_FOLDER, 0) as journal:
        receiver = ResultReceiver(out, journal, context.cancelAllJobs)
        results: Accumulator[list[bytes]] = context.accumulator([], ResultAccumulator(receiver.receive))  # type: ignore[arg-type]
        work = make_remote_worker(str(Path.cwd()), places, simulate, results)
        with watch_executors(spark) as gone:
            try:
                sent = frame.mapInArrow(work, "key string").toArrow()["key"].to_pylist()
            except (PySparkException, Py4JError) as error:
                if receiver.error is not None:
                    raise receiver.error from None
                count = f"{len(receiver.records)} of {len(runs)} runs"
                kept = f"{count} are finished and kept in {out}; start it again to go on"
                if gone.is_set():
                    raise WorkError(f"{master}: all its executors are gone; {kept}") from None
                raise WorkError(f"{master}: the sweep failed: {failure_reason(error)}; {kept}") from error
    if receiver.error is not None:
        raise receiver.error
    lost = set(sent) - set(receiver.records)
    if lost:
        raise WorkError(
            f"{master}: {len(lost)} of {len(runs)} runs were done and did not reach the driver; start it again"
        )
    return list(receiver.records.values())


def make_remote_worker(
    working_folder: str, places: Mapping[str, str], simulate: Simulate, results: "Accumulator[list[bytes]]"
) -> Callable[[Iterable["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]:
    """Return the function for `mapInArrow`: from the planned runs of a partition to the keys of those sent."""

    def work(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa
        from pyspark import SparkFiles, TaskContext

        context = TaskContext.get()
        if context is not None:
            freeze_imports()
        again = context is not None and context.attemptNumber() > 0
        relocate(Path(working_folder), {path: SparkFiles.get(name) for path, name in places.items()})
        folder = Path(tempfile.mkdtemp(prefix="carrycast-"))
        try:
            for batch in batches:
                for planned in msgspec.convert(batch.to_pylist(), list[PlannedRun]):
                    # The previous attempt ended with a crash, which a run may have caused.
                    record = (execute_in_subprocess if again else execute_run)(planned, folder, simulate)
                    results.add([_pack_result(planned, record, folder)])
                    yield pa.record_batch({"key": pa.array([planned.key], pa.string())})
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    return work


def _input_paths(runs: Sequence[PlannedRun]) -> list[Path]:
    """Return the files that the scenarios of some runs name, each once."""
    found: dict[Path, None] = {}
    for text, point in {(run.scenario, run.point): None for run in runs if run.inputs}:
        found |= dict.fromkeys(input_files(parse_planned_scenario(text, point)))
    return list(found)


def _pack_result(planned: PlannedRun, record: Record, folder: Path) -> bytes:
    trace: dict[str, bytes] = {}
    if planned.trace != Level.METRICS and record.get("error") is None:
        kept = folder / TRACES_FOLDER / planned.key
        files = sorted(path for path in kept.rglob("*") if path.is_file())
        size = sum(path.stat().st_size for path in files)
        if size > MOST_TRACE_BYTES:
            text = f"its trace has {size >> 20} MB, and at most {MOST_TRACE_BYTES >> 20} are sent back from a cluster"
            record = make_record(planned, error=f"{text}; keep less of it, or run it without --master")
        else:
            trace = {path.relative_to(kept).as_posix(): path.read_bytes() for path in files}
        shutil.rmtree(kept)
    return msgspec.msgpack.encode(WorkerResult(json_text(record), trace))


def _unpack_trace(trace: Mapping[str, bytes], folder: Path, key: str) -> None:
    """Write a trace to its folder atomically."""
    unfinished, kept = folder / f".{key}.tmp", folder / key
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        for name, content in trace.items():
            parts = PurePosixPath(name).parts
            if os.path.isabs(name) or ".." in parts:
                raise WorkError(f"a worker sent a trace with a file {name!r}, which leads out of its folder")
            path = unfinished.joinpath(*parts)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    shutil.rmtree(kept, ignore_errors=True)
    unfinished.rename(kept)
