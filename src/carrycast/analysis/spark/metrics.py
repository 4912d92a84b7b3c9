"""Means with 95 % intervals per sweep point, and paired differences between points, as Spark jobs over rows of runs.

A metric that does not exist in a run, such as a delay when nothing arrived, is left out of the mean and counted as
missing, and so are runs that failed.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from carrycast.analysis.spark.records import METRICS, MORE, metric_bounds
from carrycast.analysis.spark.statistics import Interval, confidence_interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

POINT = ["experiment", "point"]


class MetricSummary(NamedTuple):
    """A metric of a point over its runs, or its paired difference to the reference of the point."""

    experiment: str
    point: str
    metric: str
    missing: int
    """Runs in which the metric does not exist."""
    interval: Interval


def summarize(runs: "DataFrame", metrics: Sequence[str] = METRICS) -> list[MetricSummary]:
    """The mean of every metric of every point."""
    return _with_intervals(_long(runs, [*POINT, "seed"], metrics), "value", difference=False)


def summarize_differences(
    runs: "DataFrame", pairs: "DataFrame", metrics: Sequence[str] = METRICS
) -> list[MetricSummary]:
    """The differences point - reference over the seeds that both have; `pairs` has experiment, point, reference."""
    from pyspark.sql import functions as f

    long = _long(runs, [*POINT, "seed"], metrics)
    other = long.select("experiment", f.col("point").alias("reference"), "seed", "metric", f.col("value").alias("base"))
    joined = (
        long.join(f.broadcast(pairs), POINT)
        .join(other, ["experiment", "reference", "seed", "metric"])
        .withColumn("difference", f.col("value") - f.col("base"))
    )
    return _with_intervals(joined, "difference", difference=True)


def _long(runs: "DataFrame", ids: list[str], metrics: Sequence[str]) -> "DataFrame":
    """One row per run and metric."""
    from pyspark.sql import functions as f

    def column(metric: str) -> "Column":
        return f.col(metric) if metric in METRICS else f.get_json_object(MORE, f"$.{metric}")

    values = [column(metric).cast("double").alias(metric) for metric in metrics]
    wide = runs.select(*ids, *values)
    return wide.unpivot(tuple(ids), tuple(metrics), "metric", "value")


def _with_intervals(rows: "DataFrame", column: str, difference: bool) -> list[MetricSummary]:
    """The mean and confidence interval of each group. Spark gathers the values; executors need no scipy."""
    from pyspark.sql import functions as f

    # A list leaves out what does not exist; its order does not change a sum.
    grouped = rows.groupBy(*POINT, "metric").agg(
        f.collect_list(column).alias("values"), f.count(f.lit(1)).alias("runs")
    )
    found = []
    for row in grouped.collect():
        interval = confidence_interval(row["values"], metric_bounds(row["metric"], difference))
        missing = row["runs"] - interval.n
        found.append(MetricSummary(row["experiment"], row["point"], row["metric"], missing, interval))
    return found
