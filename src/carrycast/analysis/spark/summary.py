"""Means with 95 % confidence intervals per point of a sweep, paired differences, and their tables and sentences.

Spark computes them from the rows of many runs; those of few runs are computed in this process. A metric that does not
exist in a run, such as a delay when nothing arrived, is left out of the mean and counted as missing, and so are failed
runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from carrycast.analysis.reports import distinct_texts, mean_text, metric_label, metric_scale, number_text
from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.records import METRICS, MORE, Record, metric_bounds, metric_value
from carrycast.analysis.spark.statistics import MIN_RUNS, Interval, confidence_interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from rich.table import Table

POINT = ["experiment", "point"]


class MetricSummary(NamedTuple):
    """A metric of a point over its runs, or the paired differences to the point's reference."""

    experiment: str
    point: str
    metric: str
    missing: int
    """Runs in which the metric does not exist."""
    interval: Interval


def summarize(runs: "DataFrame", metrics: Sequence[str] = METRICS) -> list[MetricSummary]:
    """Return the mean of every metric at every point."""
    return _compute_intervals(_to_long_format(runs, [*POINT, "seed"], metrics), "value", difference=False)


def summarize_differences(
    runs: "DataFrame", pairs: "DataFrame", metrics: Sequence[str] = METRICS
) -> list[MetricSummary]:
    """Return the differences point - reference over the seeds that both have; `pairs` has experiment, point,
    reference."""
    from pyspark.sql import functions as f

    long = _to_long_format(runs, [*POINT, "seed"], metrics)
    other = long.select("experiment", f.col("point").alias("reference"), "seed", "metric", f.col("value").alias("base"))
    joined = (
        long.join(f.broadcast(pairs), POINT)
        .join(other, ["experiment", "reference", "seed", "metric"])
        .withColumn("difference", f.col("value") - f.col("base"))
    )
    return _compute_intervals(joined, "difference", difference=True)


def _to_long_format(runs: "DataFrame", ids: list[str], metrics: Sequence[str]) -> "DataFrame":
    """Return one row per run and metric."""
    from pyspark.sql import functions as f

    def column(metric: str) -> "Column":
        return f.col(metric) if metric in METRICS else f.get_json_object(MORE, f"$.{metric}")

    values = [column(metric).cast("double").alias(metric) for metric in metrics]
    wide = runs.select(*ids, *values)
    return wide.unpivot(tuple(ids), tuple(metrics), "metric", "value")


def _compute_intervals(rows: "DataFrame", column: str, difference: bool) -> list[MetricSummary]:
    """Return the confidence interval of each group. The driver computes it, so that executors need no scipy."""
    from pyspark.sql import functions as f

    # collect_list leaves nulls out. The order of the values does not change their sum (`math.fsum`).
    grouped = rows.groupBy(*POINT, "metric").agg(
        f.collect_list(column).alias("values"), f.count(f.lit(1)).alias("runs")
    )
    found = []
    for row in grouped.collect():
        interval = confidence_interval(row["values"], metric_bounds(row["metric"], difference))
        missing = row["runs"] - interval.n
        found.append(MetricSummary(row["experiment"], row["point"], row["metric"], missing, interval))
    return found


def summarize_records(records: Sequence[Record], metrics: Sequence[str] = METRICS) -> list[MetricSummary]:
    """Return the mean of every metric at every point, as `summarize` does, from records in memory."""
    values: dict[tuple[str, str, str], list[float | None]] = {}
    for record in records:
        for metric in metrics:
            key = str(record["experiment"]), str(record["point"]), metric
            values.setdefault(key, []).append(metric_value(record, metric))
    return _summarize_groups(values, difference=False)


def summarize_record_differences(
    records: Sequence[Record], pairs: Sequence[tuple[str, str, str]], metrics: Sequence[str] = METRICS
) -> list[MetricSummary]:
    """Return the differences point - reference, as `summarize_differences` does, from records in memory."""
    by_point: dict[tuple[str, str], dict[object, Record]] = {}
    for record in records:
        by_point.setdefault((str(record["experiment"]), str(record["point"])), {})[record["seed"]] = record
    values: dict[tuple[str, str, str], list[float | None]] = {}
    for experiment, point, reference in pairs:
        others = by_point.get((experiment, reference), {})
        for seed, record in by_point.get((experiment, point), {}).items():
            if seed not in others:
                continue
            for metric in metrics:
                mine, base = metric_value(record, metric), metric_value(others[seed], metric)
                difference = None if mine is None or base is None else mine - base
                values.setdefault((experiment, point, metric), []).append(difference)
    return _summarize_groups(values, difference=True)


def _summarize_groups(
    groups: Mapping[tuple[str, str, str], Sequence[float | None]], difference: bool
) -> list[MetricSummary]:
    found = []
    for (experiment, point, metric), values in groups.items():
        interval = confidence_interval(values, metric_bounds(metric, difference))
        found.append(MetricSummary(experiment, point, metric, len(values) - interval.n, interval))
    return found


MOST_METRICS = 4
MOST_POINTS = 24
"""More rows and columns do not fit a screen. The report has all of them."""
NO_INTERVAL = Interval(0, None, None, None)


