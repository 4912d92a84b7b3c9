"""The one picture of a comparison: what each protocol delivers, how soon, and what it costs, side by side."""

import io
from collections.abc import Mapping, Sequence

from driftcast.pipeline.report.style import COLORS, RESOLUTION_DPI, metric_label, metric_scale, paper_style
from driftcast.pipeline.statistics import Interval

PANELS = ("delivery_ratio", "delay_p50_s", "delay_p95_s", "transmissions", "data_bytes", "control_bytes")
"""Gains in the first row, costs in the second."""
COLUMNS = 3
# Where one protocol's value is that many times another's, a linear axis would hide the smaller one.
LOG_RATIO = 50.0


def comparison_picture(title: str, protocols: Sequence[str], means: Mapping[tuple[str, str], Interval]) -> bytes:
    """A PNG with one panel per metric and one bar per protocol; whiskers are 95 % intervals."""
    with paper_style():
        from matplotlib import pyplot as plt

        rows = len(PANELS) // COLUMNS
        height_in = 0.75 + 0.21 * len(protocols)
        canvas, axes = plt.subplots(
            rows, COLUMNS, figsize=(7.16, rows * height_in + 0.35), squeeze=False, layout="constrained", sharey=True
        )
        for place, metric in enumerate(PANELS):
            ax = axes[place // COLUMNS][place % COLUMNS]
            found = [means.get((protocol, metric), Interval(0, None, None, None)) for protocol in protocols]
            scale = metric_scale(metric)
            values = [None if one.mean is None else one.mean * scale for one in found]
            errors = [(one.half_width or 0.0) * scale for one in found]
            known = [(y, value, errors[y]) for y, value in enumerate(values) if value is not None]
            ax.barh(
                [y for y, _, _ in known],
                [value for _, value, _ in known],
                0.68,
                xerr=[error for _, _, error in known],
                color=[COLORS[y % len(COLORS)] for y, _, _ in known],
                error_kw={"ecolor": "#222222", "elinewidth": 0.9, "capsize": 2},
            )
            for y, value in enumerate(values):
                if value is None:
                    ax.annotate("none", (0.02, y), xycoords=("axes fraction", "data"), va="center", color="#5d646d")
            ax.set_yticks(range(len(protocols)), protocols)
            ax.set_ylim(len(protocols) - 0.4, -0.6)
            ax.tick_params(axis="y", length=0)
            ax.grid(visible=False, axis="y")
            ax.set_xlabel(metric_label(metric))
            positive = [value for value in values if value]
            if positive and max(positive) > LOG_RATIO * min(positive) and len(positive) == len(values):
                ax.set_xscale("log")
            else:
                ax.set_xlim(left=0, right=1.05 if metric == "delivery_ratio" else None)
        canvas.suptitle(title, fontsize=9, fontweight="bold")
        picture = io.BytesIO()
        canvas.savefig(picture, format="png", dpi=RESOLUTION_DPI, metadata={"Software": None})
        plt.close(canvas)
    return picture.getvalue()
