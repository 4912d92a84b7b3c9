"""The stream: Spark finds new files and records the step of each; `Steps` processes them.

It is a stream of file names, not of rows. A file that cannot be read is reported and skipped; a stream of rows would
fail, and fail again at each start. Files are read by the same code as in the batch job.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark import read_parts, spark_schema
from carrycast.analysis.telemetry.arrivals import PARTS, Arrivals, Subscriptions
from carrycast.analysis.telemetry.folder import Commit, WatchFolder, read_rows, write_rows
from carrycast.analysis.telemetry.load import (
    drops_table,
    find_late_rows,
    last_final,
    load_table,
    merge_load,
    select_open,
)
from carrycast.analysis.telemetry.minutes import minute_counts
from carrycast.analysis.telemetry.publications import Publications
from carrycast.errors import UserError, WorkError
from carrycast.trace import EVENT_COLUMNS, TRACE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TABLES = ("deliveries", "load", "drops", "left_out", "waiting", "refused")
"""The tables for readers."""


class Steps:
    """Runs the steps of a watch and stores their results in its folder. A step adds the rows of new files to the state
    of earlier steps.

    The watermark is the latest time of any row minus the permitted lateness. A minute of load is final when the
    watermark has passed it. A minute of publications is final when the watermark has passed it by the time that
    deliveries are awaited. Rows of a final minute are left out and counted.
    """

    def __init__(self, spark: "SparkSession", folder: WatchFolder) -> None:
        self._spark = spark
        self._folder = folder
        self._publications = Publications(spark, folder)
        self._subscriptions = Subscriptions()
        self.behind_s: float | None = None
        """The age of the oldest row of the last step when it was in the tables."""

    def take(self, step: int, paths: Sequence[Path]) -> None:
        """Process the files of a step, unless the step is already committed."""
        import pyarrow as pa

        folder, before = self._folder, self._folder.commit
        if before.step >= step:
            return
        arrived = Arrivals(paths)
        traces = sorted({*before.traces, *arrived.traces()})
        trace, events = self._read_trace(arrived), self._read_events(arrived)
        rows = minute_counts(trace).toArrow()
        watermark_s = self._next_watermark(rows)
        load = self._update_load(step, rows, watermark_s)
        stands = self._subscriptions.read(traces, last_final(before.watermark_s, folder.settings.wait_s))
        published = self._publications.evaluate(step, trace, events, stands, watermark_s)
        lost = pa.concat_tables(
            [find_late_rows(rows, before.watermark_s), published.left_out], promote_options="default"
        )
        refused = [*arrived.refused, *self._subscriptions.refused]
        folder.replace("load", load_table(load, watermark_s))
        folder.replace("drops", drops_table(load, watermark_s))
        folder.replace("deliveries", published.rows)
        folder.add("left_out", step, lost)
        folder.put("waiting", published.waiting)
        folder.add("refused", step, _refused_table(refused))
        folder.commit_step(
            Commit(
                step=step,
                watermark_s=watermark_s,
                files=before.files + arrived.files,
                rows=before.rows + _sum(rows["rows"]),
                left_out=before.left_out + _sum(lost["rows"]),
                waiting=_sum(published.waiting["rows"]),
                refused=before.refused + len(refused),
                traces=traces,
            )
        )
        first_s = min((one for one in rows["first_s"].to_pylist() if one is not None), default=None)
        self.behind_s = None if first_s is None else time.time() - first_s

    def _read_trace(self, arrived: Arrivals) -> "DataFrame":
        """Read the new rows of `trace`, with a column for the level of their trace."""
        from pyspark.sql import functions as f

        schema = f"{spark_schema(TRACE_COLUMNS)}, part int, place bigint, full boolean"
        rows = self._spark.createDataFrame([], schema)
        for paths, full in ((arrived.full, True), (arrived.deliveries, False)):
            if paths:
                rows = rows.unionByName(read_parts(self._spark, "trace", paths).withColumn("full", f.lit(full)))
        return rows

    def _read_events(self, arrived: Arrivals) -> "DataFrame":
        if not arrived.events:
            return self._spark.createDataFrame([], spark_schema(EVENT_COLUMNS))
        return read_parts(self._spark, "events", arrived.events)

    def _next_watermark(self, rows: "pa.Table") -> float | None:
        """The watermark after these rows. A node's fast clock cannot push it beyond the local time."""
        before_s = self._folder.commit.watermark_s
        last_s: float | None = max((one for one in rows["last_s"].to_pylist() if one is not None), default=None)
        if last_s is None:
            return before_s
        reached_s = min(last_s, time.time()) - self._folder.settings.late_s
        return reached_s if before_s is None else max(before_s, reached_s)

    def _update_load(self, step: int, rows: "pa.Table", watermark_s: float | None) -> "pa.Table":
        """Sum frames and drops of every minute that was not final, and write the state of those still open."""
        before = self._folder.commit
        path = self._folder.state(before.step) / "load.parquet"
        found = merge_load(read_rows(path) if path.exists() else None, rows, before.watermark_s)
        write_rows(self._folder.state(step) / "load.parquet", select_open(found, watermark_s))
        return found


