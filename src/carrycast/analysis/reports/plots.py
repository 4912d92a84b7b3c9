"""Figures of results for the public API: a matplotlib figure that notebooks show and papers can print.

Colors are Okabe and Ito's, which readers with any color vision tell apart; series differ by marker and dash as well.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from matplotlib import rc_context
from matplotlib.figure import Figure

from carrycast.analysis.reports.style import (
    COLORS,
    DASHES,
    HEIGHT_IN,
    MARKERS,
    RESOLUTION_DPI,
    STYLE,
    WIDTH_IN,
    group_digits,
    label_positions,
    metric_label,
    metric_scale,
)
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Width: TypeAlias = Literal["column", "page"]
WIDTHS_IN = {"column": WIDTH_IN, "page": 7.16}
"""One column of a two-column paper, and both (IEEE and ACM templates)."""
FORMATS = ("pdf", "png", "svg")
COMPARED = ("delivery_ratio", "delay_p50_s", "total_bytes")
"""The metrics that a figure of a comparison shows: how much arrives, how soon, at which cost."""
TEXT_NOT_OUTLINES = {**STYLE, "svg.fonttype": "none", "pdf.fonttype": 42}
"""Editors of papers search, copy and restyle text; 42 is TrueType, which publishers accept."""
Row: TypeAlias = Mapping[str, object]


class PaperFigure(Figure):
    """A matplotlib figure in the style of the reports. `save` writes it for a paper."""

    def save(self, path: str | Path) -> Path:
        """Write the figure as PDF, SVG (both with text, not outlines) or PNG (300 dpi), by the name's ending."""
        target = Path(path)
        kind = target.suffix.removeprefix(".").lower()
        if kind not in FORMATS:
            raise UserError(f"{target}: a figure is written as {', '.join(f'.{one}' for one in FORMATS)}")
        # The same numbers give the same file.
        metadata: dict[str, Any] = {
            "pdf": {"CreationDate": None},
            "png": {"Software": None},
            "svg": {"Date": None, "Creator": None},
        }[kind]
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with rc_context(TEXT_NOT_OUTLINES):  # type: ignore[arg-type] # the stubs know only literal keys
                self.savefig(target, format=kind, dpi=RESOLUTION_DPI, metadata=metadata)
        except OSError as error:
            raise WorkError(f"{target}: the figure cannot be written: {error.strerror or error}") from None
        return target

    def _repr_png_(self) -> bytes:
        """The picture for notebooks."""
        import io

        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=150)
        return buffer.getvalue()


def plot_delivery_over_time(
    series: Mapping[str, tuple[Sequence[float], int]], width: Width = "column", title: str = ""
) -> PaperFigure:
    """The share of eligible pairs that was served within a time; each series has its delays and its eligible pairs."""
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = _figure(width)
        ax = figure.add_subplot()
        for place, (label, (delays_s, eligible)) in enumerate(series.items()):
            times_s = sorted(delays_s)
            shares = [number / eligible for number in range(1, len(times_s) + 1)] if eligible else []
            # From the first delivery on, and flat after the last one.
            ax.step(times_s, shares, where="post", color=COLORS[place % len(COLORS)], label=label)
        longest_s = max((delay_s for delays_s, _ in series.values() for delay_s in delays_s), default=1.0)
        ax.set_xlim(0.0, longest_s * 1.05 or 1.0)
        ax.set_ylim(0.0, 1.05)
        ax.set_xlabel("time since publication (s)")
        ax.set_ylabel("share of pairs served")
        if title:
            ax.set_title(title)
        if len(series) > 1:
            ax.legend()
        return figure


def plot_comparison(
    rows: Sequence[Row], metrics: Sequence[str] = COMPARED, width: Width = "page", title: str = ""
) -> PaperFigure:
    """A panel for each metric with a bar for each protocol; whiskers are 95 % confidence intervals."""
    protocols = list(dict.fromkeys(str(row["protocol"]) for row in rows))
    found = {(str(row["protocol"]), str(row["metric"])): row for row in rows}
    known = list(dict.fromkeys(str(row["metric"]) for row in rows))
    for metric in metrics:
        if metric not in known:
            raise UserError(f"metrics: {metric!r} is none of {', '.join(known)}")
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = _figure(width, height_in=0.85 + 0.24 * len(protocols))
        axes = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
        for ax, metric in zip(axes, metrics, strict=True):
            _draw_bars(ax, metric, [found.get((protocol, metric), {}) for protocol in protocols])
        axes[0].set_yticks(range(len(protocols)), protocols)
        axes[0].set_ylim(len(protocols) - 0.4, -0.6)
        if title:
            figure.suptitle(title, fontsize=9)
        return figure


