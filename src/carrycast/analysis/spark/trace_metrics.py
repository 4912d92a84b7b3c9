"""The metrics of runs, computed from their traces: whatever world wrote them, they are judged by the same rules.

A full trace of a simulated run gives exactly the metrics that the run counted itself; docs/metrics.md has the rules.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.cluster.executors import check_shared_paths
from carrycast.analysis.spark.records import METRICS, REAL_METRICS
from carrycast.trace.eligible import eligible
from carrycast.trace.files import TABLES
from carrycast.trace.folds.fold import quantile
from carrycast.trace.folds.traffic import BROADCAST_US, BYTE_US, OVERHEAD_BYTES, RATE_MBPS, UNICAST_US
from carrycast.trace.schema import Kind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

    from carrycast.sim.mobility.trajectory import Floats

OF_DELIVERIES = METRICS[: METRICS.index("transmissions")]
"""What a trace tells that keeps deliveries alone."""

ORDER = ("time_s", "part", "place")
"""Rows of one node stand in the files of a trace in the order in which they happened; equal times are told apart by it.
Numbers all: a file by its number, since a path in every row costs more than the row."""

EVENTS_AT_ONCE = 5000
"""Of one run, that a Python process matches with all its subscriptions: so a large run is spread over all cores, and
none holds all of it."""

_SPARK_TYPES = {"string": "string", "double": "double", "int64": "bigint", "int32": "int", "bool": "boolean"}


def read_tables(spark: "SparkSession", folders: list[Path]) -> tuple["DataFrame", "DataFrame", "DataFrame"]:
    """The tables `trace`, `events` and `subscriptions` of traces; `trace` with its rows' places."""
    trace, events, subscriptions = (
        read_parts(spark, table, [folder / table for folder in folders]) for table in TABLES
    )
    return trace, events, subscriptions


def read_parts(spark: "SparkSession", table: str, paths: Sequence[Path]) -> "DataFrame":
    """A table of traces from its folders, or from single parts of it; `trace` with its rows' places."""
    from pyspark.sql import functions as f

    check_shared_paths(spark, *paths)
    # Spark's own folder is where it was started, which a program may have left since.
    rows = spark.read.schema(spark_schema(TABLES[table])).parquet(*(str(path.resolve()) for path in paths))
    if table != "trace":
        return rows
    part = f.regexp_extract("_metadata.file_name", r"(\d+)", 1).cast("int").alias("part")
    return rows.select("*", part, f.col("_metadata.row_index").alias("place"))


def spark_schema(columns: Sequence[tuple[str, str]]) -> str:
    """The columns of a table of traces, as Spark writes them."""
    return ", ".join(f"`{column}` {_SPARK_TYPES[kind]}" for column, kind in columns)


