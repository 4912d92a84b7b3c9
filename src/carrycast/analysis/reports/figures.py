"""Draws the figures of an experiment: a picture for papers (PNG), one for the page (SVG), and the numbers."""

import io
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from carrycast.analysis.reports.distributions import KINDS as DISTRIBUTIONS
from carrycast.analysis.reports.distributions import distribution
from carrycast.analysis.reports.picture import overview
from carrycast.analysis.reports.roads import map_figure
from carrycast.analysis.reports.style import (
    COLORS,
    DASHES,
    HEIGHT_IN,
    MARKERS,
    RESOLUTION_DPI,
    WIDTH_IN,
    group_digits,
    metric_label,
    metric_scale,
    name_places,
    paper_style,
    value_limits,
)
from carrycast.analysis.spark.definition import Axis, Figure, Selector, axis_labels
from carrycast.analysis.spark.experiment import Experiment, Point
from carrycast.analysis.spark.records import metric_bounds
from carrycast.analysis.spark.results import Results, served_share_over_time, time_grid
from carrycast.analysis.spark.statistics import Interval, confidence_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

MOST_NAMED = 8
"""Values of an axis that can stand beside each other."""
LEGEND_CHARACTERS = 62
"""As many fit over a panel; a swatch takes as much as some of them."""
SWATCH_CHARACTERS = 6
MARKS_OVER_TIME = 12
ROW = ("panel", "series", "x", "n", "mean", "low", "high")


@dataclass(frozen=True)
class Drawn:
    """A finished figure."""

    figure: Figure
    png: bytes
    svg: bytes
    rows: list[dict[str, object]]
    """What was drawn, in numbers."""


@dataclass(frozen=True)
class _Mark:
    """A mean with its interval at a place; for a trade-off the place has an interval too."""

    x: float
    y: Interval
    x_interval: Interval | None = None


def draw(figure: Figure, results: Results) -> Drawn | None:
    """One figure; None if what it shows left no data."""
    if figure.kind in ("map", "overview") or figure.kind in DISTRIBUTIONS:
        of_kind = {"map": map_figure, "overview": overview}.get(figure.kind, distribution)
        with paper_style():
            found = of_kind(figure, results)
            return None if found is None else _finished(figure, *found)
    curves = _curves(results) if figure.kind == "over_time" else {}
    panels: list[tuple[str, dict[str, list[_Mark]]]] = []
    for panel in _labels(results.experiment, figure.panels, figure.where):
        where: Selector = {**figure.where, **({figure.panels: panel} if figure.panels else {})}
        panels.append((panel, _series(figure, where, results, curves)))
    if not any(marks for _, series in panels for marks in series.values()):
        return None
    with paper_style():
        canvas = _canvas(figure, panels, results.experiment)
        return _finished(figure, canvas, _rows(figure, panels, results.experiment))


def _finished(figure: Figure, canvas: "Canvas", rows: list[dict[str, object]]) -> Drawn:
    png, svg = io.BytesIO(), io.BytesIO()
    canvas.savefig(png, format="png", dpi=RESOLUTION_DPI, metadata={"Software": None})
    canvas.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Drawn(figure, png.getvalue(), svg.getvalue(), rows)


def _labels(experiment: Experiment, axis: str | None, where: Selector) -> list[str]:
    if axis is None:
        return [""]
    present = {point.labels[axis] for point in experiment.points if point.chosen(where)}
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
            found[name] = _along(figure, figure.y, selector, results)
    if figure.kind == "line":
        found |= {metric_label(metric): _along(figure, metric, where, results) for metric in figure.metrics}
    if figure.kind == "timeline":
        found |= {metric_label(metric): _timeline(metric, where, results) for metric in figure.metrics}
    return found


def _timeline(metric: str, selector: Selector, results: Results) -> list[_Mark]:
    scale = metric_scale(metric)
    return [_Mark(time_s, _scaled(found, scale)) for time_s, found in results.timeline(selector, metric)]


def _along(figure: Figure, metric: str, selector: Selector, results: Results) -> list[_Mark]:
    scale, marks = metric_scale(metric), []
    for place, label in enumerate(_labels(results.experiment, figure.x, figure.where)):
        chosen: Selector = {**selector, figure.x: label}
        points = results.points(chosen)
        if not points:
            continue
        y = _scaled(results.mean(chosen, metric), scale)
        value = points[0].values[figure.x]
        number = isinstance(value, int | float) and figure.kind == "line"
        marks.append(_Mark(float(value) if number and isinstance(value, int | float) else float(place), y))
    return marks


def _tradeoff(figure: Figure, point: Point, results: Results) -> _Mark:
    x = _scaled(
        confidence_interval(results.by_seed(point, figure.x).values(), metric_bounds(figure.x)), metric_scale(figure.x)
    )
    y = _scaled(
        confidence_interval(results.by_seed(point, figure.y).values(), metric_bounds(figure.y)), metric_scale(figure.y)
    )
    return _Mark(math.nan if x.mean is None else x.mean, y, x)


def _curves(results: Results) -> dict[str, list[_Mark]]:
    """For each point, the share of pairs served within a time."""
    times_s = time_grid(max(point.scenario.duration_s for point in results.experiment.points))
    shares = served_share_over_time(results, times_s) or {}
    return {
        point: [_Mark(time_s, share) for time_s, share in zip(times_s, shared, strict=True)]
        for point, shared in shares.items()
    }


def _scaled(found: Interval, scale: float) -> Interval:
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
    # As many beside each other as fit.
    fitting = LEGEND_CHARACTERS * len(panels) // (max(map(len, names)) + SWATCH_CHARACTERS)
    columns = max(1, min(len(names), 3 * len(panels), fitting))
    # A row more for what the legend is called.
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
    # Of marks with intervals the mark alone: its whiskers would make another shape of it.
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
    """Of the axis that all panels share."""
    marks = [mark for _, series in panels for marks in series.values() for mark in marks]
    ends = [end for mark in marks for end in mark.y[1:4] if end is not None and math.isfinite(end)]
    share = figure.kind == "over_time" or figure.y.endswith("_ratio")
    whole = 1.0 if share and all(mark.y.mean is None or mark.y.mean <= 1.0 for mark in marks) else 0.0
    if whole:
        # Of few runs an interval may reach beyond what a share can be; nothing is to be seen there.
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
            # Samples stand close together: a mark for some of them is enough.
            every = max(1, len(marks) // MARKS_OVER_TIME) if figure.kind == "timeline" else 1
            _line(ax, marks, label, place, figure.kind == "over_time", every)
    if figure.kind == "bars":
        labels = _labels(experiment, figure.x, figure.where)
        name_places(ax, range(len(labels)), labels)
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
    """What the series are of; where each is another metric there is nothing to say."""
    if figure.series is None:
        return None
    axis = experiment.axis(figure.series)
    return axis.title or axis.name


def _name_values(ax: "Axes", axis: Axis, present: list[float]) -> None:
    """Where an axis has few values, say those, as they are called."""
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
