"""The publications of each minute and their deliveries, updated from step to step until the minute is final.

The state is events and their first deliveries. A step computes only the minutes that it changes: those of new events,
of newly delivered events, and those with changed subscriptions.
"""

from functools import reduce
from typing import TYPE_CHECKING, NamedTuple

from carrycast.analysis.spark import ORDER, spark_schema
from carrycast.analysis.telemetry.arrivals import find_first_change
from carrycast.analysis.telemetry.folder import WatchFolder, read_rows, write_rows
from carrycast.analysis.telemetry.load import WAITING_COLUMNS, is_final, last_final, left_out_table
from carrycast.analysis.telemetry.minutes import KEY, MINUTE_S, deliveries_by_minute, is_usable, minute_column
from carrycast.trace import EVENT_COLUMNS, SUBSCRIPTION_COLUMNS, Kind, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

TABLE_COLUMNS = (
    *(("run", "string"), ("minute_s", "int64")),
    *((name, "int64") for name in ("published", "eligible", "delivered")),
    *((name, "double") for name in ("delivery_ratio", "delay_mean_s", "delay_p50_s", "delay_p95_s", "hops_mean")),
    ("delays_negative", "int64"),
)


_DELIVERED = ("run", "time_s", "node", "kind", "event", "subscription", "hops", "part", "place")
_EVENT_SCHEMA = f"{spark_schema(EVENT_COLUMNS)}, minute_s bigint"
_DELIVERY_SCHEMA = (
    "run string, time_s double, node bigint, kind string, event string, subscription string, hops int, part int, "
    "place bigint"
)


class PublicationStep(NamedTuple):
    """The publications after a step."""

    rows: "pa.Table"
    """A row for each minute that was not final before the step."""
    left_out: "pa.Table"
    waiting: "pa.Table"
    """Deliveries of unknown events: the event has not arrived, or its minute was final."""


