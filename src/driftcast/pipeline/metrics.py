"""Means with 95 % intervals per sweep point, and paired differences between points, as Spark jobs over rows of runs.

A metric that does not exist in a run, such as a delay when nothing arrived, is left out of the mean and counted as
missing, and so are runs that failed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from driftcast.pipeline.records import METRICS, MORE
from driftcast.pipeline.statistics import student_t

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POINT = ["experiment", "point"]


def summary(runs: "DataFrame", metrics: Sequence[str] = METRICS) -> "DataFrame":
    """A row per experiment, point and metric: n, missing, mean, deviation, low, high."""
    long = _long(runs, [*POINT, "seed"], metrics)
    return _with_interval(long.groupBy(*POINT, "metric"), "value")


def paired(runs: "DataFrame", pairs: "DataFrame", metrics: Sequence[str] = METRICS) -> "DataFrame":
    """The differences point - reference over the seeds that both have; `pairs` has experiment, point, reference."""
    from pyspark.sql import functions as f

    long = _long(runs, [*POINT, "seed"], metrics)
    other = long.select("experiment", f.col("point").alias("reference"), "seed", "metric", f.col("value").alias("base"))
    joined = (
        long.join(f.broadcast(pairs), POINT)
        .join(other, ["experiment", "reference", "seed", "metric"])
        .withColumn("difference", f.col("value") - f.col("base"))
    )
    return _with_interval(joined.groupBy(*POINT, "reference", "metric"), "difference")


def _long(runs: "DataFrame", ids: list[str], metrics: Sequence[str]) -> "DataFrame":
    """One row per run and metric."""
    from pyspark.sql import functions as f

    def column(metric: str) -> "Column":
        return f.col(metric) if metric in METRICS else f.get_json_object(MORE, f"$.{metric}")

    values = [column(metric).cast("double").alias(metric) for metric in metrics]
    wide = runs.select(*ids, *values)
    return wide.unpivot(tuple(ids), tuple(metrics), "metric", "value")


def _with_interval(groups: "object", column: str) -> "DataFrame":
    from pyspark.sql import GroupedData
    from pyspark.sql import functions as f

    assert isinstance(groups, GroupedData)
    known = groups.agg(
        f.count(column).alias("n"),
        (f.count(f.lit(1)) - f.count(column)).alias("missing"),
        f.avg(column).alias("mean"),
        # Equal values leave rounding errors behind; their spread is exactly nothing.
        f.when(f.min(column) < f.max(column), f.stddev_samp(column)).otherwise(f.lit(0.0)).alias("spread"),
    )
    deviation = f.when(f.col("n") > 1, f.col("spread"))
    half = _student_t(f.col("n")) * f.col("deviation") / f.sqrt("n")
    return (
        known.withColumn("deviation", deviation)
        .drop("spread")
        .withColumn("low", f.col("mean") - half)
        .withColumn("high", f.col("mean") + half)
    )


def _student_t(count: "Column") -> "Column":
    """The factor for a mean of `count` values; null where there is none."""
    from pyspark.sql import functions as f

    return f.udf(_factor, "double", useArrow=False)(count)


def _factor(count: int) -> float | None:
    return student_t(count - 1) if count > 1 else None
