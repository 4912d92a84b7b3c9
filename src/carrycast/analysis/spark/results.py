"""The results of an experiment for claims and figures: metrics by seed, means, differences, and served pairs."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carrycast.analysis.spark.definition import Selector
from carrycast.analysis.spark.experiment import Experiment, Point
from carrycast.analysis.spark.output import TRACES_FOLDER
from carrycast.analysis.spark.records import Record, metric_bounds, metric_value, series_value
from carrycast.analysis.spark.spark_session import LazySession
from carrycast.analysis.spark.statistics import SHARE, Interval, average, confidence_interval, paired_differences
from carrycast.analysis.spark.trace_metrics import served_pairs
from carrycast.analysis.spark.trace_tables import read_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass
class Results:
    """The records of an experiment's runs."""

    experiment: Experiment
    records: Sequence[Record]
    out: Path
    spark: LazySession | None = None
    """Needed only for served pairs, which are computed from traces."""
    _served: "DataFrame | None" = field(default=None, init=False)

    def first(self, runs: int) -> "Results":
        """Return the results of the first seeds of the experiment only."""
        seeds = set(self.experiment.seeds[:runs])
        return replace(self, records=[record for record in self.records if record["seed"] in seeds])

    def has_more(self, runs: int) -> bool:
        """Whether there are runs of other seeds than the first ones."""
        seeds = set(self.experiment.seeds[:runs])
        return any(
            record["seed"] not in seeds for record in self.records if record["experiment"] == self.experiment.name
        )

    def points(self, selector: Selector) -> list[Point]:
        """Return the points of a selection."""
        return [point for point in self.experiment.points if point.matches(selector)]

    def by_seed(self, point: Point, metric: str) -> dict[int, float | None]:
        """Return the value of a metric at every seed of a point."""
        found: dict[int, float | None] = {}
        for record in self.records:
            if record["experiment"] == self.experiment.name and record["point"] == point.name:
                seed = record["seed"]
                assert isinstance(seed, int)
                found[seed] = metric_value(record, metric)
        return found

    def select(self, selector: Selector, metric: str) -> dict[int, float | None]:
        """Return, by seed, the mean of a metric over the points of a selection."""
        return average([self.by_seed(point, metric) for point in self.points(selector)])

    def timeline(self, selector: Selector, metric: str) -> list[tuple[float, Interval]]:
        """Return a sampled metric over time: at each time, the mean over seeds of the means over the selected
        points."""
        points = {point.name for point in self.points(selector)}
        found: dict[float, dict[int, list[float]]] = {}
        for record in self.records:
            seed = record["seed"]
            assert isinstance(seed, int)
            if record["experiment"] == self.experiment.name and record["point"] in points:
                for time_s, value in series_value(record, metric):
                    if value is not None:
                        found.setdefault(time_s, {}).setdefault(seed, []).append(value)
        return [
            (
                time_s,
                confidence_interval((sum(values) / len(values) for values in by_seed.values()), metric_bounds(metric)),
            )
            for time_s, by_seed in sorted(found.items())
        ]

    def mean(self, selector: Selector, metric: str, exact: bool = False) -> Interval:
        """Return the mean of a metric over the seeds of a selection."""
        return confidence_interval(self.select(selector, metric).values(), metric_bounds(metric), exact)

    def difference(self, left: Selector, right: Selector, metric: str, exact: bool = False) -> Interval:
        """Return the mean of left - right, paired by seed."""
        found = paired_differences(self.select(left, metric), self.select(right, metric))
        return confidence_interval(found, metric_bounds(metric, difference=True), exact)

    def served_pairs(self) -> "DataFrame | None":
        """Return every served pair: point, seed, event, node, delay_s, hops. None if there are no traces."""
        finished = [
            record
            for record in self.records
            if record["experiment"] == self.experiment.name and record["error"] is None
        ]
        folders = [self.out / TRACES_FOLDER / str(record["key"]) for record in finished]
        if self.spark is None or not folders or not all(folder.is_dir() for folder in folders):
            return None
        if self._served is None:
            pairs = served_pairs(*read_tables(self.spark(), folders)).drop("published_s")
            runs = [(record["run"], record["point"], record["seed"]) for record in finished]
            named = self.spark().createDataFrame(runs, "run string, point string, seed bigint")
            # Several figures and claims use the pairs; the traces are read once.
            self._served = pairs.join(named, "run").drop("run").persist()
        return self._served


class CommonPairs(NamedTuple):
    """A comparison of two selections over the pairs that both served."""

    pairs: int
    largest_s: float | None
    """The largest delay of the left minus that of the right."""


def common_pairs(results: Results, left: Selector, right: Selector) -> CommonPairs | None:
    """Compare the delays of two selections pair by pair, at equal seeds; None if there are no traces."""
    from pyspark.sql import functions as f

    served = results.served_pairs()
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
    """Return times in even steps of their logarithm. A millisecond is shorter than a hop on any radio."""
    decades = math.log10(max(longest_s, 10 * shortest_s) / shortest_s)
    count = math.ceil(decades * steps_per_decade)
    return [shortest_s * 10 ** (step / steps_per_decade) for step in range(count + 1)]


def served_share_over_time(results: Results, times_s: Sequence[float]) -> dict[str, list[Interval]] | None:
    """Return, for each point, the share of eligible pairs served within each time, over its seeds."""
    from pyspark.sql import functions as f

    served = results.served_pairs()
    if served is None:
        return None
    grid = f.array(*(f.lit(time_s) for time_s in times_s))
    # A delay equal to a time of the grid may differ from it in the last bits: half a microsecond is tolerated.
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
        point: [confidence_interval((run[place] for run in runs), SHARE) for place in range(len(times_s))]
        for point, runs in shares.items()
    }
