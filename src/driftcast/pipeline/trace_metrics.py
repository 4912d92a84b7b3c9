"""The metrics of runs, computed from their traces: whatever world wrote them, they are judged by the same rules.

A full trace of a simulated run gives exactly the metrics that the run counted itself; docs/metrics.md has the rules.
"""

import math
from pathlib import Path
from typing import TYPE_CHECKING

from driftcast.pipeline.records import METRICS, REAL_METRICS
from driftcast.simulation.witness.airtime import BROADCAST_US, BYTE_US, OVERHEAD_BYTES, RATE_MBPS, UNICAST_US
from driftcast.simulation.witness.meter import quantile
from driftcast.trace.eligible import eligible
from driftcast.trace.schema import EVENT_COLUMNS, SUBSCRIPTION_COLUMNS, TRACE_COLUMNS, Kind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

OF_DELIVERIES = METRICS[: METRICS.index("transmissions")]
"""What a trace tells that keeps deliveries alone."""

ORDER = ("time_s", "file", "place")
"""Rows of one node stand in a file in the order in which they happened; equal times are told apart by it."""

_SPARK_TYPES = {"string": "string", "double": "double", "int64": "bigint", "int32": "int", "bool": "boolean"}


def read_tables(spark: "SparkSession", folders: list[Path]) -> tuple["DataFrame", "DataFrame", "DataFrame"]:
    """The tables `trace`, `events` and `subscriptions` of traces; `trace` with its rows' places."""
    from pyspark.sql import functions as f

    def table(name: str, columns: tuple[tuple[str, str], ...]) -> "DataFrame":
        schema = ", ".join(f"`{column}` {_SPARK_TYPES[kind]}" for column, kind in columns)
        return spark.read.schema(schema).parquet(*(str(folder / name) for folder in folders))

    trace = table("trace", TRACE_COLUMNS).select(
        "*", f.col("_metadata.file_path").alias("file"), f.col("_metadata.row_index").alias("place")
    )
    return trace, table("events", EVENT_COLUMNS), table("subscriptions", SUBSCRIPTION_COLUMNS)


def trace_metrics(trace: "DataFrame", events: "DataFrame", subscriptions: "DataFrame") -> "DataFrame":
    """A row per run with every metric. A trace that keeps deliveries alone has no metrics of frames or buffers."""
    from pyspark.sql import functions as f

    runs = events.select("run").union(trace.select("run")).distinct()
    counted = events.where("counted").groupBy("run").agg(f.count(f.lit(1)).alias("published"))
    pairs = eligible_pairs(events, subscriptions)
    eligible = pairs.groupBy("run").agg(f.count(f.lit(1)).alias("eligible"))
    found = runs
    for part in (
        counted,
        eligible,
        _delivered(served_pairs(trace, pairs, events, subscriptions)),
        _frames(trace, events),
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
    counted = events.where("counted")
    schema = "run string, event string, node bigint, published_s double, through string"
    return counted.groupBy("run").cogroup(subscriptions.groupBy("run")).applyInArrow(_match, schema)


def served_pairs(
    trace: "DataFrame", pairs: "DataFrame", events: "DataFrame", subscriptions: "DataFrame"
) -> "DataFrame":
    """The eligible pairs that were served: run, event, node, delay_s and hops of the first delivery."""
    from pyspark.sql import functions as f

    modulated = f.broadcast(
        subscriptions.where("processor is not null").select("run", "subscription", f.lit(True).alias("modulated"))
    )
    delivered = trace.where(f.col("kind") == Kind.DELIVER.value).join(modulated, ["run", "subscription"], "left")
    first = f.min(f.struct(*ORDER, "hops")).alias("first")
    plain = delivered.where("modulated is null").groupBy("run", "event", "node").agg(first)
    # What a processor made serves the pairs of what it was made of.
    inputs = events.where("derived_from is not null").select(
        "run", "event", f.explode(f.split("derived_from", " ")).alias("input")
    )
    through = (
        delivered.where("modulated")
        .join(inputs, ["run", "event"])
        .groupBy("run", f.col("input").alias("event"), f.col("subscription").alias("through"))
        .agg(first)
    )
    served = pairs.where("through is null").drop("through").join(plain, ["run", "event", "node"])
    also = pairs.join(through, ["run", "event", "through"]).drop("through")
    # Times are whole microseconds, so the difference is too; only its last bits are noise.
    delay_s = f.round(f.col("first.time_s") - f.col("published_s"), 6)
    return served.unionByName(also).select(
        "run", "event", "node", delay_s.alias("delay_s"), f.col("first.hops").alias("hops")
    )


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
    return served.groupBy("run").applyInArrow(_delays, schema)


def _delays(served: "pa.Table") -> "pa.Table":
    """The delays of one run, by the meter's own arithmetic, so that not even the last bit differs."""
    import pyarrow as pa

    delays_s = sorted(served["delay_s"].to_pylist())
    n = len(delays_s)
    row = {
        "run": served["run"][0].as_py(),
        "delivered": n,
        "delay_mean_s": math.fsum(delays_s) / n,
        "delay_p50_s": quantile(delays_s, 0.5),
        "delay_p95_s": quantile(delays_s, 0.95),
        "hops_mean": sum(served["hops"].to_pylist()) / n,
    }
    return pa.Table.from_pylist([row])


def _frames(trace: "DataFrame", events: "DataFrame") -> "DataFrame":
    """Everything counted in frames and bytes."""
    from pyspark.sql import functions as f

    kind, traffic, sized = f.col("kind"), f.col("class"), f.col("size_bytes")
    sent, received = kind.isin(Kind.SEND.value, Kind.RETRY.value), kind == Kind.RECEIVE.value
    frames = trace.where(sent | received).join(
        f.broadcast(events.select("run", "event", "source", "counted")), ["run", "event"], "left"
    )
    work = traffic != "discovery"
    carries = f.col("source").isNotNull()
    meets = f.when(received & carries & (f.col("node") != f.col("source")), f.struct("event", "node"))
    return frames.groupBy("run").agg(
        f.count_if(sent & work).alias("transmissions"),
        f.count_if(sent & (traffic == "control")).alias("control_transmissions"),
        f.count_if(received & work).alias("receptions"),
        f.count_if((kind == Kind.SEND.value) & f.col("counted")).alias("forwards"),
        (f.count_if(received & carries) - f.count_distinct(meets)).alias("duplicates"),
        *(
            f.sum(f.when(sent & (traffic == name), sized).otherwise(0)).alias(f"{name}_bytes")
            for name in ("data", "control", "discovery")
        ),
        f.sum(f.when(sent, sized).otherwise(0)).alias("total_bytes"),
        f.sum(f.when(sent, _airtime_us(sized, f.col("peer").isNotNull())).otherwise(0)).alias("airtime_us"),
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
    lives = Window.partitionBy("run", "node").orderBy(*ORDER)
    within = Window.partitionBy("run", "node", "life").orderBy(*ORDER)
    stored = (
        trace.where(relevant)
        .withColumn("life", f.sum(f.when(anew, 1).otherwise(0)).over(lives))
        .withColumn("stored", f.sum(change).over(within))
    )
    return stored.groupBy("run").agg(f.greatest(f.max("stored"), f.lit(0)).alias("buffer_peak"))