def trace_metrics(trace: "DataFrame", events: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
    """A row per run with every metric. A trace that keeps deliveries alone has no metrics of frames or buffers."""
    from pyspark.sql import functions as f

    # What every row of a trace goes through names the runs, too.
    frames = _frames(trace)
    runs = events.select("run").union(frames.select("run")).distinct()
    counted = events.where("counted").groupBy("run").agg(f.count(f.lit(1)).alias("published"))
    pairs = eligible_pairs(events, subscriptions)
    eligible = pairs.groupBy("run").agg(f.count(f.lit(1)).alias("eligible"))
    found = runs
    for part in (
        counted,
        eligible,
        _delivered(served_pairs(trace, pairs, events, subscriptions)),
        frames,
        _copies(trace, events),
        _buffers(trace),
    ):
        found = found.join(part, "run", "left")
    counts = [metric for metric in METRICS if metric not in REAL_METRICS]
    found = found.fillna(0, counts)
    ratio = f.when(f.col("eligible") > 0, f.col("delivered") / f.col("eligible"))
    return found.withColumn("delivery_ratio", ratio).select("run", *METRICS)


def eligible_pairs(events: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
    """Who should get which counted event: run, event, node, published_s, and the subscription if it is to get what its
    processor makes of it. Filters decide, as they do in a node."""
    from pyspark.sql import functions as f

    counted = events.where("counted")
    slices = counted.groupBy("run").agg(f.ceil(f.count(f.lit(1)) / EVENTS_AT_ONCE).cast("int").alias("slices"))
    dealt = counted.join(slices, "run").withColumn("slice", f.pmod(f.hash("event"), "slices")).drop("slices")
    asked = (
        subscriptions.join(slices, "run")
        .withColumn("slice", f.explode(f.sequence(f.lit(0), f.col("slices") - 1)))
        .drop("slices")
    )
    schema = "run string, event string, node bigint, published_s double, through string"
    return dealt.groupBy("run", "slice").cogroup(asked.groupBy("run", "slice")).applyInArrow(_match, schema)


def served_pairs(
    trace: "DataFrame", pairs: "DataFrame", events: "DataFrame", subscriptions: "DataFrame"
) -> "DataFrame":
    """The eligible pairs that were served: run, event, node, delay_s and hops of the first delivery."""
    from pyspark.sql import functions as f

    delivered = trace.where(f.col("kind") == Kind.DELIVER.value)
    first = f.min(f.struct(*ORDER, "hops")).alias("first")
    modulated = subscriptions.where("processor is not null").select("run", "subscription")
    if modulated.isEmpty():
        # So it is nearly always, and then the deliveries are read once and joined with nothing.
        plain = delivered.groupBy("run", "event", "node").agg(first)
        return _delayed(pairs.drop("through").join(plain, ["run", "event", "node"]))
    plain = delivered.join(modulated, ["run", "subscription"], "anti").groupBy("run", "event", "node").agg(first)
    # What a processor made serves the pairs of what it was made of.
    inputs = events.where("derived_from is not null").select(
        "run", "event", f.explode(f.split("derived_from", " ")).alias("input")
    )
    through = (
        delivered.join(modulated, ["run", "subscription"])
        .join(inputs, ["run", "event"])
        .groupBy("run", f.col("input").alias("event"), f.col("subscription").alias("through"))
        .agg(first)
    )
    served = pairs.where("through is null").drop("through").join(plain, ["run", "event", "node"])
    also = pairs.join(through, ["run", "event", "through"]).drop("through")
    return _delayed(served.unionByName(also))


def _delayed(served: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    # Times are whole microseconds, so the difference is too; only its last bits are noise.
    delay_s = f.round(f.col("first.time_s") - f.col("published_s"), 6)
    return served.select("run", "event", "node", delay_s.alias("delay_s"), f.col("first.hops").alias("hops"))


def _match(events: "pa.Table", subscriptions: "pa.Table") -> "pa.Table":
    """All eligible pairs of one run."""
    import pyarrow as pa

    found = eligible(events.to_pylist(), subscriptions.to_pylist())
    kinds = (pa.string(), pa.string(), pa.int64(), pa.float64(), pa.string())
    columns = tuple(zip(("run", "event", "node", "published_s", "through"), kinds, strict=True))
    return pa.table({name: pa.array([row[place] for row in found], kind) for place, (name, kind) in enumerate(columns)})


def _delivered(served: "DataFrame") -> "DataFrame":
    schema = (
        "run string, delivered bigint, delay_mean_s double, delay_p50_s double, delay_p95_s double, hops_mean double"
    )
    return served.select("run", "delay_s", "hops").groupBy("run").applyInArrow(_delays, schema)


def _delays(served: "pa.Table") -> "pa.Table":
    """The delays of one run."""
    import pyarrow as pa
    import pyarrow.compute as pc

    row = delays(served["delay_s"].to_numpy(), pc.sum(served["hops"]).as_py())
    return pa.Table.from_pylist([{"run": served["run"][0].as_py(), **row}])


def delays(delay_s: "Floats", hops: int) -> dict[str, object]:
    """What the deliveries of a run come to, by the meter's own arithmetic, so that not even the last bit differs."""
    import numpy as np

    ordered: list[float] = np.sort(delay_s).tolist()
    n = len(ordered)
    return {
        "delivered": n,
        "delay_mean_s": math.fsum(ordered) / n,
        "delay_p50_s": quantile(ordered, 0.5),
        "delay_p95_s": quantile(ordered, 0.95),
        "hops_mean": hops / n,
    }


def _frames(trace: "DataFrame") -> "DataFrame":
    """Everything counted in frames and bytes, whatever they carry; a row for each run that has any row."""
    return trace.groupBy("run").agg(*frame_counts())


def frame_counts() -> "list[Column]":
    """What is counted in frames and bytes, over rows of the trace. All of them are sums: of parts, of the whole."""
    from pyspark.sql import functions as f

    kind, traffic, sized = f.col("kind"), f.col("class"), f.col("size_bytes")
    sent, received = kind.isin(Kind.SEND.value, Kind.RETRY.value), kind == Kind.RECEIVE.value
    work = traffic != "discovery"
    return [
        f.count_if(sent & work).alias("transmissions"),
        f.count_if(sent & (traffic == "control")).alias("control_transmissions"),
        f.count_if(received & work).alias("receptions"),
        *(
            f.sum(f.when(sent & (traffic == name), sized).otherwise(0)).alias(f"{name}_bytes")
            for name in ("data", "control", "discovery")
        ),
        f.sum(f.when(sent, sized).otherwise(0)).alias("total_bytes"),
        f.sum(f.when(sent, _airtime_us(sized, f.col("peer").isNotNull())).otherwise(0)).alias("airtime_us"),
    ]


def _copies(trace: "DataFrame", events: "DataFrame") -> "DataFrame":
    """What is counted of frames by the event that they carry. A node's frames of an event are summed up before the
    event is looked up."""
    from pyspark.sql import functions as f

    kind = f.col("kind")
    sent, received = kind == Kind.SEND.value, kind == Kind.RECEIVE.value
    met = (
        trace.where((sent | received) & f.col("event").isNotNull())
        .groupBy("run", "event", "node")
        .agg(f.count_if(sent).alias("sent"), f.count_if(received).alias("received"))
        .join(events.select("run", "event", "source", "counted"), ["run", "event"])
    )
    others = (f.col("received") > 0) & (f.col("node") != f.col("source"))
    return met.groupBy("run").agg(
        f.sum(f.when(f.col("counted"), f.col("sent")).otherwise(0)).alias("forwards"),
        (f.sum("received") - f.count_if(others)).alias("duplicates"),
    )


def _airtime_us(size_bytes: "Column", unicast: "Column") -> "Column":
    """As `witness.airtime` has it."""
    from pyspark.sql import functions as f

    bits = (size_bytes + OVERHEAD_BYTES) * BYTE_US + RATE_MBPS - 1
    return f.when(unicast, f.floor(bits / RATE_MBPS) + UNICAST_US).otherwise(size_bytes * BYTE_US + BROADCAST_US)


def _buffers(trace: "DataFrame") -> "DataFrame":
    """The most copies at one node at one time. A crash empties it; of a live node that is killed a start tells."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    kind = f.col("kind")
    change = f.when(kind == Kind.STORE.value, 1).when(kind == Kind.EVICT.value, -1).otherwise(0)
    anew = kind.isin(Kind.CRASH.value, Kind.START.value)
    # Notes without an event tell of something else than a copy.
    relevant = (kind.isin(Kind.STORE.value, Kind.EVICT.value) & f.col("event").isNotNull()) | anew
    # One order for all: what a life begins with is the sum at its beginning.
    lives = Window.partitionBy("run", "node").orderBy(*ORDER)
    stored = (
        trace.where(relevant)
        .select("run", "node", *ORDER, anew.alias("anew"), change.alias("change"))
        .withColumn("sum", f.sum("change").over(lives))
        .withColumn("before", f.last(f.when(f.col("anew"), f.col("sum")), ignorenulls=True).over(lives))
        .withColumn("stored", f.col("sum") - f.coalesce("before", f.lit(0)))
    )
    return stored.groupBy("run").agg(f.greatest(f.max("stored"), f.lit(0)).alias("buffer_peak"))
