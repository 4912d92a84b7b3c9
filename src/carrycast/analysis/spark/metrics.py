"""Means with 95 % intervals per sweep point, and paired differences between points, as Spark jobs over rows of runs.

A metric that does not exist in a run, such as a delay when nothing arrived, is left out of the mean and counted as
missing, and so are runs that failed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from carrycast.analysis.spark.records import METRICS, MORE, metric_bounds
from carrycast.analysis.spark.statistics import confidence_interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POINT = ["experiment", "point"]


def summary(runs: "DataFrame", metrics: Sequence[str] = METRICS) -> "DataFrame":
    """A row per experiment, point and metric: n, missing, mean, low, high."""
    return _with_interval(_long(runs, [*POINT, "seed"], metrics), [*POINT, "metric"], "value", difference=False)


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
    return _with_interval(joined, [*POINT, "reference", "metric"], "difference", difference=True)


def _long(runs: "DataFrame", ids: list[str], metrics: Sequence[str]) -> "DataFrame":
    """One row per run and metric."""
    from pyspark.sql import functions as f

    def column(metric: str) -> "Column":
        return f.col(metric) if metric in METRICS else f.get_json_object(MORE, f"$.{metric}")

    values = [column(metric).cast("double").alias(metric) for metric in metrics]
    wide = runs.select(*ids, *values)
    return wide.unpivot(tuple(ids), tuple(metrics), "metric", "value")


def _with_interval(rows: "DataFrame", keys: list[str], column: str, difference: bool) -> "DataFrame":
    """For each group its mean and interval. Lists leave out what does not exist; their order plays no part in a sum."""
    from pyspark.sql import functions as f

    def found_of(values: list[float], metric: str) -> tuple[float | None, ...]:
        # Spark takes a plain tuple for a row.
        found = confidence_interval(values, metric_bounds(metric, difference))
        return found.n, found.mean, found.low, found.high

    of = f.udf(found_of, "n bigint, mean double, low double, high double", useArrow=False)
    grouped = rows.groupBy(*keys).agg(f.collect_list(column).alias("values"), f.count(f.lit(1)).alias("runs"))
    found = grouped.withColumn("found", of("values", "metric"))
    missing = (f.col("runs") - f.col("found.n")).alias("missing")
    return found.select(*keys, "found.n", missing, "found.mean", "found.low", "found.high")
