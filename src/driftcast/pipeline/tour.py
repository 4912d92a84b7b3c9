"""The headline of each experiment, quickly: what a newcomer sees first."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from driftcast.pipeline.experiment import Experiment, experiment_names, load_experiment
from driftcast.pipeline.report.style import metric_label, metric_scale
from driftcast.pipeline.report.tables import mean_text
from driftcast.pipeline.reproduce import Report, reproduce_experiments, summaries_of
from driftcast.pipeline.session import session
from driftcast.pipeline.statistics import Interval

if TYPE_CHECKING:
    from rich.table import Table

NONE = Interval(0, None, None, None)


@dataclass(frozen=True)
class Tour:
    """What was run, and what came out."""

    experiments: Sequence[Experiment]
    summaries: dict[tuple[str, str, str], Interval]
    report: Report

    def tables(self) -> "list[Table]":
        """One for each experiment: a row per point, a column per axis that varies and per headline metric."""
        from rich.markup import escape
        from rich.table import Table

        tables = []
        for experiment in self.experiments:
            headline = experiment.definition.headline
            assert headline is not None, "a tour has only experiments with a headline"
            metrics = headline.metrics
            table = Table(title=escape(experiment.definition.title), title_justify="left")
            # What is the same at all points tells nothing.
            axes = [axis.name for axis in experiment.definition.axes if len(experiment.labels(axis.name)) > 1]
            for axis in axes:
                table.add_column(escape(axis))
            for metric in metrics:
                table.add_column(escape(metric_label(metric)), justify="right")
            for point in experiment.points:
                cells = [
                    mean_text(self.summaries.get((experiment.name, point.name, metric), NONE), metric_scale(metric))
                    for metric in metrics
                ]
                table.add_row(*(escape(point.labels[axis]) for axis in axes), *cells)
            tables.append(table)
        return tables


def tour(out: Path, master: str | None = None, quiet: bool = False) -> Tour:
    """Run the headline of every experiment that has one."""
    experiments = []
    for name in experiment_names():
        full = load_experiment(name, quick=True)
        headline = full.definition.headline
        if headline is not None:
            chosen = f"{name}/{headline.figure}" if headline.figure else name
            experiments.append(load_experiment(chosen, quick=True))
    spark = session("driftcast", master)
    report = reproduce_experiments(experiments, out, spark, quiet)
    metrics = list(dict.fromkeys(metric for experiment in experiments for metric in experiment.metrics))
    return Tour(experiments, summaries_of(out, spark, metrics), report)
