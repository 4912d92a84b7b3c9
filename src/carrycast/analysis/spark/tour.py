"""The tour for newcomers: two short runs that play, then a small version of every experiment that has a headline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.player import player_of_scenario
from carrycast.analysis.reports import metric_label, metric_scale, number_text
from carrycast.analysis.spark.experiment import Experiment, experiment_names, load_experiment
from carrycast.analysis.spark.output import write_atomically
from carrycast.analysis.spark.reproduction import ExperimentReport, read_summaries, reproduce_experiments
from carrycast.analysis.spark.spark_session import LazySession
from carrycast.analysis.spark.statistics import Interval
from carrycast.sim.engine import run
from carrycast.trace import Level

if TYPE_CHECKING:
    from rich.table import Table

NO_INTERVAL = Interval(0, None, None, None)
OPENING = "baselines/islands"
OPENING_PROTOCOLS = ["flooding", "epidemic"]
"""One protocol that only forwards at once, and one that stores and carries."""
SEED = 1


@dataclass(frozen=True)
class OpeningRun:
    """The result of one run of each of two protocols in a network that is always partitioned."""

    nodes: int
    shares: Mapping[str, float]
    """The delivery ratio of each protocol."""
    page: Path
    """The page that plays both side by side."""


def run_opening(out: Path) -> OpeningRun:
    """Run two protocols without Spark, within seconds, and write a page that plays them."""
    experiment = load_experiment(OPENING, quick=True)
    points = [point for point in experiment.points if point.matches({"protocol": list(OPENING_PROTOCOLS)})]
    scenarios = {point.labels["protocol"]: point.scenario for point in points}
    shares = {
        label: run(scenario, SEED, Level.METRICS).metrics["delivery_ratio"] or 0.0
        for label, scenario in scenarios.items()
    }
    page = out / "islands.html"
    write_atomically(page, player_of_scenario(scenarios, SEED).encode())
    return OpeningRun(points[0].scenario.nodes, shares, page)


@dataclass(frozen=True)
class ExperimentTour:
    """The experiments of a tour and their results."""

    experiments: Sequence[Experiment]
    summaries: Mapping[tuple[str, str, str], Interval]
    report: ExperimentReport

    def tables(self) -> "list[tuple[str, Table]]":
        """Return a title and a table per experiment: a row per point, a column per varying axis and headline metric.

        The cells are means without intervals, which for so few runs are wide; the report has them.
        """
        return [(_title(experiment), self._table(experiment)) for experiment in self.experiments]

    def _table(self, experiment: Experiment) -> "Table":
        from rich import box
        from rich.markup import escape
        from rich.table import Table

        headline = experiment.definition.headline
        assert headline is not None, "a tour has only experiments with a headline"
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1))
        axes = distinguishing_axes(experiment)
        places = {axis: experiment.labels(axis).index for axis in axes}
        points = sorted(
            experiment.points, key=lambda point: [place(point.labels[axis]) for axis, place in places.items()]
        )
        columns = {
            metric: [self._mean_text(experiment.name, point.name, metric) for point in points]
            for metric in headline.metrics
        }
        # Metrics that are equal at all points are left out.
        telling = {metric: cells for metric, cells in columns.items() if len(set(cells)) > 1} or columns
        for axis in axes:
            table.add_column(escape(axis), no_wrap=True)
        for metric in telling:
            table.add_column(escape(metric_label(metric)), justify="right")
        for point, *cells in zip(points, *telling.values(), strict=True):
            table.add_row(*(escape(point.labels[axis]) for axis in axes), *cells)
        return table

    def _mean_text(self, experiment: str, point: str, metric: str) -> str:
        mean = self.summaries.get((experiment, point, metric), NO_INTERVAL).mean
        return number_text(None if mean is None else mean * metric_scale(metric))


def distinguishing_axes(experiment: Experiment) -> list[str]:
    """Return the axes that distinguish the points: no constant axis, and none that is determined by those before it."""
    axes: list[str] = []
    for axis in (axis.name for axis in experiment.definition.axes):
        before = {tuple(point.labels[name] for name in axes) for point in experiment.points}
        after = {tuple(point.labels[name] for name in [*axes, axis]) for point in experiment.points}
        if len(after) > len(before):
            axes.append(axis)
    return axes


def run_tour(out: Path, master: str | None = None, quiet: bool = False) -> ExperimentTour:
    """Run the headline of every experiment that has one."""
    experiments = []
    for name in experiment_names():
        full = load_experiment(name, quick=True)
        headline = full.definition.headline
        if headline is not None:
            chosen = f"{name}/{headline.figure}" if headline.figure else name
            experiments.append(load_experiment(chosen, quick=True))
    experiments.sort(key=lambda experiment: experiment.definition.order)
    spark = LazySession(master)
    report = reproduce_experiments(experiments, out, spark, quiet)
    metrics = list(dict.fromkeys(metric for experiment in experiments for metric in experiment.metrics))
    return ExperimentTour(experiments, read_summaries(out, spark, metrics), report)


def _title(experiment: Experiment) -> str:
    """Return the title of an experiment's table: the paper's number, the headline, and the number of runs."""
    definition = experiment.definition
    assert definition.headline is not None
    paper = f"{definition.aliases[0]}: " if definition.paper and definition.aliases else ""
    runs = len(experiment.seeds)
    return f"{paper}{definition.headline.title or definition.title} ({runs} run{'s' if runs > 1 else ''})"
