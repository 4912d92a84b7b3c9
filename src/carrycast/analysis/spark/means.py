"""The means of an experiment for a terminal: some metrics of every point, and where the rest is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carrycast.analysis.reports.style import metric_label, metric_scale
from carrycast.analysis.reports.tables import mean_text
from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.statistics import Interval

if TYPE_CHECKING:
    from rich.table import Table

MOST_METRICS = 4
MOST_POINTS = 24
"""More do not fit a screen; the page and its tables have them all."""
NONE = Interval(0, None, None, None)


@dataclass(frozen=True)
class Means:
    """Of one experiment: (point, metric) -> mean and interval."""

    experiment: Experiment
    found: Mapping[tuple[str, str], Interval]

    @property
    def metrics(self) -> Sequence[str]:
        """What is shown: the headline's, else the first."""
        definition = self.experiment.definition
        wanted = definition.metrics if definition.headline is None else definition.headline.metrics
        return list(wanted)[:MOST_METRICS]

    def as_row(self) -> dict[str, object]:
        """As `--json` prints it: all there are."""
        points = [
            {
                "point": point.name,
                "labels": point.labels,
                "metrics": {
                    metric: self.found.get((point.name, metric), NONE).shown() for metric in self.experiment.metrics
                },
            }
            for point in self.experiment.points
        ]
        return {"experiment": self.experiment.name, "points": points}

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"{self.experiment.name}: means with 95 % intervals"

    @property
    def rest(self) -> str:
        """Where that is which it does not show."""
        left_out = len(self.experiment.points) - MOST_POINTS
        more = f"{left_out} points more, and all metrics" if left_out > 0 else "all metrics"
        return f"{more}: tables/{self.experiment.name}-means.csv"

    def table(self) -> "Table":
        """For a terminal."""
        from rich.markup import escape
        from rich.table import Table

        points = self.experiment.points
        table = Table(box=None, padding=(0, 2, 0, 0))
        axes = [axis.name for axis in self.experiment.definition.axes]
        # An axis with one label says nothing.
        axes = [axis for axis in axes if len(self.experiment.labels(axis)) > 1] or axes[:1]
        for axis in axes:
            table.add_column(escape(axis))
        for metric in self.metrics:
            table.add_column(escape(metric_label(metric)), justify="right")
        for point in points[:MOST_POINTS]:
            cells = [
                mean_text(self.found.get((point.name, metric), NONE), metric_scale(metric)) for metric in self.metrics
            ]
            table.add_row(*(escape(point.labels[axis]) for axis in axes), *cells)
        return table
