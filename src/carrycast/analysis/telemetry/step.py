"""One step of a watch: the rows of the files that are new, put together with what earlier steps left.

The watermark is the latest time that any row has, less the time that rows may be late. A minute is final when the
watermark has passed it, one of publications when the watermark has passed it by the time that its deliveries are
waited for. Rows that come for a minute that is final are left out, and counted as such.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark import read_parts, spark_schema
from carrycast.analysis.telemetry.arrivals import Arrivals, Subscriptions
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
from carrycast.trace import EVENT_COLUMNS, TRACE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

TABLES = ("deliveries", "load", "drops", "left_out", "waiting", "refused")
"""What a watch keeps for everybody."""


class Steps:
    """Takes steps, one after the other, and keeps what each one found in a folder."""

    def __init__(self, spark: "SparkSession", folder: WatchFolder) -> None:
        self._spark = spark
        self._folder = folder
        self._publications = Publications(spark, folder)
        self._subscriptions = Subscriptions()
        self.behind_s: float | None = None
        """How long ago the first row of the last step had happened, when that was in the tables."""

    def take(self, step: int, paths: Sequence[Path]) -> None:
        """Take the files of a step into account, once."""
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
        judged = self._publications.evaluate(step, trace, events, stands, watermark_s)
        lost = pa.concat_tables([find_late_rows(rows, before.watermark_s), judged.left_out], promote_options="default")
        refused = [*arrived.refused, *self._subscriptions.refused]
        folder.replace("load", load_table(load, watermark_s))
        folder.replace("drops", drops_table(load, watermark_s))
        folder.replace("deliveries", judged.rows)
        folder.add("left_out", step, lost)
        folder.put("waiting", judged.waiting)
        folder.add("refused", step, _refused_table(refused))
        folder.commit_step(
            Commit(
                step=step,
                watermark_s=watermark_s,
                files=before.files + arrived.files,
                rows=before.rows + _sum(rows["rows"]),
                left_out=before.left_out + _sum(lost["rows"]),
                waiting=_sum(judged.waiting["rows"]),
                refused=before.refused + len(refused),
                traces=traces,
            )
        )
        first_s = min((one for one in rows["first_s"].to_pylist() if one is not None), default=None)
        self.behind_s = None if first_s is None else time.time() - first_s

    def _read_trace(self, arrived: Arrivals) -> "DataFrame":
        """The new rows of `trace`, and whether their traces tell of frames."""
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
        """A clock that is ahead of everybody's does not push it: it never passes the time here."""
        before_s = self._folder.commit.watermark_s
        last_s: float | None = max((one for one in rows["last_s"].to_pylist() if one is not None), default=None)
        if last_s is None:
            return before_s
        reached_s = min(last_s, time.time()) - self._folder.settings.late_s
        return reached_s if before_s is None else max(before_s, reached_s)

    def _update_load(self, step: int, rows: "pa.Table", watermark_s: float | None) -> "pa.Table":
        """Frames and drops of every minute that was not final, and the state of those that are not yet."""
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
