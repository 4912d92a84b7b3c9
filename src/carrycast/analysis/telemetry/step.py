"""One step of a watch: adds the rows of new files to the state of earlier steps.

The watermark is the latest time of any row minus the permitted lateness. A minute of load is final when the watermark
has passed it. A minute of publications is final when the watermark has passed it by the time that deliveries are
awaited. Rows of a final minute are left out and counted.
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
"""The tables for readers."""


class Steps:
    """Runs the steps of a watch and stores their results in its folder."""

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
