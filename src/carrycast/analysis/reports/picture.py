"""An overview: a panel for each of several metrics, a bar for each label of an axis, side by side."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from carrycast.analysis.reports.style import COLORS, MARKERS, group_digits, metric_label, metric_scale
from carrycast.analysis.spark.definition import Figure
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLUMNS = 3
WIDTH_IN = 7.16
"""Both columns of a two-column paper."""
# Where one label's value is that many times another's, a linear axis would hide the smaller one.
LOG_RATIO = 50.0
_NOTE_COLOR = "#5d646d"
Row = dict[str, object]


def overview(figure: Figure, results: Results) -> "tuple[Canvas, list[Row]] | None":
    """One panel per metric and one row per label; whiskers are 95 % intervals. None if no run has any."""
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
        rows, COLUMNS, figsize=(WIDTH_IN, height_in), squeeze=False, layout="constrained", sharey=True
    )
    for ax, (metric, found) in zip(axes.flat, panels.items(), strict=False):
        _panel(ax, metric, found)
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


def _panel(ax: "Axes", metric: str, found: Sequence[Interval]) -> None:
    scale = metric_scale(metric)
    values = [None if one.mean is None else one.mean * scale for one in found]
    # Bars show amounts by their length, which means nothing on a logarithmic axis: there, marks.
    logarithmic = _spans_decades(values)
    for y, (one, value) in enumerate(zip(found, values, strict=True)):
        below, above, color = one.below * scale, one.above * scale, COLORS[y % len(COLORS)]
        if not value:
            note = "none" if value is None else "0"
            ax.annotate(note, (0.02, y), xycoords=("axes fraction", "data"), va="center", color=_NOTE_COLOR)
        elif logarithmic:
            # A whisker that reached below zero would have no place here.
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
