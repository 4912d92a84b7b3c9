"""Figures of single runs rather than of their means: box plots, histograms, and panels run by run."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from carrycast.analysis.reports.style import (
    COLORS,
    HEIGHT_IN,
    WIDTH_IN,
    label_positions,
    metric_label,
    metric_scale,
    value_limits,
)
from carrycast.analysis.spark import Figure, Results, Selector, confidence_interval
from carrycast.trace import quantile

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

KINDS = ("box", "histogram", "runs")
Row = dict[str, object]

WHISKERS = 1.5
"""Tukey's rule: whiskers extend to the last run within this many box heights; runs beyond are single markers."""
MAX_BINS = 120
"""Up to this many bins, each whole value has its own. Counts of a hundred messages fit."""
RUN_PANEL_IN = 1.05
_LIGHT = "#cfe3f1"
_MEAN_COLOR = "#D55E00"


class LabeledValues(NamedTuple):
    """The values of one metric over runs, under a label."""

    label: str
    values: list[float]


def draw_distribution(figure: Figure, results: Results) -> "tuple[Canvas, list[Row]] | None":
    """Draw a figure of single runs; return it with its numbers, or None if there are no values."""
    if figure.kind == "box":
        return _draw_boxes(figure, results)
    if figure.kind == "histogram":
        return _draw_histograms(figure, results)
    return _draw_runs(figure, results)


def box_statistics(values: Sequence[float]) -> dict[str, float | int | None]:
    """Return the numbers of a box plot: quartiles, median, mean, ends of the whiskers, and the number of runs beyond
    them."""
    ordered = sorted(values)
    low, middle, high = (quantile(ordered, q) for q in (0.25, 0.5, 0.75))
    assert low is not None
    assert high is not None
    reach = WHISKERS * (high - low)
    inside = [value for value in ordered if low - reach <= value <= high + reach]
    return {
        "n": len(ordered),
        "mean": math.fsum(ordered) / len(ordered),
        "low": inside[0],
        "q1": low,
        "median": middle,
        "q3": high,
        "high": inside[-1],
        "beyond": len(ordered) - len(inside),
    }


def _samples(figure: Figure, results: Results, metric: str, axis: str, where: Selector) -> list[LabeledValues]:
    """Return the values of a metric over runs, for each label of an axis."""
    found = []
    shown = {point.labels[axis] for point in results.points({**figure.where, **where})}
    for label in results.experiment.labels(axis):
        if label in shown:
            values = results.select({**figure.where, **where, axis: label}, metric).values()
            scaled = [value * metric_scale(metric) for value in values if value is not None]
            if scaled:
                found.append(LabeledValues(label, scaled))
    return found


def _draw_boxes(figure: Figure, results: Results) -> "tuple[Canvas, list[Row]] | None":
    from matplotlib import pyplot as plt

    panels = [(metric, _samples(figure, results, metric, figure.x, {})) for metric in figure.metrics]
    if not any(samples for _, samples in panels):
        return None
    width_in = WIDTH_IN * (1 if len(panels) == 1 else 0.92 * len(panels))
    canvas, axes = plt.subplots(1, len(panels), figsize=(width_in, HEIGHT_IN), squeeze=False, layout="constrained")
    axis = results.experiment.axis(figure.x)
    for ax, (metric, samples) in zip(axes[0], panels, strict=True):
        _box_panel(ax, samples)
        ax.set_ylabel(metric_label(metric))
        ax.set_xlabel(axis.title or axis.name)
        if figure.log_y:
            ax.set_yscale("log")
        else:
            ends = [value for sample in samples for value in sample.values]
            ax.set_ylim(*value_limits(ends, figure.y_from, from_zero=False))
    plt.close(canvas)
    rows: list[Row] = [
        {"metric": metric, figure.x: sample.label, **box_statistics(sample.values)}
        for metric, samples in panels
        for sample in samples
    ]
    return canvas, rows


def _box_panel(ax: "Axes", samples: list[LabeledValues]) -> None:
    shown = ax.boxplot(
        [sample.values for sample in samples],
        whis=WHISKERS,
        widths=0.55,
        patch_artist=True,
        showmeans=True,
        boxprops={"facecolor": _LIGHT, "edgecolor": COLORS[0], "linewidth": 0.9},
        whiskerprops={"color": COLORS[0], "linewidth": 0.9},
        capprops={"color": COLORS[0], "linewidth": 0.9},
        medianprops={"color": "#000000", "linewidth": 1.3},
        meanprops={"marker": "D", "markerfacecolor": _MEAN_COLOR, "markeredgecolor": "none", "markersize": 4},
        # Many runs have equal values; transparent markers show their density.
        flierprops={
            "marker": "o",
            "markersize": 2.5,
            "markerfacecolor": COLORS[0],
            "alpha": 0.25,
            "markeredgewidth": 0,
        },
    )
    label_positions(ax, range(1, len(samples) + 1), [sample.label for sample in samples])
    ax.legend([shown["means"][0]], ["mean"], loc="best", handletextpad=0.2)


