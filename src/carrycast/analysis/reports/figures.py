"""Draw the figures of an experiment: a PNG for papers, an SVG for the page, and the numbers."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carrycast.analysis.reports.distributions import KINDS as DISTRIBUTIONS, draw_distribution
from carrycast.analysis.reports.map_figure import draw_map
from carrycast.analysis.reports.style import (
    COLORS,
    DASHES,
    HEIGHT_IN,
    MARKERS,
    RESOLUTION_DPI,
    WIDTH_IN,
    group_digits,
    label_positions,
    metric_label,
    metric_scale,
    paper_style,
    value_limits,
)
from carrycast.analysis.spark import (
    Axis,
    Experiment,
    Figure,
    Interval,
    Point,
    Results,
    Selector,
    axis_labels,
    confidence_interval,
    metric_bounds,
    served_share_over_time,
    time_grid,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

MOST_NAMED = 8
"""Up to this many values of an axis, each has its own tick label."""
LEGEND_CHARACTERS = 62
"""The characters of a legend that fit above a panel. The line sample of an entry takes as much as
`SWATCH_CHARACTERS`."""
SWATCH_CHARACTERS = 6
MARKS_OVER_TIME = 12
ROW = ("panel", "series", "x", "n", "mean", "low", "high")


@dataclass(frozen=True)
class DrawnFigure:
    """A drawn figure."""

    figure: Figure
    png: bytes
    svg: bytes
    rows: list[dict[str, object]]
    """The numbers of the figure."""


@dataclass(frozen=True)
class _Mark:
    """A mean with its interval at a position. In a trade-off, the position has an interval too."""

    x: float
    y: Interval
    x_interval: Interval | None = None


def draw_figure(figure: Figure, results: Results) -> DrawnFigure | None:
    """Draw a figure; None if it has no data."""
    if figure.kind in ("map", "overview") or figure.kind in DISTRIBUTIONS:
        of_kind = {"map": draw_map, "overview": draw_overview}.get(figure.kind, draw_distribution)
        with paper_style():
            found = of_kind(figure, results)
            return None if found is None else _render(figure, *found)
    curves = _curves(results) if figure.kind == "over_time" else {}
    panels: list[tuple[str, dict[str, list[_Mark]]]] = []
    for panel in _labels(results.experiment, figure.panels, figure.where):
        where: Selector = {**figure.where, **({figure.panels: panel} if figure.panels else {})}
        panels.append((panel, _series(figure, where, results, curves)))
    if not any(marks for _, series in panels for marks in series.values()):
        return None
    with paper_style():
        canvas = _canvas(figure, panels, results.experiment)
        return _render(figure, canvas, _rows(figure, panels, results.experiment))


def _render(figure: Figure, canvas: "Canvas", rows: list[dict[str, object]]) -> DrawnFigure:
    png, svg = io.BytesIO(), io.BytesIO()
    canvas.savefig(png, format="png", dpi=RESOLUTION_DPI, metadata={"Software": None})
    canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return DrawnFigure(figure, png.getvalue(), svg.getvalue(), rows)


def _labels(experiment: Experiment, axis: str | None, where: Selector) -> list[str]:
    if axis is None:
        return [""]
    present = {point.labels[axis] for point in experiment.points if point.matches(where)}
    return [label for label in experiment.labels(axis) if label in present]


def _series(
    figure: Figure, where: Selector, results: Results, curves: dict[str, list[_Mark]]
) -> dict[str, list[_Mark]]:
    found: dict[str, list[_Mark]] = {}
    for label in _labels(results.experiment, figure.series, where):
        selector: Selector = {**where, **({figure.series: label} if figure.series else {})}
        points = results.points(selector)
        if figure.kind == "timeline":
            found[label or (metric_label(figure.y) if figure.metrics else "")] = _timeline(figure.y, selector, results)
        elif figure.kind == "over_time":
            found[label] = curves.get(points[0].name, [])
        elif figure.kind == "tradeoff":
            found[label] = [_tradeoff(figure, point, results) for point in points]
        else:
            name = label or (metric_label(figure.y) if figure.metrics else "")
            found[name] = _axis_marks(figure, figure.y, selector, results)
    if figure.kind == "line":
        found |= {metric_label(metric): _axis_marks(figure, metric, where, results) for metric in figure.metrics}
    if figure.kind == "timeline":
        found |= {metric_label(metric): _timeline(metric, where, results) for metric in figure.metrics}
    return found


def _timeline(metric: str, selector: Selector, results: Results) -> list[_Mark]:
    scale = metric_scale(metric)
    return [_Mark(time_s, _scale_interval(found, scale)) for time_s, found in results.timeline(selector, metric)]


def _axis_marks(figure: Figure, metric: str, selector: Selector, results: Results) -> list[_Mark]:
    scale, marks = metric_scale(metric), []
    for place, label in enumerate(_labels(results.experiment, figure.x, figure.where)):
        chosen: Selector = {**selector, figure.x: label}
        points = results.points(chosen)
        if not points:
            continue
        y = _scale_interval(results.mean(chosen, metric), scale)
        value = points[0].values[figure.x]
        number = isinstance(value, int | float) and figure.kind == "line"
        marks.append(_Mark(float(value) if number and isinstance(value, int | float) else float(place), y))
    return marks


def _tradeoff(figure: Figure, point: Point, results: Results) -> _Mark:
    x = _scale_interval(
        confidence_interval(results.by_seed(point, figure.x).values(), metric_bounds(figure.x)), metric_scale(figure.x)
    )
    y = _scale_interval(
        confidence_interval(results.by_seed(point, figure.y).values(), metric_bounds(figure.y)), metric_scale(figure.y)
    )
    return _Mark(math.nan if x.mean is None else x.mean, y, x)


def _curves(results: Results) -> dict[str, list[_Mark]]:
    """Return, for each point, the share of pairs served over time."""
    times_s = time_grid(max(point.scenario.duration_s for point in results.experiment.points))
    shares = served_share_over_time(results, times_s) or {}
    return {
        point: [_Mark(time_s, share) for time_s, share in zip(times_s, shared, strict=True)]
        for point, shared in shares.items()
    }


def _scale_interval(found: Interval, scale: float) -> Interval:
    mean, low, high = (None if value is None else value * scale for value in found[1:4])
    return Interval(found.n, mean, low, high)


def _rows(
    figure: Figure, panels: list[tuple[str, dict[str, list[_Mark]]]], experiment: Experiment
) -> list[dict[str, object]]:
    labels = experiment.labels(figure.x) if figure.kind == "bars" else []
    rows: list[dict[str, object]] = []
    for panel, series in panels:
        for label, marks in series.items():
            for mark in marks:
                x: object = labels[int(mark.x)] if labels else mark.x
                row = dict(zip(ROW, (panel, label, x, *mark.y[:4]), strict=True))
                if mark.x_interval is not None:
                    row |= {"x_low": mark.x_interval.low, "x_high": mark.x_interval.high}
                rows.append(row)
    return rows


def _canvas(figure: Figure, panels: list[tuple[str, dict[str, list[_Mark]]]], experiment: Experiment) -> "Canvas":
    from matplotlib import pyplot as plt
    from matplotlib.container import ErrorbarContainer

    names = list(dict.fromkeys(label for _, series in panels for label in series))
    # The number of legend columns that fit.
    fitting = LEGEND_CHARACTERS * len(panels) // (max(map(len, names)) + SWATCH_CHARACTERS)
    columns = max(1, min(len(names), 3 * len(panels), fitting))
    # One more row for the title of the legend.
    extra_in = 0.22 * (math.ceil(len(names) / columns) + 1) + 0.05 if names != [""] else 0.0
    canvas, axes = plt.subplots(
        1,
        len(panels),
        figsize=(WIDTH_IN * (1 if len(panels) == 1 else 0.92 * len(panels)), HEIGHT_IN + extra_in),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    limits = _limits(figure, panels)
    for ax, (panel, series) in zip(axes[0], panels, strict=True):
        _panel(ax, figure, series, names, experiment, limits)
        if panel:
            ax.set_title(panel)
    title = "share of pairs served" if figure.kind == "over_time" else metric_label(figure.y)
    axes[0][0].set_ylabel(figure.y_title or title)
    handles, labels = axes[0][0].get_legend_handles_labels()
    # The legend shows markers without whiskers, which would change their shape.
    handles = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
    if names != [""]:
        canvas.legend(
            handles,
            labels,
            loc="outside upper center",
            ncols=min(len(labels), columns),
            handlelength=2.4,
            title=_legend_title(figure, experiment),
        )
    plt.close(canvas)
    return canvas


def _limits(figure: Figure, panels: list[tuple[str, dict[str, list[_Mark]]]]) -> tuple[float, float]:
    """Return the limits of the vertical axis, which all panels share."""
    marks = [mark for _, series in panels for marks in series.values() for mark in marks]
    ends = [end for mark in marks for end in mark.y[1:4] if end is not None and math.isfinite(end)]
    share = figure.kind == "over_time" or figure.y.endswith("_ratio")
    whole = 1.0 if share and all(mark.y.mean is None or mark.y.mean <= 1.0 for mark in marks) else 0.0
    if whole:
        # With few runs, an interval may exceed the range of a share; that part is not shown.
        ends = [min(max(end, 0.0), whole) for end in ends]
    return value_limits(ends, figure.y_from, figure.kind in ("bars", "over_time"), whole)


def _panel(
    ax: "Axes",
    figure: Figure,
    series: dict[str, list[_Mark]],
    names: list[str],
    experiment: Experiment,
    limits: tuple[float, float],
) -> None:
    for label, marks in series.items():
        place = names.index(label)
        if figure.kind == "bars":
            _bars(ax, marks, label, place, len(names))
        elif figure.kind == "tradeoff":
            _scatter(ax, marks, label, place)
        else:
            # Samples are dense, so only some of them have a marker.
            every = max(1, len(marks) // MARKS_OVER_TIME) if figure.kind == "timeline" else 1
            _line(ax, marks, label, place, figure.kind == "over_time", every)
    if figure.kind == "bars":
        labels = _labels(experiment, figure.x, figure.where)
        label_positions(ax, range(len(labels)), labels)
    if figure.log_x:
        ax.set_xscale("log")
    if figure.log_y:
        ax.set_yscale("log")
    else:
        ax.set_ylim(*limits)
    if figure.kind == "line":
        _name_values(ax, experiment.axis(figure.x), [mark.x for marks in series.values() for mark in marks])
    elif figure.kind == "tradeoff":
        group_digits(ax.xaxis)
    if not figure.log_y:
        group_digits(ax.yaxis)
    ax.set_xlabel(_x_label(figure, experiment))


def _legend_title(figure: Figure, experiment: Experiment) -> str | None:
    """Return the title of the legend: the axis of the series; None if the series are metrics."""
    if figure.series is None:
        return None
    axis = experiment.axis(figure.series)
    return axis.title or axis.name


def _name_values(ax: "Axes", axis: Axis, present: list[float]) -> None:
    """Label the ticks of an axis with few values by the names of the values."""
    named = dict(zip(axis.values, axis_labels(axis), strict=True))
    places = sorted(set(present))
    if len(places) <= MOST_NAMED:
        ax.set_xticks(places, [named.get(place, f"{place:g}") for place in places])
        ax.set_xticks([], minor=True)


def _x_label(figure: Figure, experiment: Experiment) -> str:
    if figure.kind == "over_time":
        return "time since publication (s)"
    if figure.kind == "timeline":
        return "time (s)"
    if figure.kind == "tradeoff":
        return metric_label(figure.x)
    axis = experiment.axis(figure.x)
    return axis.title or axis.name


def _line(ax: "Axes", marks: list[_Mark], label: str, place: int, steps: bool, every: int) -> None:
    known = [mark for mark in marks if mark.y.mean is not None]
    xs = [mark.x for mark in known]
    means = [mark.y.mean for mark in known if mark.y.mean is not None]
    color = COLORS[place % len(COLORS)]
    dash = DASHES[place % len(DASHES)]
    if steps:
        ax.step(xs, means, where="post", color=color, linestyle=dash, label=label)
    else:
        marker = MARKERS[place % len(MARKERS)]
        ax.plot(xs, means, color=color, linestyle=dash, marker=marker, markevery=every, label=label)
    lows = [mean if mark.y.low is None else mark.y.low for mark, mean in zip(known, means, strict=True)]
    highs = [mean if mark.y.high is None else mark.y.high for mark, mean in zip(known, means, strict=True)]
    ax.fill_between(xs, lows, highs, color=color, alpha=0.18, linewidth=0, step="post" if steps else None)


def _bars(ax: "Axes", marks: list[_Mark], label: str, place: int, count: int) -> None:
    width = 0.8 / count
    known = [mark for mark in marks if mark.y.mean is not None]
    xs = [mark.x - 0.4 + (place + 0.5) * width for mark in known]
    heights = [mark.y.mean or 0.0 for mark in known]
    errors = [[mark.y.below for mark in known], [mark.y.above for mark in known]]
    hatch = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++")[place % 7]
    ax.bar(
        xs,
        heights,
        width * 0.92,
        color=COLORS[place % len(COLORS)],
        edgecolor=(1, 1, 1, 0.55),
        hatch=hatch,
        label=label,
    )
    ax.errorbar(xs, heights, errors, fmt="none", ecolor="#222222", elinewidth=0.9, capsize=2)


def _scatter(ax: "Axes", marks: list[_Mark], label: str, place: int) -> None:
    known = [mark for mark in marks if mark.y.mean is not None and mark.x_interval is not None]
    ax.errorbar(
        [mark.x for mark in known],
        [mark.y.mean or 0.0 for mark in known],
        [[mark.y.below for mark in known], [mark.y.above for mark in known]],
        [
            [mark.x_interval.below for mark in known if mark.x_interval is not None],
            [mark.x_interval.above for mark in known if mark.x_interval is not None],
        ],
        linestyle="none",
        color=COLORS[place % len(COLORS)],
        marker=MARKERS[place % len(MARKERS)],
        markersize=6,
        elinewidth=0.9,
        capsize=2,
        label=label,
    )


COLUMNS = 3
OVERVIEW_WIDTH_IN = 7.16
"""The width of a two-column page."""
# If the largest value exceeds this many times the smallest, the axis is logarithmic.
LOG_RATIO = 50.0
_NOTE_COLOR = "#5d646d"
Row = dict[str, object]


def draw_overview(figure: Figure, results: Results) -> "tuple[Canvas, list[Row]] | None":
    """Draw one panel per metric and one row per label, with 95 % intervals as whiskers; None if there are no values."""
    from matplotlib import pyplot as plt

    shown = {point.labels[figure.x] for point in results.points(figure.where)}
    labels = [label for label in results.experiment.labels(figure.x) if label in shown]
    panels = {
        metric: [results.mean({**figure.where, figure.x: label}, metric) for label in labels]
        for metric in figure.metrics
    }
    if not any(one.n for found in panels.values() for one in found):
        return None
    rows = math.ceil(len(panels) / COLUMNS)
    height_in = rows * (0.75 + 0.21 * len(labels)) + 0.1
    canvas, axes = plt.subplots(
        rows, COLUMNS, figsize=(OVERVIEW_WIDTH_IN, height_in), squeeze=False, layout="constrained", sharey=True
    )
    for ax, (metric, found) in zip(axes.flat, panels.items(), strict=False):
        _overview_panel(ax, metric, found)
    for ax in list(axes.flat)[len(panels) :]:
        ax.set_visible(False)
    for row in axes:
        row[0].set_yticks(range(len(labels)), labels)
        row[0].set_ylim(len(labels) - 0.4, -0.6)
    plt.close(canvas)
    numbers: list[Row] = [
        {"metric": metric, figure.x: label, **one.as_row()}
        for metric, found in panels.items()
        for label, one in zip(labels, found, strict=True)
    ]
    return canvas, numbers


def _overview_panel(ax: "Axes", metric: str, found: Sequence[Interval]) -> None:
    scale = metric_scale(metric)
    values = [None if one.mean is None else one.mean * scale for one in found]
    # The length of a bar has no meaning on a logarithmic axis, which therefore has markers.
    logarithmic = _spans_decades(values)
    for y, (one, value) in enumerate(zip(found, values, strict=True)):
        below, above, color = one.below * scale, one.above * scale, COLORS[y % len(COLORS)]
        if not value:
            note = "none" if value is None else "0"
            ax.annotate(note, (0.02, y), xycoords=("axes fraction", "data"), va="center", color=_NOTE_COLOR)
        elif logarithmic:
            # A logarithmic axis cannot show a whisker that extends below zero.
            below = min(below, value * 0.9)
            marker = MARKERS[y % len(MARKERS)]
            ax.errorbar([value], [y], xerr=[[below], [above]], color=color, marker=marker, markersize=6, capsize=2)
        else:
            ax.barh([y], [value], 0.68, color=color)
            ax.errorbar([value], [y], xerr=[[below], [above]], ecolor="#222222", elinewidth=0.9, capsize=2, fmt="none")
    if logarithmic:
        ax.set_xscale("log")
    else:
        ax.set_xlim(left=0, right=1.05 if metric == "delivery_ratio" else None)
        group_digits(ax.xaxis, most=3)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(metric_label(metric))


def _spans_decades(values: Sequence[float | None]) -> bool:
    positive = [value for value in values if value]
    return len(positive) == len(values) > 0 and max(positive) > LOG_RATIO * min(positive)
