"""The results of the public API: tables for other libraries, figures for papers, and pages for notebooks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Literal

from carrycast.errors import UserError
from carrycast.trace import ONE_METRICS, one_metric

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from carrycast.analysis.reports import PaperFigure
    from carrycast.sim.contacts import ContactPlan
    from carrycast.sim.engine import MissedEvent
    from carrycast.sim.scenario import Scenario

MOST_SHOWN = 30
"""Rows of a table that a notebook shows; more would hide the cells below it."""
PAPER_METRICS = ("delivery_ratio", "delay_p50_s", "total_bytes")
"""What a table or figure of a comparison shows unless other metrics are named: gain, delay and cost."""
NEEDS_PIPELINE = "needs the extra `pipeline`: `pip install 'carrycast[pipeline]'`"


class MetricValues(Mapping[str, float | int | None]):
    """The metrics of a run by name. A metric that does not exist in the run, such as a delay without deliveries, is
    None.

    The names that the ONE's `MessageStatsReport` uses are understood too; iterating gives carrycast's own names.

    >>> import carrycast
    >>> metrics = carrycast.simulate(carrycast.example("quick")).metrics
    >>> metrics["delivery_prob"] == metrics["delivery_ratio"]
    True
    """

    def __init__(self, values: Mapping[str, float | int | None]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> float | int | None:
        if name in self._values:
            return self._values[name]
        if name in ONE_METRICS:
            return one_metric(name, self._values)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return repr(self._values)


class Tabular(ABC):
    """A result that is a table: `to_arrow()` and `to_pandas()` give it to other libraries."""

    @abstractmethod
    def to_arrow(self) -> "pa.Table":
        """The table for Arrow."""

    def to_pandas(self) -> "pd.DataFrame":
        """The table for pandas."""
        try:
            frame: pd.DataFrame = self.to_arrow().to_pandas()
        except ImportError:
            raise UserError(f"to_pandas() {NEEDS_PIPELINE}") from None
        return frame

    def _repr_html_(self) -> str:
        """The table for notebooks."""
        return html_table(repr(self), self.to_arrow())


@dataclass(frozen=True, slots=True, repr=False)
class SimulationResult(Tabular):
    """The result of one simulation: its metrics, and its three tables as `carrycast run --trace` writes them.

    >>> import carrycast
    >>> result = carrycast.simulate(carrycast.example("quick"), protocol="epidemic")
    >>> result.metrics["delivery_ratio"]
    1.0
    >>> result.to_arrow().column_names
    ['metric', 'value']
    """

    metrics: MetricValues
    trace: "pa.Table"
    """One row for each fact: publications and deliveries, or with level "full" every transmission."""
    fingerprint: str
    """The same for two runs if and only if they are equal in every transmission, delivery and drop."""
    events: "pa.Table"
    subscriptions: "pa.Table"
    scenario: str = ""
    protocol: str = ""
    seed: int = 1
    level: str = "deliveries"
    warnings: Sequence[str] = ()
    """Reasons why the metrics may be meaningless, as `carrycast check` prints them."""
    loaded: "Scenario | None" = field(default=None, compare=False)
    """The scenario that was simulated, with its protocol and settings replaced."""

    def __repr__(self) -> str:
        ratio = self.metrics.get("delivery_ratio")
        share = "nothing to deliver" if ratio is None else f"delivery_ratio {ratio:.4g}"
        return f"<Simulation {self.scenario}, {self.protocol}, seed {self.seed}: {share}, {self.trace.num_rows} rows>"

    def save(self, folder: str | Path) -> Path:
        """Write the trace as a folder, as `carrycast run --trace` does; `metrics`, `explain` and `show` read it."""
        from carrycast.analysis.player import Scene
        from carrycast.trace import Level, save_tables

        self._check_trace("save()")
        target = Path(folder)
        save_tables(target, Level(self.level), self.trace, self.events, self.subscriptions)
        if self.loaded is not None:
            Scene.of(self.loaded, self.seed).save(target)
        return target

    def missed(self) -> "list[MissedEvent]":
        """The subscriptions that missed an event, with the last trace row of each missed event."""
        from carrycast.sim.engine import find_missed_events

        self._check_trace("missed()")
        return find_missed_events(self.trace, self.events, self.subscriptions)

    def delays_s(self) -> list[float]:
        """The delay of every served pair of event and subscriber, in the order of their deliveries."""
        from carrycast.trace import DeliveryFold, facts_of_rows, fold_facts

        self._check_trace("delays_s()")
        fold = DeliveryFold()
        events = {row["event"]: row for row in self.events.to_pylist()}
        subscriptions = {row["subscription"]: row for row in self.subscriptions.to_pylist()}
        fold_facts(fold, facts_of_rows(self.trace.to_pylist(), events, subscriptions))
        return list(fold.delays_s)

    def to_arrow(self) -> "pa.Table":
        """The metrics, one row for each."""
        import pyarrow as pa

        values = [None if value is None else float(value) for value in self.metrics.values()]
        return pa.table({"metric": list(self.metrics), "value": pa.array(values, pa.float64())})

    def plot(self, path: str | Path | None = None, *, width: Literal["column", "page"] = "column") -> "PaperFigure":
        """Draw which share of the deliveries had arrived how long after publication; with `path`, save it too.

        `width` is one column of a two-column paper, or the page. The name's ending says the format: .pdf, .svg, .png.
        """
        plots = _plots()
        eligible = int(self.metrics["eligible"] or 0)
        title = f"{self.scenario}, {self.protocol}"
        figure = plots.plot_delivery_over_time({self.protocol: (self.delays_s(), eligible)}, width, title)
        return _saved(figure, path)

    def _check_trace(self, name: str) -> None:
        if self.level == "metrics":
            raise UserError(f'{name} reads the trace; simulate with level="deliveries", or "full" to know more')


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonResult(Tabular):
    """The result of a comparison: for each protocol and metric a mean with its 95 % confidence interval."""

    scenario: str
    protocols: Sequence[str]
    rows: Sequence[Mapping[str, object]] = field(repr=False)
    """One for each protocol and metric: protocol, metric, mean, low, high, runs."""
    advice_sentences: Sequence[str]
    """How each protocol differs from the first, in words."""
    warnings: Sequence[str]
    report: Path
    """The page of the report."""
    failed: int = 0
    """How many runs failed."""
    one_rows: Sequence[Mapping[str, object]] = field(default=(), repr=False)
    """As `rows`, for the metrics by the names that the ONE has for them."""

    def __repr__(self) -> str:
        return f"<Comparison {self.scenario}: {', '.join(self.protocols)}; report {self.report}>"

    def to_arrow(self) -> "pa.Table":
        """One row for each protocol and metric."""
        import pyarrow as pa

        return pa.Table.from_pylist([dict(row) for row in self.rows])

    def plot(
        self,
        path: str | Path | None = None,
        *,
        metrics: Sequence[str] = PAPER_METRICS,
        width: Literal["column", "page"] = "page",
    ) -> "PaperFigure":
        """Draw a panel for each metric with a bar for each protocol; with `path`, save it too."""
        return _saved(_plots().plot_comparison([*self.rows, *self.one_rows], metrics, width, self.scenario), path)

    def to_latex(self, metrics: Sequence[str] = PAPER_METRICS) -> str:
        """The table for a paper, in LaTeX with booktabs: a row for each protocol, a column for each metric."""
        from carrycast.analysis.reports import latex_table

        return latex_table([*self.rows, *self.one_rows], metrics)

    def _repr_html_(self) -> str:
        """What differs, in words, above the table."""
        said = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.advice_sentences)
        return f"<ul>{said}</ul>{html_table(repr(self), self.to_arrow())}"


@dataclass(frozen=True, slots=True, repr=False)
class SweepResult(Tabular):
    """The result of a sweep: every run with its point, seed and metrics."""

    out: Path
    """The folder of the runs; `carrycast report` makes a report of it."""
    table: "pa.Table"
    failed: int
    warnings: Sequence[str]

    def __repr__(self) -> str:
        return f"<Sweep of {self.table.num_rows} runs, {self.failed} failed, in {self.out}>"

    def to_arrow(self) -> "pa.Table":
        """One row for each run."""
        return self.table

    def means(self, metric: str = "delivery_ratio") -> "list[dict[str, object]]":
        """The mean of a metric at each point, with its 95 % confidence interval: a row for each point, with the value
        of each axis, `mean`, `low`, `high` and `runs`."""
        import json

        from carrycast.analysis.spark import confidence_interval, metric_bounds, metric_value

        by_point: dict[str, list[float | None]] = {}
        values: dict[str, dict[str, object]] = {}
        for record in self.table.to_pylist():
            by_point.setdefault(record["point"], []).append(metric_value(record, metric))
            values[record["point"]] = {
                axis: _axis_value(value) for axis, value in json.loads(record["parameters"]).items()
            }
        if self.table.num_rows and all(value is None for found in by_point.values() for value in found):
            raise UserError(f"metric: no run has {metric!r}; `carrycast help metrics` lists the names")
        return [
            {**values[point], "runs": one.n, "mean": one.mean, "low": one.low, "high": one.high}
            for point, found in by_point.items()
            for one in [confidence_interval(found, metric_bounds(metric))]
        ]

    def plot(
        self,
        x: str | None = None,
        y: str = "delivery_ratio",
        series: str | None = None,
        path: str | Path | None = None,
        *,
        width: Literal["column", "page"] = "column",
    ) -> "PaperFigure":
        """Draw a metric over an axis of the sweep, a line for each value of another; with `path`, save it too.

        `x` and `series` are names of axes; without them, the first axis of numbers (else the first), and another axis,
        if there is one. An axis is called by the last part of its key: `range_m` is that of `radio.range_m`.
        """
        rows = self.means(y)
        axes = [name for name in rows[0] if name not in ("runs", "mean", "low", "high")] if rows else []
        axes.sort(key=lambda axis: not all(isinstance(row[axis], int | float) for row in rows))
        x, series = (None if name is None else name.rpartition(".")[2] for name in (x, series))
        for name in (x, series):
            if name is not None and name not in axes:
                raise UserError(f"{name!r} is no axis of this sweep; it has {', '.join(axes) or 'none'}")
        if not axes:
            raise UserError("this sweep has no axes to draw over; give `vary`, or an experiment with axes")
        along = x or next(name for name in axes if name != series)
        others = series or next((name for name in axes if name != along), None)
        return _saved(_plots().plot_lines(rows, along, y, others, width), path)


@dataclass(frozen=True, slots=True, repr=False)
class AdviceResult(Tabular):
    """The recommended protocol for a fleet, with its evidence and node configurations."""

    protocol: str
    keeps_limits: bool | None
    """Whether it keeps the limits of the objective on held-out data; None if the intervals do not decide."""
    advice_sentences: Sequence[str]
    page: Path
    nodes: Path
    """The folder of the node configurations."""
    rows: Sequence[Mapping[str, object]] = field(default=(), repr=False)
    """One for each finalist and metric on the held-out part: protocol, metric, mean, low, high."""

    def __repr__(self) -> str:
        return f"<Advice {self.protocol}; page {self.page}>"

    def to_arrow(self) -> "pa.Table":
        """One row for each finalist and metric on the held-out part."""
        import pyarrow as pa

        return pa.Table.from_pylist([dict(row) for row in self.rows])

    def plot(
        self,
        path: str | Path | None = None,
        *,
        metrics: Sequence[str] = PAPER_METRICS,
        width: Literal["column", "page"] = "page",
    ) -> "PaperFigure":
        """Draw the finalists on the held-out part, a panel for each metric; with `path`, save it too."""
        return _saved(_plots().plot_comparison(self.rows, metrics, width, "held-out part"), path)

    def _repr_html_(self) -> str:
        """The advice for notebooks."""
        said = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.advice_sentences)
        return f"<p><b>{escape(self.protocol)}</b></p><ul>{said}</ul>"


@dataclass(frozen=True, slots=True, repr=False)
class Explanation:
    """Why an event was delivered to a node, or was not."""

    event: str
    node: int
    delivered_s: float | None
    """When it was delivered; None if it was not."""
    is_possible: bool
    """Whether the contacts allowed a delivery before the event expired: if not, no protocol could have delivered it."""
    text: str
    """Which nodes carried the event and when, what was lost, and the earliest possible arrival."""

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        how = "not delivered" if self.delivered_s is None else f"delivered at {self.delivered_s:.3f} s"
        return f"<Explanation of event {self.event} for node {self.node}: {how}>"

    def _repr_html_(self) -> str:
        """The text for notebooks."""
        return f"<pre>{escape(self.text)}</pre>"


@dataclass(frozen=True, slots=True, repr=False)
class Contacts(Tabular):
    """The contacts of a fleet: when two nodes came within range of each other, and when they parted."""

    plan: "ContactPlan"
    range_m: float

    @property
    def nodes(self) -> int:
        """How many nodes the fleet has."""
        return self.plan.nodes

    def __len__(self) -> int:
        """How many contacts there are."""
        return len(self.plan)

    def __repr__(self) -> str:
        return f"<Contacts of {self.nodes} nodes within {self.range_m:g} m: {len(self)} in {self.plan.duration_s:g} s>"

    def summary(self) -> dict[str, float | int | None]:
        """How many contacts there are, how long they last, and how long nodes wait for the next one."""
        return self.plan.summary()

    def to_arrow(self) -> "pa.Table":
        """One row for each contact: a, b, start_s, end_s."""
        import pyarrow as pa

        plan = self.plan
        return pa.table({"a": plan.a, "b": plan.b, "start_s": plan.start_s, "end_s": plan.end_s})

    def save(self, path: str | Path) -> Path:
        """Write a contact plan. A scenario plays it with `contacts = "PATH"` in place of `[mobility]`."""
        target = Path(path)
        self.plan.save(target)
        return target

    def plot(self, path: str | Path | None = None, *, width: Literal["column", "page"] = "column") -> "PaperFigure":
        """Draw how many neighbors a node has over time; with `path`, save it too."""
        times_s, degrees = self.plan.degree_over_time()
        return _saved(_plots().plot_degree(times_s.tolist(), degrees.tolist(), width), path)


def _axis_value(value: object) -> object:
    """A value of an axis as tables and figures show it; a protocol has settings, and becomes its label."""
    if isinstance(value, dict) and "name" in value:
        from carrycast.sim.scenario import protocol_label

        return protocol_label(value)
    return value if isinstance(value, str | int | float) else str(value)


def html_table(title: str, table: "pa.Table") -> str:
    """The first rows of a table, for notebooks. It needs no pandas."""
    head = "".join(f"<th>{escape(name)}</th>" for name in table.column_names)
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
        for row in table.slice(0, MOST_SHOWN).to_pylist()
    )
    left = table.num_rows - MOST_SHOWN
    more = f"<p>and {left} more rows</p>" if left > 0 else ""
    return f"<table><caption>{escape(title)}</caption><tr>{head}</tr>{rows}</table>{more}"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return "" if value is None else str(value)


def _plots() -> ModuleType:
    """The module that draws; a UserError if matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError(f"plot() {NEEDS_PIPELINE}") from None
    from carrycast.analysis import reports

    return reports


def _saved(figure: "PaperFigure", path: str | Path | None) -> "PaperFigure":
    if path is not None:
        figure.save(path)
    return figure
