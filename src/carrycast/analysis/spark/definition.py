"""The keys of an experiment file. docs/experiment-file.md explains them with examples."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.sim.scenario import RequestedMetric, parse_protocol, protocol_label
from carrycast.trace import Level

ExperimentName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w-]*$", max_length=60)]
Label: TypeAlias = str | int | float | bool
Selector: TypeAlias = dict[str, Label | list[Label]]
"""A selection of points: one or several labels of some axes. An axis that is not named may have any label."""
Relation: TypeAlias = Literal[">", ">=", "<", "<=", "="]


class Axis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A setting that varies. The points of an experiment are the product of its axes."""

    name: ExperimentName
    """The name of the axis in selections, tables and figures."""
    key: str | None = None
    """The setting that the axis changes (by default its name): a dotted key, `scenario` for whole files, or `set` for
    values that are tables of several settings."""
    values: Annotated[list[object], Meta(min_length=1)]
    """The values of the setting."""
    labels: list[str] | None = None
    """The names of the values in selections, tables and figures; by default the values as text."""
    title: str = ""
    """The title of the axis in figures, with the unit."""
    default: Label | None = None
    """The label of listed points that name no label of this axis."""


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A figure of the report.

    `line`: a metric over an axis with numbers, and optionally others of `metrics`, a line each. `bars`: a metric for
    each label of an axis. `tradeoff`: one metric over another, a mark for each point. `over_time`: the share of
    eligible pairs served within a time, from traces. Of single runs: `box`: the spread of `metrics` for each label of
    an axis, a panel for each metric. `histogram`: the number of runs by the value of a metric. `runs`: several metrics
    of the first runs, run by run. `overview`: a panel for each of `metrics`, with a bar for each label of an axis.
    `timeline`: a sampled metric `y` over simulated time, a line for each label of `series`; each of `metrics` has one
    line more, over all points shown. Of no runs: `map`: the roads that nodes move on, and places on them, a panel for
    each label of `panels`.
    """

    name: ExperimentName
    """The name of the figure, as in `carrycast reproduce EXPERIMENT/FIGURE`."""
    kind: Literal["line", "bars", "tradeoff", "over_time", "timeline", "box", "histogram", "runs", "map", "overview"]
    """What the figure shows: see "Write an experiment"."""
    x: str = ""
    """The axis, or of `tradeoff` the metric, that the horizontal axis shows."""
    y: str = ""
    """The metric that the vertical axis shows."""
    metrics: list[str] = []
    """The metrics of `box`, `overview`, `runs` and `timeline`; of `line`, the metrics besides `y`."""
    first: Annotated[int, Meta(ge=1, le=1000)] = 60
    """The number of runs that `runs` shows. Sixty can be distinguished on a page."""
    series: str | None = None
    """The axis with a line or a bar for each label."""
    panels: str | None = None
    """The axis with a panel for each label."""
    where: Selector = {}
    """The points that are shown."""
    also: list[Selector] = []
    """Points that are not shown but needed by claims about the figure. They run too if only this figure is
    requested."""
    title: str = ""
    """The title of the figure."""
    caption: str = ""
    """The text below the figure, in Markdown."""
    paper: str = ""
    """The corresponding figure of the paper."""
    log_x: bool = False
    """Whether the horizontal axis is logarithmic."""
    log_y: bool = False
    """Whether the vertical axis is logarithmic."""
    y_from: float | None = None
    """The lower end of the vertical axis. The default is 0, or near the values of a line or box plot if all are far
    from 0. Bars always begin at 0, because their length shows the amount."""
    y_title: str = ""
    """The title of the vertical axis; by default the label of the metric `y`."""
    places: dict[str, dict[str, tuple[float, float]]] = {}
    """Of `map`: names and positions of places, by panel. Each is connected to the nearest point of a road."""
    radius_m: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Of `map`: the area farther than this from any road is gray, and each place has a circle of this radius."""


class ClaimEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement to be checked. Its tolerance is part of the definition, so it is fixed before any run.

    `compare`: the paired difference left - right. `bound`: the mean of a selection. `trend`: the steps from one label
    of an axis to the next.
    """

    statement: Annotated[str, Meta(min_length=1)]
    """The claim as a sentence."""
    kind: Literal["compare", "bound", "trend"]
    """`compare`: the paired difference `left` - `right`. `bound`: the mean of `of`. `trend`: the steps `along` an
    axis."""
    metric: str
    """The metric of the claim."""
    figure: str = ""
    """The figure that the claim belongs to."""
    left: Selector = {}
    """Of `compare`: the first selection."""
    right: Selector = {}
    """Of `compare`: the selection that is subtracted."""
    of: Selector = {}
    """Of `bound` and `trend`: the selection."""
    along: str = ""
    """Of `trend`: the axis."""
    relation: Relation | None = None
    """The relation of the difference, or of the mean, to `value`."""
    value: float = 0.0
    """The number to compare with."""
    direction: Literal["rising", "falling"] | None = None
    """Of `trend`: the direction of every step."""
    tolerance: Annotated[float, Meta(ge=0)] = 0.0
    """For `=`: the largest distance from `value` that counts as equal. For others: the tolerated distance on the wrong
    side."""
    paper: float | str | None = None
    """The number in the paper, for the reader."""
    calibration: bool = False
    """A setting was fitted to this claim, so it is not counted as one that holds."""
    exact: bool = False
    """The measure is not random: if all runs are equal, their value is the mean itself and not an estimate."""
    note: str = ""
    """A remark for the report."""

    @property
    def selectors(self) -> list[Selector]:
        """The selections that the claim is about."""
        return [self.left, self.right] if self.kind == "compare" else [self.of]


class QuickSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes of `--quick`: fewer runs, fewer labels of some axes, smaller settings."""

    runs: Annotated[int, Meta(ge=1)] | None = None
    """The number of seeds."""
    axes: dict[str, list[Label]] = {}
    """The labels to keep, by axis."""
    set: dict[str, object] = {}
    """Settings of the scenario, by their dotted names."""


class RunLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Points with fewer runs than the others. They use the first of the same seeds, so that runs can be paired."""

    where: Selector
    """The points."""
    runs: Annotated[int, Meta(ge=1)]
    """The number of seeds."""


class FindingValue(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A number in a finding: the mean of a metric at the one point of the headline's figure with these labels."""

    metric: str
    where: Selector = {}


class Finding(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A sentence about the results, with the numbers of the runs: `{name}` stands for the value of that name."""

    text: str
    values: dict[str, FindingValue] = {}


class Headline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The part of an experiment that `carrycast tour` shows."""

    title: str = ""
    """The question in one line; by default the title of the experiment."""
    metrics: Annotated[list[str], Meta(min_length=1)]
    """The metrics of the tables."""
    figure: str = ""
    """The only figure to run and draw; by default all figures. The report opens with it."""
    findings: list[Finding] = []
    """The sentences with which the report opens."""


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The contents of an experiment file."""

    name: ExperimentName
    """The name of the experiment; by default that of its folder."""
    title: str = ""
    """The title of the report."""
    description: str = ""
    """The text below the title, in Markdown."""
    paper: str = ""
    """The paper whose results are reproduced."""
    aliases: list[str] = []
    """Other names, such as the number of the paper."""
    extends: str = ""
    """Another experiment file, relative to this one. Its keys and its `claims.py` hold here too, except name, aliases,
    headline and the keys that this file states. The tables `set` are merged."""
    scenario: str | dict[str, object]
    """A file beside this one, or the scenario itself."""
    set: dict[str, object] = {}
    """Settings of the scenario that are replaced at every point, by their dotted names."""
    runs: Annotated[int, Meta(ge=1, le=100_000)] = 20
    """The seeds are 1 to `runs`. With twenty runs, a confidence interval is about half a standard deviation to each
    side."""
    seeds: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(min_length=1)] | None = None
    """The seeds, instead of `runs`."""
    fewer: list[RunLimit] = []
    """Points with fewer runs."""
    stop_when_decided: bool = False
    """Whether a point gets no more runs once all claims about it are decided. The seeds are then the most that it
    gets."""
    trace: Level = Level.METRICS
    """The level of the traces that are kept in `traces/`. With `metrics`, none are kept."""
    measures: list[RequestedMetric] = []
    """Additional metrics, counted at every point."""
    metrics_from: list[str] = []
    """Python files beside this one with metrics over traces, which are used like any other metric."""
    metrics: Annotated[
        list[str],
        Meta(min_length=1, description="The metrics of the tables, the most important first. `runs.parquet` has all."),
    ] = msgspec.field(default_factory=lambda: ["delivery_ratio", "delay_p50_s", "transmissions"])
    rare: dict[str, Annotated[float, Meta(gt=0, lt=1)]] = {}
    """Metrics whose mean depends on rare runs, with the share of such runs. Claims about such a metric are undecided
    unless there are enough runs to contain one of the rare kind with 95 % confidence."""
    axes: Annotated[list[Axis], Meta(min_length=1)]
    """The settings that vary."""
    points: list[Selector] | None = None
    """The combinations of labels to run, instead of the product of the axes. Lists of labels give all combinations."""
    reference: str = ""
    """An axis. The report also shows the paired differences of each point to the one with the first label of the
    axis."""
    figures: list[Figure] = []
    """The figures of the report."""
    claims: list[ClaimEntry] = []
    """The claims of the report."""
    quick: QuickSettings = QuickSettings()
    """The changes of `--quick`."""
    headline: Headline | None = None
    """An experiment without a headline is not part of the tour."""

    @property
    def order(self) -> tuple[bool, str, str]:
        """The sort key in reports: experiments without a paper first, then by the number of the paper."""
        return bool(self.paper), self.aliases[0] if self.aliases else self.name, self.name


def label_texts(wanted: Label | list[Label]) -> list[str]:
    """Return the labels of a selection as text."""
    return [label_text(label) for label in wanted] if isinstance(wanted, list) else [label_text(wanted)]


def axis_labels(axis: Axis) -> list[str]:
    """Return the labels of an axis' values."""
    if axis.labels is not None:
        return axis.labels
    return [_value_label(axis, value) for value in axis.values]


def label_text(label: Label) -> str:
    """Return a label as text, as it is written in TOML."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return f"{label:g}" if isinstance(label, float) else str(label)


def _value_label(axis: Axis, value: object) -> str:
    key = axis.key or axis.name
    if key == "protocol" and isinstance(value, str | dict):
        return protocol_label(parse_protocol(value, axis.name) if isinstance(value, str) else value)
    if key == "scenario" and isinstance(value, str):
        return Path(value).stem
    if isinstance(value, str | int | float | bool):
        return label_text(value)
    return msgspec.json.encode(value).decode()
