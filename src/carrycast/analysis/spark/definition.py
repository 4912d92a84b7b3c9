"""What an experiment file may say. docs/experiments.md explains every key with examples."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from carrycast.sim.scenario import RequestedMetric, parse_protocol, protocol_label
from carrycast.trace import Level

ExperimentName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][\w-]*$", max_length=60)]
Label: TypeAlias = str | int | float | bool
Selector: TypeAlias = dict[str, Label | list[Label]]
"""Which points: for some axes, one label or several; an axis that is not named may have any."""
Relation: TypeAlias = Literal[">", ">=", "<", "<=", "="]


class Axis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thing that varies. The points of an experiment are the product of its axes."""

    name: ExperimentName
    key: str | None = None
    """The setting that it changes (by default its name): a dotted key, `scenario` for whole files, or `set` for
    values that are tables of several settings."""
    values: Annotated[list[object], Meta(min_length=1)]
    labels: list[str] | None = None
    """How the values are called in selections, tables and figures; by default as they are written."""
    title: str = ""
    """What stands at the axis of a figure, with the unit."""
    default: Label | None = None
    """The label of listed points that do not name one."""


class Figure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One picture.

    `line`: a metric over an axis with numbers, and perhaps others of `metrics`, a line each. `bars`: a metric for each
    label of an axis. `tradeoff`: one metric over another, a mark for each point. `over_time`: the share of eligible
    pairs served within a time, from traces.
    Of single runs: `box`: the spread of `metrics` for each label of an axis, a panel for each metric. `histogram`: how
    many runs had which value of a metric. `runs`: several metrics of the first runs, run by run.
    `overview`: a panel for each of `metrics`, with a bar for each label of an axis.
    `timeline`: a sampled metric `y` over simulated time, a line for each label of `series`; each of `metrics` has one
    line more, over all points shown.
    Of no runs: `map`: the roads that nodes move on, and places on them, a panel for each label of `panels`.
    """

    name: ExperimentName
    kind: Literal["line", "bars", "tradeoff", "over_time", "timeline", "box", "histogram", "runs", "map", "overview"]
    x: str = ""
    y: str = ""
    metrics: list[str] = []
    """Of `box`, `overview`, `runs` and `timeline`, which show several; of `line` those beside `y`."""
    first: Annotated[int, Meta(ge=1, le=1000)] = 60
    """Of `runs`: how many. Sixty can be told apart on a page."""
    series: str | None = None
    panels: str | None = None
    where: Selector = {}
    also: list[Selector] = []
    """Points that it does not show and that claims about it need: they run too if the figure is asked for alone."""
    title: str = ""
    caption: str = ""
    paper: str = ""
    """The figure of the paper that this one stands beside."""
    log_x: bool = False
    log_y: bool = False
    y_from: float | None = None
    """Where the axis of `y` begins. By default at 0, but where all that a line or a box shows is far from 0 near that;
    bars always begin at 0, for their length is the amount."""
    y_title: str = ""
    """What stands at the vertical axis; by default what the metric `y` is called."""
    places: dict[str, dict[str, tuple[float, float]]] = {}
    """Of `map`: for each panel, names of places and where they are; each is joined to the nearest point of a road."""
    radius_m: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """Of `map`: what is farther than this from any road is gray, and each place has a circle of it."""


class ClaimEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A statement to be checked. Its tolerance stands here, so it is fixed before any run.

    `compare`: the paired difference left - right. `bound`: the mean of a selection. `trend`: the steps from one label
    of an axis to the next.
    """

    statement: Annotated[str, Meta(min_length=1)]
    kind: Literal["compare", "bound", "trend"]
    metric: str
    figure: str = ""
    left: Selector = {}
    right: Selector = {}
    of: Selector = {}
    along: str = ""
    relation: Relation | None = None
    """Of the difference, or of the mean, to `value`."""
    value: float = 0.0
    direction: Literal["rising", "falling"] | None = None
    tolerance: Annotated[float, Meta(ge=0)] = 0.0
    """For `=`: how far from `value` still counts as equal. For others: how far on the wrong side is forgiven."""
    paper: float | str | None = None
    calibration: bool = False
    exact: bool = False
    """The measure knows no luck: runs that are all alike are the mean itself, not runs that have seen nothing else."""
    note: str = ""


class QuickSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `--quick` changes: fewer runs, fewer labels of some axes, smaller settings."""

    runs: Annotated[int, Meta(ge=1)] | None = None
    axes: dict[str, list[Label]] = {}
    set: dict[str, object] = {}


class RunLimit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Points that need fewer runs than the others: the first of the same seeds, so that they still pair up."""

    where: Selector
    runs: Annotated[int, Meta(ge=1)]


class Headline(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `carrycast tour` shows of an experiment."""

    title: str = ""
    """What is asked, in a line; by default the title of the experiment."""
    metrics: Annotated[list[str], Meta(min_length=1)]
    figure: str = ""
    """Run and draw this figure alone; without it all of them."""


class Definition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An experiment as its file has it."""

    name: ExperimentName
    title: str = ""
    description: str = ""
    paper: str = ""
    aliases: list[str] = []
    scenario: str | dict[str, object]
    """A file beside this one, or the scenario itself."""
    set: dict[str, object] = {}
    """Settings of it that are others at every point, by their dotted names."""
    runs: Annotated[int, Meta(ge=1, le=100_000)] = 20
    """Seeds 1 to `runs`. Twenty narrow an interval to about half a standard deviation."""
    seeds: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(min_length=1)] | None = None
    fewer: list[RunLimit] = []
    trace: Level = Level.METRICS
    measures: list[RequestedMetric] = []
    """Metrics besides the usual ones, counted at every point."""
    metrics_from: list[str] = []
    """Python files beside this one, with metrics over traces; their names are used like any other."""
    metrics: Annotated[list[str], Meta(min_length=1)] = msgspec.field(
        default_factory=lambda: ["delivery_ratio", "delay_p50_s", "transmissions"]
    )
    """Those of the tables, the most telling first. Every metric is in runs.parquet."""
    rare: dict[str, Annotated[float, Meta(gt=0, lt=1)]] = {}
    """Metrics whose mean hangs on runs of a rare kind, and the share of such runs: fewer runs than show one, with 95 %
    confidence, decide no claim about the metric."""
    axes: Annotated[list[Axis], Meta(min_length=1)]
    points: list[Selector] | None = None
    """Instead of the product: the combinations of labels to run; of lists of labels every combination."""
    reference: str = ""
    """An axis: the report has each point's paired differences to the one with the axis' first label, too."""
    figures: list[Figure] = []
    claims: list[ClaimEntry] = []
    quick: QuickSettings = QuickSettings()
    headline: Headline | None = None
    """An experiment without one is no part of the tour."""

    @property
    def order(self) -> tuple[bool, str, str]:
        """Where it stands among others: what belongs to no paper first, then papers by their numbers."""
        return bool(self.paper), self.aliases[0] if self.aliases else self.name, self.name


def label_texts(wanted: Label | list[Label]) -> list[str]:
    """The labels of a selection as text."""
    return [label_text(label) for label in wanted] if isinstance(wanted, list) else [label_text(wanted)]


def axis_labels(axis: Axis) -> list[str]:
    """What the values of an axis are called."""
    if axis.labels is not None:
        return axis.labels
    return [_value_label(axis, value) for value in axis.values]


def label_text(label: Label) -> str:
    """A label as it is written."""
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
