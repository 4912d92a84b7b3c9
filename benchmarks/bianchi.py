"""Saturation throughput of `csma` beside Bianchi's model: writes the table of docs/results-radio.md and its picture.

Run it from the repository's root as `python -m benchmarks.bianchi`.
"""

import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from carrycast.sim.radio.dot11 import CsmaRadio
from tests.validation.bianchi import saturation
from tests.validation.cell import saturated_cell, under_the_models_conditions

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "results-radio.md"
PICTURE = DOCS / "pictures" / "bianchi.png"
BEGIN, END = "<!-- python -m benchmarks.bianchi: begin -->", "<!-- end -->"

STATIONS = (2, 5, 10, 20, 50)
MESSAGE_BYTES = 1500
SEEDS = range(1, 6)
DURATION_S = 20.0
ACCESSES = {"basic": 65535, "RTS/CTS": 0}
# Two colors that are told apart in gray and by color-blind readers.
COLORS = {"basic": "#0b5394", "RTS/CTS": "#d2691e"}


class Point(NamedTuple):
    """Megabits of messages per second that so many stations carry."""

    access: str
    stations: int
    model: float
    same_rules: float
    same_rules_error: float
    """The standard error over the seeds."""
    standard: float


def measure() -> list[Point]:
    """Every access method and number of stations."""
    points = []
    for access, threshold in ACCESSES.items():
        standard = CsmaRadio(basic_rate_bps=2e6, overhead_bytes=28, rts_threshold_bytes=threshold)
        models = under_the_models_conditions(standard)
        for stations in STATIONS:
            same, other = (
                [saturated_cell(radio, stations, MESSAGE_BYTES, seed).megabits_per_s(DURATION_S) for seed in SEEDS]
                for radio in (models, standard)
            )
            error = stdev(same) / len(same) ** 0.5
            model = saturation(models.dot11(), stations, MESSAGE_BYTES)
            points.append(Point(access, stations, model, fmean(same), error, fmean(other)))
    return points


def table(points: list[Point]) -> str:
    """The points as Markdown."""
    rows = [
        "| access | stations | Bianchi, Mb/s | `csma`, model's rules | off by | `csma`, standard's rules | off by |",
        "|---|---|---|---|---|---|---|",
    ]
    for point in points:
        same, other = point.same_rules / point.model - 1, point.standard / point.model - 1
        rows.append(
            f"| {point.access} | {point.stations} | {point.model:.3f} | {point.same_rules:.3f}"
            f" ± {1.96 * point.same_rules_error:.3f} | {same:+.2%} | {point.standard:.3f} | {other:+.1%} |"
        )
    return "\n".join(rows)


def draw(points: list[Point], path: Path) -> None:
    """The points as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 4.4), layout="constrained")
    smooth = range(2, 51)
    for access, threshold in ACCESSES.items():
        dot11 = CsmaRadio(basic_rate_bps=2e6, overhead_bytes=28, rts_threshold_bytes=threshold).dot11()
        color, mine = COLORS[access], [point for point in points if point.access == access]
        model = [saturation(dot11, stations, MESSAGE_BYTES) for stations in smooth]
        axes.plot(smooth, model, color=color, label=f"{access}: Bianchi's model")
        at = [point.stations for point in mine]
        axes.plot(
            at, [point.same_rules for point in mine], "o", color=color, label=f"{access}: csma, the model's rules"
        )
        axes.plot(
            at, [point.standard for point in mine], "x--", color=color, lw=0.8, label=f"{access}: csma, the standard's"
        )
    axes.set_xscale("log")
    axes.set_xticks(STATIONS, [str(stations) for stations in STATIONS])
    axes.minorticks_off()
    axes.set_ylim(0, None)
    axes.set_xlabel("saturated stations")
    axes.set_ylabel("messages carried, Mb/s")
    axes.set_title(f"802.11b, 11 Mb/s, messages of {MESSAGE_BYTES} bytes", loc="left", fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="lower left", ncols=2)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main() -> int:
    """Measure, draw, and put the table on its page."""
    points = measure()
    draw(points, PICTURE)
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or END not in rest:
        raise SystemExit(f"{PAGE}: has no lines {BEGIN} and {END} to put the table between")
    PAGE.write_text(f"{before}{BEGIN}\n{table(points)}\n{END}{after}")
    sys.stdout.write(table(points) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
