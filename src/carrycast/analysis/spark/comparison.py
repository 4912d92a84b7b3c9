"""Compare several protocols on one scenario, with the same movement and workload for every protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.reports import csv_text, mean_text, metric_label, metric_scale
from carrycast.analysis.spark.definition import Axis, Definition, Figure
from carrycast.analysis.spark.experiment import Experiment, expand_experiment
from carrycast.analysis.spark.output import write_atomically
from carrycast.analysis.spark.reproduction import ExperimentReport, reproduce_experiments
from carrycast.analysis.spark.spark_session import LazySession
from carrycast.analysis.spark.statistics import Interval
from carrycast.analysis.spark.summary import comparison_sentences, summarize_records
from carrycast.analysis.spark.sweep import read_runs
from carrycast.core.settings import read_toml
from carrycast.errors import UserError
from carrycast.sim.scenario import Scenario, apply_overrides, load_scenario, parse_scenario, protocol_label
from carrycast.trace import ONE_METRICS, more_metrics

if TYPE_CHECKING:
    from rich.table import Table

COMPARED_METRICS = (
    "delivery_ratio",
    "delay_p50_s",
    "delay_p95_s",
    "hops_mean",
    "transmissions",
    "forwards",
    "duplicates",
    "data_bytes",
    "control_bytes",
    "discovery_bytes",
    "total_bytes",
    "buffer_peak",
)
"""The metrics of the table: benefits first, then costs."""
PANELS = ("delivery_ratio", "delay_p50_s", "delay_p95_s", "transmissions", "data_bytes", "control_bytes")
"""The metrics of the figure: benefits in the first row, costs in the second."""
PICTURE = "overview"

NO_INTERVAL = Interval(0, None, None, None)
BORDER = 3
"""The width of a table column besides its text."""


def compared_metrics(flows: bool = True) -> list[str]:
    """Return the metrics of a comparison: some built-in ones, those of flows, and those of installed packages."""
    return [*COMPARED_METRICS, *more_metrics(flows)]


@dataclass(frozen=True)
class Comparison:
    """The result: per protocol and metric the mean, and the paired difference to the first protocol."""

    scenario: str
    discovery: str
    protocols: list[str]
    metrics: list[str]
    means: Mapping[tuple[str, str], Interval]
    differences: Mapping[tuple[str, str], Interval]
    report: ExperimentReport
    one_means: Mapping[tuple[str, str], Interval]
    """The means of the metrics that the ONE has, by its names."""
    sentences: Sequence[str]
    """A sentence for each protocol that compares it with the first."""

    @property
    def picture(self) -> Path:
        """The path of the overview figure."""
        return self.report.out / "compare.png"

    def as_row(self) -> dict[str, object]:
        """Return the comparison as `--json` prints it."""
        return {
            "scenario": self.scenario,
            "discovery": self.discovery,
            "runs": self.report.runs,
            "failed": self.report.failed,
            "warnings": self.report.warnings,
            "reference": self.protocols[0],
            "protocols": [
                {
                    "protocol": protocol,
                    "metrics": {
                        metric: self.means.get((protocol, metric), NO_INTERVAL).as_row() for metric in self.metrics
                    },
                    "difference": {
                        metric: self.differences.get((protocol, metric), NO_INTERVAL).as_row()
                        for metric in self.metrics
                    }
                    if protocol != self.protocols[0]
                    else None,
                }
                for protocol in self.protocols
            ],
            "sentences": self.sentences,
            "picture": str(self.picture),
            "report": str(self.report.page),
        }

    def rows(self) -> list[dict[str, object]]:
        """A row for each protocol and metric, as tables and figures for papers take them."""
        return self._rows(self.metrics, self.means)

    def one_rows(self) -> list[dict[str, object]]:
        """The same for the metrics of the ONE, by its names."""
        return self._rows(list(ONE_METRICS), self.one_means)

    def _rows(self, metrics: Sequence[str], means: Mapping[tuple[str, str], Interval]) -> list[dict[str, object]]:
        return [
            {"protocol": protocol, "metric": metric, "mean": one.mean, "low": one.low, "high": one.high, "runs": one.n}
            for protocol in self.protocols
            for metric in metrics
            for one in [means.get((protocol, metric), NO_INTERVAL)]
        ]

    def tables(self, width: int) -> "list[Table]":
        """Return tables for a terminal, with a column per protocol. Below each mean is the difference to the first
        protocol.

        If the terminal is too narrow for one table, there are several, each with as many protocols as fit.
        """
        cells = {protocol: self._cells(protocol) for protocol in self.protocols}
        left = width - max(len(metric_label(metric)) for metric in self.metrics) - BORDER
        groups: list[list[str]] = []
        room = 0
        for protocol, column in cells.items():
            needed = BORDER + max(len(line) for text in (protocol, *column) for line in text.split("\n"))
            if needed > room:
                groups.append([])
                room = left
            groups[-1].append(protocol)
            room -= needed
        return [self._table({protocol: cells[protocol] for protocol in group}) for group in groups]

    def _table(self, cells: Mapping[str, Sequence[str]]) -> "Table":
        from rich.markup import escape
        from rich.table import Table

        title = f"{self.scenario}: means with 95 % intervals; below each its paired difference to "
        failed = f"; {self.report.failed} of {self.report.runs} runs failed" if self.report.failed else ""
        caption = escape(f"{self.discovery}{failed}")
        table = Table(title=escape(f"{title}{self.protocols[0]}"), caption=caption, title_justify="left")
        table.add_column("metric", no_wrap=True)
        for protocol in cells:
            table.add_column(escape(protocol), justify="right", no_wrap=True)
        for place, metric in enumerate(self.metrics):
            table.add_row(metric_label(metric), *(column[place] for column in cells.values()), end_section=True)
        return table

    def _cells(self, protocol: str) -> list[str]:
        first = protocol == self.protocols[0]
        return [
            mean_text(self.means.get((protocol, metric), NO_INTERVAL), metric_scale(metric))
            + ("" if first else f"\n{self._difference(protocol, metric)}")
            for metric in self.metrics
        ]

    def _difference(self, protocol: str, metric: str) -> str:
        found = self.differences.get((protocol, metric), NO_INTERVAL)
        text = mean_text(found, metric_scale(metric))
        return f"+{text}" if found.mean is not None and found.mean > 0 else text


def compare(
    scenario: Path,
    protocols: Sequence[Mapping[str, object]],
    out: Path,
    runs: int = 10,
    master: str | None = None,
    discovery: Mapping[str, object] | None = None,
    quiet: bool = False,
    settings: Mapping[str, object] | None = None,
) -> Comparison:
    """Run every protocol at every seed and compare the results.

    `discovery` replaces the discovery settings of the scenario, `settings` others by their dotted names.
    """
    if not protocols:
        raise UserError("--protocols: name at least one protocol")
    loaded, note = _load_with_discovery(scenario, discovery)
    if settings:
        loaded = apply_overrides(loaded, settings)
    experiment = _make_experiment(loaded, protocols, runs, str(scenario), note)
    report = reproduce_experiments([experiment], out, LazySession(master), quiet, watch=True)
    labels = [protocol_label(protocol) for protocol in protocols]
    # The points of this experiment are named by their protocol. The folder may hold other experiments too.
    (means,) = (one.found for one in report.means if one.experiment.name == experiment.name)
    differences = {key[1:]: one for key, one in report.differences.items() if key[0] == experiment.name}
    said = comparison_sentences(experiment, means, differences)
    records = [record for record in read_runs(out) if record["experiment"] == experiment.name]
    one_means = {(one.point, one.metric): one.interval for one in summarize_records(records, list(ONE_METRICS))}
    found = Comparison(
        loaded.name, note, labels, experiment.definition.metrics, means, differences, report, one_means, said
    )
    for kind in ("png", "svg"):
        drawn = out / "figures" / f"{experiment.name}-{PICTURE}.{kind}"
        if drawn.exists():
            write_atomically(found.picture.with_suffix(f".{kind}"), drawn.read_bytes())
    write_atomically(out / "compare.csv", csv_text(_csv_rows(found)).encode())
    return found


def _load_with_discovery(path: Path, wanted: Mapping[str, object] | None) -> tuple[Scenario, str]:
    scenario = load_scenario(path)
    if wanted is None:
        stated = "discovery" in read_toml(path)
        why = "as the scenario states it" if stated else "by default, since the scenario states none"
        return scenario, f"discovery {why}: {_discovery_text(scenario)}"
    table: dict[str, object] = msgspec.to_builtins(scenario)
    table["discovery"] = dict(wanted)
    changed = parse_scenario(table, "--discovery")
    return changed, f"discovery as asked for: {_discovery_text(changed)}"


def _discovery_text(scenario: Scenario) -> str:
    table: dict[str, object] = msgspec.to_builtins(scenario.discovery)
    mode = str(table.pop("mode"))
    settings = ", ".join(f"{key} = {value:g}" for key, value in table.items() if isinstance(value, int | float))
    return f"{mode} ({settings})" if settings else mode


def _make_experiment(
    scenario: Scenario, protocols: Sequence[Mapping[str, object]], runs: int, where: str, note: str
) -> Experiment:
    labels = [protocol_label(protocol) for protocol in protocols]
    table: dict[str, object] = msgspec.to_builtins(scenario)
    base = Path(str(table.pop("base")))
    figures = [
        Figure(
            name=PICTURE,
            kind="overview",
            x="protocol",
            metrics=list(PANELS),
            title="Benefit and cost of each protocol",
            caption="Means; whiskers are 95 % confidence intervals. A panel whose values differ by orders of magnitude "
            "has a logarithmic axis.",
        ),
        Figure(
            name="cost",
            kind="tradeoff",
            x="transmissions",
            y="delivery_ratio",
            series="protocol",
            title="Delivery against cost",
        ),
    ]
    definition = Definition(
        name="compare",
        title=f"{scenario.name}: {', '.join(labels)}",
        description=f"{scenario.description}\n\n{note[0].upper()}{note[1:]}.".strip(),
        scenario=table,
        runs=runs,
        metrics=compared_metrics(bool(scenario.flow)),
        axes=[Axis(name="protocol", values=[dict(protocol) for protocol in protocols], labels=labels)],
        reference="protocol",
        figures=figures,
    )
    return expand_experiment(definition, base, runs=runs, where=where)


def _csv_rows(found: Comparison) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for protocol in found.protocols:
        for metric in found.metrics:
            mean = found.means.get((protocol, metric), NO_INTERVAL).as_row()
            difference = found.differences.get((protocol, metric), NO_INTERVAL).as_row()
            rows.append(
                {"protocol": protocol, "metric": metric, **mean}
                | {f"difference_{key}": value for key, value in difference.items()}
            )
    return rows