def _sum(column: "pa.ChunkedArray") -> int:
    import pyarrow.compute as pc

    return int(pc.sum(column).as_py() or 0)


def _refused_table(files: Sequence[tuple[str, str]]) -> "pa.Table":
    import pyarrow as pa

    schema = pa.schema([("file", pa.string()), ("reason", pa.string())])
    return pa.Table.from_pylist([{"file": file, "reason": reason} for file, reason in files], schema=schema)


FILES_AT_ONCE = 10_000
"""The files of one step, which bounds the memory for a backlog of any length."""
STOP_S = 60.0
"""How long `stop` waits for the current step."""
LOOK_S = 0.2
_SETTINGS = {
    # Each step is a dozen small jobs. Adaptive planning and code generation would cost more than they save.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}
_NAMES = "path string, modificationTime timestamp, length bigint, content binary"
_GLOB = set("*?[]{}\\")


def check_folders(folders: Sequence[Path], out: Path) -> list[str]:
    """Resolve the folders to watch; a UserError for a folder that cannot be watched."""
    found: dict[str, None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: there is no such folder; give where nodes write their traces")
        path = folder.resolve()
        if _GLOB & set(str(path)):
            raise UserError(
                f"{folder}: has one of {' '.join(sorted(_GLOB))} in its path, which Spark takes for a pattern"
            )
        if path == out.resolve() or path in out.resolve().parents:
            raise UserError(f"--out {out}: lies in {folder}, which is watched; give another")
        found[str(path)] = None
    for one in found:
        if any(Path(other) in Path(one).parents for other in found):
            raise UserError(f"{one}: lies in another folder that is watched; name one of them")
    return list(found)


class Watcher:
    """A running watch."""

    def __init__(self, spark: "SparkSession", folder: WatchFolder) -> None:
        self.folder = folder
        # A session of its own, so that its settings do not affect other users of Spark in this process.
        self._spark = spark.newSession()
        for key, value in _SETTINGS.items():
            self._spark.conf.set(key, value)
        self._steps = Steps(self._spark, self.folder)
        self._busy = threading.Lock()
        self._error: BaseException | None = None
        self._query: StreamingQuery | None = None
        self._seen = folder.commit.step
        """The last step that `run` has reported."""

    @property
    def commit(self) -> Commit:
        """The progress of the watch."""
        return self.folder.commit

    @property
    def behind_s(self) -> float | None:
        """The age of the oldest row of the last step when it was in the tables."""
        return self._steps.behind_s

    def start(self, every_s: float, once: bool) -> None:
        """Start, or continue where an earlier watch of this folder stopped."""
        # A step may end before `run` is called.
        self._seen = self.commit.step
        frames = [self._stream_names(folder) for folder in self.folder.settings.folders]
        names = frames[0]
        for frame in frames[1:]:
            names = names.unionByName(frame)
        writer = names.writeStream.foreachBatch(self._on_batch).option(
            "checkpointLocation", str(self.folder.checkpoint)
        )
        self._query = (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime=f"{every_s:g} seconds")
        ).start()

    def run(self, ended: threading.Event, look: Callable[[], None]) -> None:
        """Run until `ended` is set or all files are processed; call `look` after each step."""
        query = self._query
        assert query is not None, "it was started"
        going = True
        while going:
            going = not ended.wait(LOOK_S) and query.isActive
            if not going:
                self.stop()
            if self.commit.step != self._seen:
                self._seen = self.commit.step
                look()

    def stop(self) -> None:
        """Stop between two steps; raise the error if the watch has failed."""
        query, self._query = self._query, None
        if query is None:
            return
        held = self._busy.acquire(timeout=STOP_S)
        query.stop()
        if held:
            self._busy.release()
        if isinstance(self._error, UserError | WorkError):
            raise self._error
        failed = query.exception()
        if failed is not None:
            first = next(line for line in str(self._error or failed).splitlines() if line.strip())
            raise WorkError(
                f"the watch failed: {first.strip()}; its tables are whole: the same command goes on from there, with "
                "another --out it begins again"
            )

    def _stream_names(self, folder: str) -> "DataFrame":
        reader = self._spark.readStream.format("binaryFile").schema(_NAMES)
        for key, value in {
            "recursiveFileLookup": "true",
            "pathGlobFilter": PARTS,
            "maxFilesPerTrigger": str(FILES_AT_ONCE),
            # By default, Spark ignores files more than a week older than the newest.
            "maxFileAge": "36500d",
        }.items():
            reader = reader.option(key, value)
        # Only the path is selected, so Spark does not read the contents.
        return reader.load(folder).select("path")

    def _on_batch(self, names: "DataFrame", step: int) -> None:
        with self._busy:
            try:
                paths = [Path(row["path"].removeprefix("file:")) for row in names.collect()]
                if step > self.commit.step + 1:
                    raise WorkError(
                        f"{self.folder.out}: its checkpoint is at step {step}, its tables at {self.commit.step}; they "
                        "do not belong together: give --out another folder"
                    )
                self._steps.take(step, paths)
            except BaseException as error:
                self._error = error
                raise
