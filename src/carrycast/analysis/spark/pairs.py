"""What happened to single (event, subscriber) pairs, from traces: who was sooner, and how many were served when."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from carrycast.analysis.spark.definition import Selector
from carrycast.analysis.spark.records import metric_value
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.statistics import SHARE, Interval, interval


class CommonPairs(NamedTuple):
    """Two selections over the pairs that both served."""

    pairs: int
    largest_s: float | None
    """The largest delay of the left minus that of the right."""


def common_pairs(results: Results, left: Selector, right: Selector) -> CommonPairs | None:
    """Compare delays pair by pair, seed by seed; None if the traces are gone."""
    from pyspark.sql import functions as f

    served = results.served()
    if served is None:
        return None
    names = [[point.name for point in results.points(selector)] for selector in (left, right)]
    mine = served.where(f.col("point").isin(names[0])).select("seed", "event", "node", "delay_s")
    theirs = served.where(f.col("point").isin(names[1])).select(
        "seed", "event", "node", f.col("delay_s").alias("other")
    )
    row = (
        mine.join(theirs, ["seed", "event", "node"])
        .agg(f.count(f.lit(1)).alias("pairs"), f.max(f.col("delay_s") - f.col("other")).alias("largest"))
        .first()
    )
    assert row is not None
    return CommonPairs(row["pairs"], row["largest"])


def time_grid(longest_s: float, shortest_s: float = 0.001, steps_per_decade: int = 24) -> list[float]:
    """Times in even steps of their logarithm. A millisecond is below any radio's hop."""
    decades = math.log10(max(longest_s, 10 * shortest_s) / shortest_s)
    count = math.ceil(decades * steps_per_decade)
    return [shortest_s * 10 ** (step / steps_per_decade) for step in range(count + 1)]


def served_within(results: Results, times_s: Sequence[float]) -> dict[str, list[Interval]] | None:
    """For each point, the share of eligible pairs served within each time, over its seeds."""
    from pyspark.sql import functions as f

    served = results.served()
    if served is None:
        return None
    grid = f.array(*(f.lit(time_s) for time_s in times_s))
    # Half a microsecond of grace: a time on the grid and a delay of the same length differ in their last bits.
    step = f.size(f.filter(grid, lambda time_s: time_s < f.col("delay_s") - 5e-7))
    counted = served.groupBy("point", "seed", step.alias("step")).count().collect()
    counts: dict[tuple[str, int], dict[int, int]] = {}
    for row in counted:
        counts.setdefault((row["point"], row["seed"]), {})[row["step"]] = row["count"]
    shares: dict[str, list[list[float]]] = {}
    for record in results.records:
        eligible = metric_value(record, "eligible")
        if record["experiment"] != results.experiment.name or not eligible:
            continue
        point, seed = str(record["point"]), record["seed"]
        assert isinstance(seed, int)
        found, total, rising = counts.get((point, seed), {}), 0, []
        for place in range(len(times_s)):
            total += found.get(place, 0)
            rising.append(total / eligible)
        shares.setdefault(point, []).append(rising)
    return {
        point: [interval((run[place] for run in runs), SHARE) for place in range(len(times_s))]
        for point, runs in shares.items()
    }