def _draw_histograms(figure: Figure, results: Results) -> "tuple[Canvas, list[Row]] | None":
    from matplotlib import pyplot as plt

    axis = figure.panels or results.experiment.definition.axes[0].name
    samples = _samples(figure, results, figure.y, axis, {})
    if not samples:
        return None
    columns = min(3, len(samples))
    rows_of = math.ceil(len(samples) / columns)
    canvas, grid = plt.subplots(
        rows_of,
        columns,
        figsize=(0.75 * WIDTH_IN * columns, 0.8 * HEIGHT_IN * rows_of + 0.2),
        sharex=True,
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    low = min(min(sample.values) for sample in samples)
    high = max(max(sample.values) for sample in samples)
    width = max(1.0, math.ceil((high - low + 1) / MAX_BINS))
    numbers: list[Row] = []
    panels = list(grid.flat)
    for ax, sample in zip(panels, samples, strict=False):
        bins = _bin_counts(sample.values, low, width)
        shares = [100 * count / len(sample.values) for count in bins.values()]
        ax.bar(list(bins), shares, width * 0.9, align="edge", color=COLORS[0])
        mean = math.fsum(sample.values) / len(sample.values)
        # A small arrow at the bottom shows the mean, as in the paper on ASP.
        ax.annotate(
            "",
            (mean, 0),
            (mean, -0.09),
            xycoords=("data", "axes fraction"),
            textcoords=("data", "axes fraction"),
            arrowprops={"arrowstyle": "-|>", "color": _MEAN_COLOR, "shrinkA": 0, "shrinkB": 0},
        )
        ax.set_title(f"{sample.label} (mean {mean:.1f})")
        if figure.log_y:
            ax.set_yscale("log")
        numbers += [
            {axis: sample.label, "from": left, "runs": count, "share": count / len(sample.values)}
            for left, count in bins.items()
        ]
    for ax in panels[len(samples) :]:
        ax.set_visible(False)
    for place, ax in enumerate(panels[: len(samples)]):
        if place + columns >= len(samples):
            ax.set_xlabel(metric_label(figure.y))
            ax.tick_params(labelbottom=True)
    for row in grid:
        row[0].set_ylabel("runs (%)")
    plt.close(canvas)
    return canvas, numbers


def _bin_counts(values: Sequence[float], low: float, width: float) -> dict[float, int]:
    """Return the number of values in each bin that is not empty, by its lower end."""
    counts: dict[float, int] = {}
    for value in sorted(values):
        left = low + width * math.floor((value - low) / width)
        counts[left] = counts.get(left, 0) + 1
    return counts


def _draw_runs(figure: Figure, results: Results) -> "tuple[Canvas, list[Row]] | None":
    from matplotlib import pyplot as plt

    found = {metric: results.select(figure.where, metric) for metric in figure.metrics}
    seeds = sorted({seed for values in found.values() for seed in values})[: figure.first]
    if not seeds:
        return None
    canvas, axes = plt.subplots(
        len(found),
        1,
        figsize=(2 * WIDTH_IN, RUN_PANEL_IN * len(found) + 0.4),
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for place, (metric, values) in enumerate(found.items()):
        ax = axes[place][0]
        heights = [(values.get(seed) or 0.0) * metric_scale(metric) for seed in seeds]
        ax.bar(seeds, heights, 0.8, color=COLORS[place % len(COLORS)])
        ax.set_ylabel(metric_label(metric).replace(" by ", "\nby "), rotation=0, ha="right", va="center")
        ax.grid(visible=False, axis="x")
        ax.set_ylim(0, max([1.0, *heights]) * 1.05)
        ax.margins(x=0.01)
    axes[-1][0].set_xlabel("run (seed)")
    plt.close(canvas)
    rows: list[Row] = [
        {"seed": seed, **{metric: values.get(seed) for metric, values in found.items()}} for seed in seeds
    ]
    rows += [
        {
            "seed": "mean of all runs",
            **{metric: confidence_interval(values.values()).mean for metric, values in found.items()},
        }
    ]
    return canvas, rows
