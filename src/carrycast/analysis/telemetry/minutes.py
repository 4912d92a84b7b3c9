"""The metrics of a minute, for the stream and for the batch job, computed by the folds of whole runs.

An event and all its deliveries count in the minute of publication. A frame or a drop counts in its own minute.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from carrycast.analysis.spark import eligible_pairs, find_checked_traces, read_tables
from carrycast.analysis.telemetry.picture import Minute, merge_minutes
from carrycast.trace import Kind, SumFold, TraceBatch, TrafficFold, code_of, drop_reason, installed_folds

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

MINUTE_S = 60
LATEST_S = 1e11
"""Three thousand years from now: no clock wrote a later time."""
KEY = ["run", "minute_s"]
FRAMES = TrafficFold.sums
_BY = ("run", "minute_s", "node", "reason", "full")


def compute_minutes(paths: Sequence[Path], deliveries: bool = False, master: str | None = None) -> list[Minute]:
    """Compute each minute of each run: its events and their deliveries, its frames and its drops.

    With `deliveries`, only events and deliveries.
    """
    # Imported here, because workers import this module and need no session.
    from pyspark.sql import functions as f

    from carrycast.analysis.spark import session

    tables = read_tables(session("carrycast", master), find_checked_traces(paths, deliveries))
    published = _collect_rows(deliveries_by_minute(*tables))
    if deliveries:
        return merge_minutes([], published, [])
    counts = minute_counts(tables[0].withColumn("full", f.lit(True))).persist()
    try:
        return merge_minutes(_collect_rows(load_by_minute(counts)), published, _collect_rows(drops_by_minute(counts)))
    finally:
        counts.unpersist()


def _collect_rows(frame: "DataFrame") -> list[Minute]:
    return [row.asDict() for row in frame.collect()]


def sum_folds() -> list[type[SumFold]]:
    """The folds that are summed by the minute: traffic, and those of installed packages."""
    return [TrafficFold, *(fold for fold in installed_folds() if issubclass(fold, SumFold))]


def sum_names() -> list[str]:
    """The names of the sums of `sum_folds`."""
    return [name for fold in sum_folds() for name in fold.sums]


def is_usable(time: str = "time_s", node: str = "node") -> "Column":
    """Whether a row has a run, a node and a valid time. A file may hold anything, such as NaN."""
    from pyspark.sql import functions as f

    return (
        f.col("run").isNotNull() & f.col(node).isNotNull() & f.coalesce(f.col(time).between(0, LATEST_S), f.lit(False))
    )


def minute_column(time: str = "time_s") -> "Column":
    """The start of the minute, in whole seconds on the clock of the trace."""
    from pyspark.sql import functions as f

    return (f.floor(f.col(time) / MINUTE_S) * MINUTE_S).cast("bigint").alias("minute_s")


def minute_counts(trace: "DataFrame") -> "DataFrame":
    """Count the rows of traces by run, minute, node, drop reason and level (`full`).

    The columns are the number of rows, deliveries and drops, the sums of frames, and the first and last time. Rows
    without a valid run, node or time have a null minute.
    """
    from pyspark.sql import functions as f

    counted = ["rows", "delivered", "drops", *sum_names()]
    counts = ", ".join(f"`{name}` bigint" for name in counted)
    by = "run string, minute_s bigint, node bigint, reason string, full boolean"
    schema = f"{by}, first_s double, last_s double, {counts}"
    pieces = trace.mapInArrow(_minute_counter(sum_folds(), counted), schema)
    sums = [f.sum(name).alias(name) for name in counted]
    times = [f.min("first_s").alias("first_s"), f.max("last_s").alias("last_s")]
    return pieces.groupBy(*_BY).agg(*times, *sums)


def _minute_counter(
    folds: Sequence[type[SumFold]], counted: Sequence[str]
) -> "Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]":
    """Make the function that workers run: `minute_counts` of batches."""

    def count(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        import pyarrow as pa

        for rows in batches:
            yield from _minute_sums(pa.Table.from_batches([rows]), folds, counted).to_batches()

    return count


def _minute_sums(table: "pa.Table", folds: Sequence[type[SumFold]], counted: Sequence[str]) -> "pa.Table":
    import pyarrow as pa

    batch = TraceBatch.of(table)
    time_s = table["time_s"].to_numpy()
    dropped, delivered = (batch.kind == code_of(kind) for kind in (Kind.DROP, Kind.DELIVER))
    with np.errstate(invalid="ignore"):
        sound = table["run"].is_valid().to_numpy() & table["node"].is_valid().to_numpy()
        sound &= (time_s >= 0) & (time_s <= LATEST_S)
    minute_s = (np.floor(np.where(sound, time_s, 0) / MINUTE_S) * MINUTE_S).astype(np.int64)
    reasons = {text: drop_reason(text) for text in table["reason"].unique().to_pylist()}
    reason = [
        reasons[text] if is_drop else None
        for text, is_drop in zip(table["reason"].to_pylist(), dropped.tolist(), strict=True)
    ]
    columns = {
        "run": table["run"],
        "minute_s": pa.array(minute_s, mask=~sound),
        "node": table["node"],
        "reason": pa.array(reason, pa.string()),
        "full": table["full"],
        "first_s": pa.array(time_s, mask=~sound),
        "last_s": pa.array(time_s, mask=~sound),
        "rows": pa.array(np.ones(len(time_s), dtype=np.int64)),
        "delivered": pa.array(delivered.astype(np.int64)),
        "drops": pa.array(dropped.astype(np.int64)),
        **{name: pa.array(amount) for fold in folds for name, amount in fold().amounts(batch).items()},
    }
    aggregates = [("first_s", "min"), ("last_s", "max"), *((name, "sum") for name in counted)]
    found = pa.table(columns).group_by(list(_BY), use_threads=False).aggregate(aggregates)
    return found.rename_columns([*_BY, "first_s", "last_s", *counted])


def load_by_minute(counts: "DataFrame") -> "DataFrame":
    """Sum `minute_counts` to run, minute_s, number of nodes with rows, frames, bytes and airtime."""
    from pyspark.sql import functions as f

    nodes = f.count_distinct("node").alias("nodes")
    return (
        counts.where("minute_s is not null")
        .groupBy(*KEY)
        .agg(nodes, *(f.sum(name).alias(name) for name in sum_names()))
    )


def drops_by_minute(counts: "DataFrame") -> "DataFrame":
    """Sum `minute_counts` to run, minute_s, reason and drops."""
    from pyspark.sql import functions as f

    dropped = counts.where("minute_s is not null and reason is not null")
    return dropped.groupBy(*KEY, "reason").agg(f.sum("drops").alias("drops"))


def deliveries_by_minute(
    trace: "DataFrame", events: "DataFrame", subscriptions: "DataFrame", wanted: "Column | None" = None
) -> "DataFrame":
    """Compute the deliveries of the events of each minute, by run and minute of publication.

    `wanted` is a condition on run and minute_s that selects minutes. `trace` needs rows of deliveries only.
    """
    from pyspark.sql import functions as f

    known = events.where(is_usable(node="source")).withColumn("minute_s", minute_column())
    if wanted is not None:
        known = known.withColumn("counted", f.col("counted") & wanted)
    published = known.where("counted").groupBy(*KEY).agg(f.count(f.lit(1)).alias("published"))
    pairs = eligible_pairs(trace, known, subscriptions).withColumn("minute_s", minute_column("published_s"))
    found = published.join(_summarize_delays(pairs), KEY, "left").fillna(0, ["eligible", *_COUNTS])
    ratio = f.when(f.col("eligible") > 0, f.col("delivered") / f.col("eligible")).alias("delivery_ratio")
    return found.select(*KEY, "published", "eligible", "delivered", ratio, *_AMOUNTS, "delays_negative")


_COUNTS = ["delivered", "delays_negative"]
_AMOUNTS = ["delay_mean_s", "delay_p50_s", "delay_p95_s", "hops_mean"]


def _summarize_delays(pairs: "DataFrame") -> "DataFrame":
    """Summarize delays as integer microseconds, so that the sum does not depend on the order."""
    from pyspark.sql import functions as f

    delay_us = f.round(f.col("delay_s") * 1e6).cast("bigint").alias("delay_us")
    n = f.count("delay_us")
    shares = f.percentile("delay_us", f.array(f.lit(0.5), f.lit(0.95)))
    return (
        pairs.select(*KEY, delay_us, "hops")
        .groupBy(*KEY)
        .agg(
            f.count(f.lit(1)).alias("eligible"),
            n.alias("delivered"),
            (f.try_divide(f.sum("delay_us"), n) / 1e6).alias("delay_mean_s"),
            (shares[0] / 1e6).alias("delay_p50_s"),
            (shares[1] / 1e6).alias("delay_p95_s"),
            f.try_divide(f.sum("hops"), n).alias("hops_mean"),
            f.count_if(f.col("delay_us") < 0).alias("delays_negative"),
        )
    )