class Publications:
    """Updates the publications of a watch in each step."""

    def __init__(self, spark: "SparkSession", folder: WatchFolder) -> None:
        self._spark = spark
        self._folder = folder
        self._wait_s = folder.settings.wait_s

    def evaluate(
        self, step: int, trace: "DataFrame", events: "DataFrame", subscriptions: "pa.Table", watermark_s: float | None
    ) -> PublicationStep:
        """Add new rows. `watermark_s` is the watermark after them; lateness is decided by the one before."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyspark.sql import functions as f

        over_s = last_final(self._folder.commit.watermark_s, self._wait_s)
        late = _find_late_events(events, over_s)
        sound = events.where(is_usable(node="source")).withColumn("minute_s", minute_column())
        new = sound.where(f.col("minute_s") > over_s)
        handed = trace.where((f.col("kind") == Kind.DELIVER.value) & is_usable()).select(*_DELIVERED)
        known = self._read_state("events", _EVENT_SCHEMA).unionByName(new).persist()
        delivered = _select_first(self._read_state("deliveries", _DELIVERY_SCHEMA).unionByName(handed)).persist()
        try:
            modulated = subscriptions["processor"].null_count < subscriptions.num_rows
            touched = self._find_touched(known, new, handed, modulated)
            touched |= self._find_resubscribed(known, subscriptions, over_s)
            rows = self._compute_rows(touched, delivered, known, subscriptions)
            final = is_final(rows["minute_s"], watermark_s, self._wait_s)
            stray, waiting = self._save_state(step, known, delivered, over_s, last_final(watermark_s, self._wait_s))
        finally:
            known.unpersist()
            delivered.unpersist()
        state = self._folder.state(step)
        write_rows(state / "judged.parquet", rows.filter(pc.invert(final)))
        write_rows(state / "subscriptions.parquet", subscriptions)
        lost = pa.concat_tables([late, stray], promote_options="default")
        return PublicationStep(rows.append_column("final", final), lost, waiting)

    def _read_state(self, name: str, schema: str) -> "DataFrame":
        path = self._folder.state(self._folder.commit.step) / name
        if not path.exists():
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(str(path.resolve()))

    def _find_touched(
        self, known: "DataFrame", new: "DataFrame", handed: "DataFrame", modulated: bool
    ) -> set[tuple[str, int]]:
        """Find the minutes of new or newly delivered events.

        If subscriptions have processors, also the minutes of the events from which these were derived.
        """
        from pyspark.sql import functions as f

        keys = ["run", "event"]
        met = new.select(*keys).unionByName(handed.select(*keys))
        if modulated:
            made = known.where("derived_from is not null").join(met, keys, "semi")
            met = met.unionByName(made.select("run", f.explode(f.split("derived_from", " ")).alias("event")))
        minutes = known.join(met, keys, "semi").select(*KEY).distinct()
        return {(row["run"], row["minute_s"]) for row in minutes.collect()}

    def _find_resubscribed(self, known: "DataFrame", subscriptions: "pa.Table", over_s: float) -> set[tuple[str, int]]:
        """Find the minutes whose eligible subscribers have changed."""
        from pyspark.sql import functions as f

        path = self._folder.state(self._folder.commit.step) / "subscriptions.parquet"
        before = read_rows(path) if path.exists() else arrow_schema(SUBSCRIPTION_COLUMNS).empty_table()
        changed_s = find_first_change(before, subscriptions, over_s)
        if changed_s is None:
            return set()
        minutes = known.where(f.col("minute_s") + MINUTE_S > changed_s).select(*KEY).distinct()
        return {(row["run"], row["minute_s"]) for row in minutes.collect()}

    def _compute_rows(
        self, touched: set[tuple[str, int]], delivered: "DataFrame", known: "DataFrame", subscriptions: "pa.Table"
    ) -> "pa.Table":
        """The rows of all minutes that were not final: recomputed if touched, else unchanged."""
        import pyarrow as pa

        path = self._folder.state(self._folder.commit.step) / "judged.parquet"
        schema = arrow_schema(TABLE_COLUMNS)
        before = read_rows(path) if path.exists() else schema.empty_table()
        if not touched:
            return before
        minutes = zip(before["run"].to_pylist(), before["minute_s"].to_pylist(), strict=True)
        kept = pa.array([one not in touched for one in minutes], pa.bool_())
        stands = self._spark.createDataFrame(subscriptions)
        fresh = deliveries_by_minute(delivered, known, stands, _is_any_of(touched)).toArrow()
        return pa.concat_tables([before.filter(kept), fresh.cast(schema)], promote_options="default")

    def _save_state(
        self, step: int, known: "DataFrame", delivered: "DataFrame", over_s: float, limit_s: float
    ) -> "tuple[pa.Table, pa.Table]":
        """Write the state for the next step; return the deliveries that are left out and those that wait.

        Minutes that are final now, and their deliveries, leave the state. Deliveries of unknown events are left out if
        their own minute is final, and wait otherwise.
        """
        import pyarrow.compute as pc
        from pyspark.sql import functions as f

        keys = ["run", "event"]
        unknown = delivered.join(known, keys, "anti")
        counted = unknown.groupBy("run", minute_column(), "node").agg(f.count(f.lit(1)).alias("rows")).toArrow()
        waiting = counted.cast(arrow_schema(WAITING_COLUMNS))
        lost = waiting.schema.empty_table()
        # Nothing leaves the state until another minute is final.
        if limit_s // MINUTE_S > over_s // MINUTE_S:
            over = pc.less_equal(waiting["minute_s"], limit_s)
            lost, waiting = waiting.filter(over), waiting.filter(pc.invert(over))
            known = known.where(f.col("minute_s") > limit_s)
            delivered = delivered.join(known, keys, "semi").unionByName(unknown.where(minute_column() > limit_s))
        for name, frame in (("events", known), ("deliveries", delivered)):
            frame.coalesce(1).write.mode("overwrite").parquet(str((self._folder.state(step) / name).resolve()))
        return left_out_table(lost, "event_unknown"), waiting


def _is_any_of(minutes: set[tuple[str, int]]) -> "Column":
    """Whether a row is of one of these minutes. A condition saves the Spark job that a join would take."""
    from pyspark.sql import functions as f

    of_run: dict[str, list[int]] = {}
    for run, minute_s in sorted(minutes):
        of_run.setdefault(run, []).append(minute_s)
    wanted = [(f.col("run") == run) & f.col("minute_s").isin(times) for run, times in of_run.items()]
    return reduce(lambda one, other: one | other, wanted)


def _find_late_events(events: "DataFrame", over_s: float) -> "pa.Table":
    """Find the events whose minute was final when they arrived, and malformed events."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyspark.sql import functions as f

    sound = is_usable(node="source")
    at = f.when(sound, minute_column()).alias("minute_s")
    lost = events.select("run", at, "source").where(f.col("minute_s").isNull() | (f.col("minute_s") <= over_s))
    found = lost.groupBy("run", "minute_s", "source").agg(f.count(f.lit(1))).toArrow()
    no_minute = found["minute_s"].is_null()
    return pa.concat_tables(
        [
            left_out_table(found.filter(no_minute), "malformed"),
            left_out_table(found.filter(pc.invert(no_minute)), "late"),
        ]
    )


def _select_first(deliveries: "DataFrame") -> "DataFrame":
    """Select the first delivery of each event to each subscription, in the order that metrics of runs use."""
    from pyspark.sql import functions as f

    first = f.min(f.struct(*ORDER, "hops")).alias("first")
    kept = deliveries.groupBy("run", "event", "node", "subscription", "kind").agg(first)
    return kept.select("run", "event", "node", "subscription", "kind", "first.*")