@dataclass(frozen=True)
class ExperimentMeans:
    """The means of one experiment, by point and metric."""

    experiment: Experiment
    found: Mapping[tuple[str, str], Interval]

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics of the table: those of the headline, else the first ones."""
        definition = self.experiment.definition
        wanted = definition.metrics if definition.headline is None else definition.headline.metrics
        return list(wanted)[:MOST_METRICS]

    def as_row(self) -> dict[str, object]:
        """Return all metrics, as `--json` prints them."""
        points = [
            {
                "point": point.name,
                "labels": point.labels,
                "metrics": {
                    metric: self.found.get((point.name, metric), NO_INTERVAL).as_row()
                    for metric in self.experiment.metrics
                },
            }
            for point in self.experiment.points
        ]
        return {"experiment": self.experiment.name, "points": points}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"{self.experiment.name}: means with 95 % intervals"

    @property
    def rest(self) -> str:
        """A line that says where to find the points and metrics that the table does not show."""
        left_out = len(self.experiment.points) - MOST_POINTS
        more = f"{left_out} points more, and all metrics" if left_out > 0 else "all metrics"
        return f"{more}: tables/{self.experiment.name}-means.csv"

    def table(self) -> "Table":
        """Return the table for a terminal."""
        from rich.markup import escape
        from rich.table import Table

        points = self.experiment.points
        table = Table(box=None, padding=(0, 2, 0, 0))
        axes = [axis.name for axis in self.experiment.definition.axes]
        # Axes with a single label are left out.
        axes = [axis for axis in axes if len(self.experiment.labels(axis)) > 1] or axes[:1]
        for axis in axes:
            table.add_column(escape(axis))
        for metric in self.metrics:
            table.add_column(escape(metric_label(metric)), justify="right")
        for point in points[:MOST_POINTS]:
            cells = [
                mean_text(self.found.get((point.name, metric), NO_INTERVAL), metric_scale(metric))
                for metric in self.metrics
            ]
            table.add_row(*(escape(point.labels[axis]) for axis in axes), *cells)
        return table


PLACES = 2
"""Decimal places of a ratio; more where two places would show no difference."""
Found = Mapping[tuple[str, str], Interval]
"""(point, metric) -> mean or difference, and its interval."""


def comparison_sentences(experiment: Experiment, means: Found, differences: Found) -> list[str]:
    """Return a sentence for each point that compares it with its reference."""
    found = []
    for point, reference in reference_pairs(experiment):
        more = differences.get((point, "delivery_ratio"), NO_INTERVAL)
        frames, other = (means.get((name, "transmissions"), NO_INTERVAL) for name in (point, reference))
        found.append(comparison_sentence(point, reference, more, frames, other))
    return found


def finding_sentences(experiment: Experiment, means: Found) -> list[str]:
    """The findings of an experiment's headline with the means of its runs; without those whose numbers are missing."""
    headline = experiment.definition.headline
    figures = {figure.name: figure.where for figure in experiment.definition.figures}
    shown = {} if headline is None else figures.get(headline.figure, {})
    found = []
    for finding in () if headline is None else headline.findings:
        values = {}
        for name, value in finding.values.items():
            points = [point for point in experiment.points if point.matches({**shown, **value.where})]
            mean = means.get((points[0].name, value.metric), NO_INTERVAL).mean if len(points) == 1 else None
            if mean is not None:
                values[name] = number_text(mean * metric_scale(value.metric))
        if len(values) == len(finding.values):
            found.append(finding.text.format(**values))
    return found


def reference_pairs(experiment: Experiment) -> list[tuple[str, str]]:
    """Return each point with its reference: the point that has the first label on the reference axis, all else
    equal."""
    axis = experiment.definition.reference
    if not axis:
        return []
    first = experiment.labels(axis)[0]
    named = {tuple(point.labels.items()): point.name for point in experiment.points}
    pairs = [
        (point.name, named.get(tuple({**point.labels, axis: first}.items()), ""))
        for point in experiment.points
        if point.labels[axis] != first
    ]
    return [(point, reference) for point, reference in pairs if reference]


def comparison_sentence(
    protocol: str, reference: str, more: Interval, frames: Interval, reference_frames: Interval
) -> str:
    """Return a sentence that compares a protocol with the reference; `more` is the paired difference of delivery
    ratios."""
    if more.mean is None:
        return f"Nothing can be said of {protocol} beside {reference}: no run of both had anything to deliver."
    price = _price(frames, reference_frames)
    if more.low is None or more.high is None:
        if more.mean == 0 and more.n >= MIN_RUNS:
            return f"{protocol} delivers as much as {reference} in each of {_runs(more.n)}{price}."
        (text,) = distinct_texts([abs(more.mean)], PLACES)
        found = f"{protocol} delivers {_amount(more.mean, text)} than {reference} in {_runs(more.n)}{price}"
        return f"{found}; that decides nothing yet: ask for more with --runs."
    ends = (more.low, more.high) if more.mean >= 0 else (-more.high, -more.low)
    text, *shown = distinct_texts([abs(more.mean), *ends], PLACES)
    within = f"({shown[0]} to {shown[1]})"
    if more.low <= 0 <= more.high:
        found = f"{protocol} delivers {_amount(more.mean, text)} {within} in {_runs(more.n)}{price}"
        return f"Between {protocol} and {reference} nothing is decided: {found}; more runs may tell."
    return f"{protocol} delivers {_amount(more.mean, text)} {within} than {reference}{price}."


def _runs(count: int) -> str:
    return "one run" if count == 1 else f"{count} runs"


def _amount(mean: float, text: str) -> str:
    return f"{text} {'more' if mean > 0 else 'less'}" if mean else "neither more nor less"


def _price(frames: Interval, reference: Interval) -> str:
    if frames.mean is None or reference.mean is None:
        return ""
    if reference.mean == 0:
        return "" if frames.mean == 0 else f", with {frames.mean:,.0f} frames instead of none"
    times = frames.mean / reference.mean
    if math.isclose(times, 1, rel_tol=0.05):
        return ", with as many frames"
    return f", with {times:,.0f} times the frames" if times >= 9.5 else f", with {times:.2g} times the frames"