def plot_lines(
    rows: Sequence[Row], x: str, metric: str, series: str | None = None, width: Width = "column"
) -> PaperFigure:
    """A metric over an axis of a sweep, a line for each value of another axis; bands are 95 % confidence intervals.

    A row has the labels of its point, and `mean`, `low` and `high` of the metric.
    """
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = _figure(width)
        ax = figure.add_subplot()
        labels = list(dict.fromkeys(str(row[series]) if series else "" for row in rows))
        xs = list(dict.fromkeys(row[x] for row in rows))
        numeric = all(_is_number(value) for value in xs)
        positions = {value: float(str(value)) if numeric else float(place) for place, value in enumerate(xs)}
        scale = metric_scale(metric)
        for place, label in enumerate(labels):
            mine = [row for row in rows if (not series or str(row[series]) == label) and row["mean"] is not None]
            mine.sort(key=lambda row: positions[row[x]])
            places = [positions[row[x]] for row in mine]
            means = [scale * _number(row["mean"]) for row in mine]
            color = COLORS[place % len(COLORS)]
            dash, marker = DASHES[place % len(DASHES)], MARKERS[place % len(MARKERS)]
            ax.plot(places, means, color=color, linestyle=dash, marker=marker, label=label)
            low, high = (
                [scale * _number(row["mean"] if row[end] is None else row[end]) for row in mine]
                for end in ("low", "high")
            )
            ax.fill_between(places, low, high, color=color, alpha=0.18, linewidth=0)
        if not numeric:
            label_positions(ax, list(positions.values()), [str(value) for value in xs])
        ax.set_xlabel(x)
        ax.set_ylabel(metric_label(metric))
        group_digits(ax.yaxis)
        if series:
            ax.legend(title=series)
        return figure


def plot_degree(times_s: Sequence[float], degrees: Sequence[float], width: Width = "column") -> PaperFigure:
    """The mean number of neighbors of a node over time."""
    with rc_context(STYLE):  # type: ignore[arg-type]
        figure = _figure(width)
        ax = figure.add_subplot()
        ax.step(times_s, degrees, where="post", color=COLORS[0])
        ax.set_ylim(bottom=0.0)
        ax.set_xlabel("time (s)")
        ax.set_ylabel("neighbors of a node, mean")
        return figure


def _figure(width: Width, height_in: float = HEIGHT_IN) -> PaperFigure:
    if width not in WIDTHS_IN:
        raise UserError(f"width: {width!r} is none of {', '.join(map(repr, WIDTHS_IN))}")
    return PaperFigure(figsize=(WIDTHS_IN[width], height_in), layout="constrained")


def _draw_bars(ax: "Axes", metric: str, found: Sequence[Row]) -> None:
    scale = metric_scale(metric)
    for y, row in enumerate(found):
        mean, low, high = (row.get(key) for key in ("mean", "low", "high"))
        if mean is None:
            ax.annotate("none", (0.02, y), xycoords=("axes fraction", "data"), va="center", color="#5d646d")
            continue
        value = scale * _number(mean)
        ax.barh([y], [value], 0.68, color=COLORS[y % len(COLORS)])
        if low is not None and high is not None:
            whiskers = [[value - scale * _number(low)], [scale * _number(high) - value]]
            ax.errorbar([value], [y], xerr=whiskers, ecolor="#222222", elinewidth=0.9, capsize=2, fmt="none")
    ax.set_xlim(left=0, right=1.05 if metric == "delivery_ratio" else None)
    group_digits(ax.xaxis, most=3)
    ax.tick_params(axis="y", length=0)
    ax.grid(visible=False, axis="y")
    ax.set_xlabel(metric_label(metric))


def _is_number(value: object) -> bool:
    try:
        return math.isfinite(float(str(value)))
    except ValueError:
        return False


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)
