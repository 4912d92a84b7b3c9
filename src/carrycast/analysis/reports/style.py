"""The style of figures, and the labels of metrics. Matplotlib is imported only by functions that draw."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import XAxis, YAxis

# The palette of Okabe and Ito, safe for all color vision; without yellow, which has too little contrast.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000")
# Series also differ by marker and dash, for print in black and white.
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1.5, 1, 1.5)), (0, (7, 1, 1, 1, 1, 1)), (0, (9, 3)), (0, (1, 3)))

WIDTH_IN = 3.5
"""A column of a two-column paper."""
HEIGHT_IN = 2.6
LABEL_CHARACTERS = 42
"""The number of characters of labels that fit into that width."""
GROUPED_FROM = 10_000
"""Numbers from this size on have thousands separators."""
CLOSE = 0.4
"""If values differ by less than this share of the largest, the axis does not begin at 0, where they would look
equal."""
RESOLUTION_DPI = 300
"""The resolution that journals require."""

STYLE = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.5,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.fontsize": 7.5,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.5,
    "hatch.linewidth": 0.5,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    # Makes SVG files reproducible.
    "svg.hashsalt": "carrycast",
}

METRIC_LABELS = {
    "published": "events published",
    "eligible": "eligible pairs",
    "delivered": "pairs served",
    "delivery_ratio": "delivery ratio",
    "delay_mean_s": "mean delay (s)",
    "delay_p50_s": "median delay (s)",
    "delay_p95_s": "95th percentile of delay (s)",
    "hops_mean": "mean hops",
    "flow_packets": "packets of flows",
    "flow_delivered": "packets delivered",
    "flow_delivery_ratio": "share of packets delivered",
    "flow_delay_mean_s": "mean delay of packets (s)",
    "flow_delay_p50_s": "median delay of packets (s)",
    "flow_delay_p95_s": "95th percentile of packet delay (s)",
    "flow_jitter_mean_s": "mean jitter of packets (s)",
    "flow_hops_mean": "mean hops of packets",
    "flow_control_per_packet": "control frames per packet",
    "flow_transmissions_per_packet": "data frames per packet",
    "transmissions": "transmissions",
    "control_transmissions": "control transmissions",
    "receptions": "receptions",
    "forwards": "forwards",
    "duplicates": "duplicates",
    "data_bytes": "data on the air (kB)",
    "control_bytes": "control on the air (kB)",
    "discovery_bytes": "beacons on the air (kB)",
    "total_bytes": "all on the air (kB)",
    "airtime_us": "airtime (µs)",
    "buffer_peak": "largest buffer (events)",
}


def metric_label(metric: str) -> str:
    """Return the label of a metric, with the unit."""
    if metric in METRIC_LABELS:
        return METRIC_LABELS[metric]
    # The label of other metrics is made from their name.
    words = metric.removesuffix("_bytes").replace("_", " ")
    return f"{words} (kB)" if metric.endswith("_bytes") else words


def metric_scale(metric: str) -> float:
    """Return the factor that converts a metric to the unit of its label."""
    return 0.001 if metric.endswith("_bytes") else 1.0


def group_digits(axis: "XAxis | YAxis", most: int = 5) -> None:
    """Format the ticks of large numbers with thousands separators, and limit their number."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    low, high = axis.get_view_interval()
    if max(abs(low), abs(high)) >= GROUPED_FROM:
        axis.set_major_locator(MaxNLocator(most))
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def label_positions(ax: "Axes", places: Sequence[float], labels: Sequence[str]) -> None:
    """Set text labels along the horizontal axis, rotated if they would overlap."""
    slanting = max(map(len, labels), default=0) * len(labels) > LABEL_CHARACTERS
    ax.set_xticks(places, labels, rotation=30 if slanting else 0, ha="right" if slanting else "center")
    ax.grid(visible=False, axis="x")
    ax.tick_params(axis="x", length=0)


def value_limits(
    ends: Sequence[float], y_from: float | None = None, from_zero: bool = False, whole: float = 0.0
) -> tuple[float, float]:
    """Return the limits of an axis. It begins at 0, unless all values are far from 0 and close together.

    `whole` is the maximum of a share; an axis that begins at 0 extends to it.
    """
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    near = low > 0 and high - low < CLOSE * high
    if y_from is None and near and not from_zero:
        margin = 0.08 * (high - low) or 0.05 * high
        return low - margin, high + margin
    begin = min(0.0, low) if y_from is None or from_zero else y_from
    # A margin, so that a marker at the top is not cut.
    return begin, begin + 1.05 * (max(high, whole) - begin or 1.0)


@contextmanager
def paper_style() -> Iterator[None]:
    """Use the style of the reports while the body draws, without a display."""
    import matplotlib as mpl

    mpl.use("agg")
    with mpl.rc_context(STYLE):  # type: ignore[arg-type] # the stubs know only literal keys
        yield
