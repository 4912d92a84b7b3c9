"""The one picture of a comparison: what each protocol delivers, how soon, and what it costs, side by side."""

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from driftcast.pipeline.report.style import (
    COLORS,
    MARKERS,
    RESOLUTION_DPI,
    group_digits,
    metric_label,
    metric_scale,
    paper_style,
)
from driftcast.pipeline.statistics import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = ("delivery_ratio", "delay_p50_s", "delay_p95_s", "transmissions", "data_bytes", "control_bytes")
"""Gains in the first row, costs in the second."""
COLUMNS = 3
WIDTH_IN = 7.16
"""Both columns of a two-column paper."""
# Where one protocol's value is that many times another's, a linear axis would hide the smaller one.
LOG_RATIO = 50.0
_NOTE_COLOR = "#5d646d"


def comparison_picture(title: str, protocols: Sequence[str], means: Mapping[tuple[str, str], Interval]) -> bytes:
    """A PNG with one panel per metric and one row per protocol; whiskers are 95 % intervals."""
    with paper_style():
        from matplotlib import pyplot as plt

        rows = len(PANELS) // COLUMNS
        height_in = 0.75 + 0.21 * len(protocols)
        canvas, axes = plt.subplots(
            rows, COLUMNS, figsize=(WIDTH_IN, rows * height_in + 0.35), squeeze=False, layout="constrained", sharey=True
        )
        for place, metric in enumerate(PANELS):
            found = [means.get((protocol, metric), Interval(0, None, None, None)) for protocol in protocols]
            _panel(axes[place // COLUMNS][place % COLUMNS], metric, found)
        for row in axes:
            row[0].set_yticks(range(len(protocols)), protocols)
            row[0].set_ylim(len(protocols) - 0.4, -0.6)
        canvas.suptitle(title, fontsize=9, fontweight="bold")
        picture = io.BytesIO()
        canvas.savefig(picture, format="png", dpi=RESOLUTION_DPI, metadata={"Software": None})
        plt.close(canvas)
    return picture.getvalue()


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
