"""The runs of an experiment, as claims and figures ask for them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.definition import Selector
from carrycast.analysis.spark.experiment import Experiment, Point
from carrycast.analysis.spark.records import Record, bounds_of, metric_value, series_value
from carrycast.analysis.spark.statistics import Interval, average, interval, paired_differences
from carrycast.analysis.spark.trace_metrics import eligible_pairs, read_tables, served_pairs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACES_FOLDER = "traces"


@dataclass
class Results:
    """Rows of runs with the experiment that they belong to."""

    experiment: Experiment
    records: Sequence[Record]
    out: Path
    spark: "SparkSession | None" = None
    """For what is told by traces alone."""
    _served: "DataFrame | None" = field(default=None, init=False)

    def points(self, selector: Selector) -> list[Point]:
        """The points of a selection."""
        return [point for point in self.experiment.points if point.chosen(selector)]

    def by_seed(self, point: Point, metric: str) -> dict[int, float | None]:
        """A metric's value at every seed of a point."""
        found: dict[int, float | None] = {}
        for record in self.records:
            if record["experiment"] == self.experiment.name and record["point"] == point.name:
                seed = record["seed"]
                assert isinstance(seed, int)
                found[seed] = metric_value(record, metric)
        return found

    def selected(self, selector: Selector, metric: str) -> dict[int, float | None]:
        """Per seed, the metric's mean over the points of a selection."""
        return average([self.by_seed(point, metric) for point in self.points(selector)])

    def timeline(self, selector: Selector, metric: str) -> list[tuple[float, Interval]]:
        """A sampled metric over time: at each time the mean over seeds, of means over the points of a selection."""
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
            (time_s, interval((sum(values) / len(values) for values in by_seed.values()), bounds_of(metric)))
            for time_s, by_seed in sorted(found.items())
        ]

    def mean(self, selector: Selector, metric: str, exact: bool = False) -> Interval:
        """The mean over the seeds of a selection."""
        return interval(self.selected(selector, metric).values(), bounds_of(metric), exact)

    def difference(self, left: Selector, right: Selector, metric: str, exact: bool = False) -> Interval:
        """left - right, paired by seed."""
        found = paired_differences(self.selected(left, metric), self.selected(right, metric))
        return interval(found, bounds_of(metric, difference=True), exact)

    def served(self) -> "DataFrame | None":
        """Every served pair: point, seed, event, node, delay_s, hops. None if the runs left no traces."""
        finished = [
            record
            for record in self.records
            if record["experiment"] == self.experiment.name and record["error"] is None
        ]
        folders = [self.out / TRACES_FOLDER / str(record["key"]) for record in finished]
        if self.spark is None or not folders or not all(folder.is_dir() for folder in folders):
            return None
        if self._served is None:
            trace, events, subscriptions = read_tables(self.spark, folders)
            pairs = served_pairs(trace, eligible_pairs(events, subscriptions), events, subscriptions)
            runs = [(record["run"], record["point"], record["seed"]) for record in finished]
            named = self.spark.createDataFrame(runs, "run string, point string, seed bigint")
            # Figures and claims ask several times; the traces are read once.
            self._served = pairs.join(named, "run").drop("run").persist()
        return self._served
