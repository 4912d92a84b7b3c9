"""Writes what a report found into a page of the docs, and its figures onto one sheet.

`python docs/pictures/results.py OUT PAGE` takes the report in OUT and replaces, in PAGE, what stands between
the lines `<!-- results NAME -->` and `<!-- end of results -->` of each experiment NAME in it.
"""

import json
import re
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")
import matplotlib.pyplot as plt

from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.reproduction import read_stored_experiments

HERE = Path(__file__).parent
COLUMNS = 3
WIDTH_IN = 4.2
TITLE_IN = 0.3
MARKS = {True: "✓", False: "✗", None: "?"}
VERDICTS = {True: "holds", False: "**fails**", None: "undecided"}


def sheet(name: str, out: Path) -> Path:
    """All figures of an experiment side by side."""
    (experiment,) = [one for one in read_stored_experiments(out) if one.name == name]
    figures = [
        figure for figure in experiment.definition.figures if (out / "figures" / f"{name}-{figure.name}.png").exists()
    ]
    images = [plt.imread(out / "figures" / f"{name}-{figure.name}.png") for figure in figures]
    # Each row is as high as its highest picture.
    heights = [
        TITLE_IN + WIDTH_IN * max(image.shape[0] / image.shape[1] for image in images[first : first + COLUMNS])
        for first in range(0, len(images), COLUMNS)
    ]
    canvas, axes = plt.subplots(
        len(heights),
        COLUMNS,
        figsize=(WIDTH_IN * COLUMNS, sum(heights)),
        squeeze=False,
        layout="constrained",
        height_ratios=heights,
    )
    for ax in axes.flat:
        ax.axis("off")
    for ax, figure, image in zip(axes.flat, figures, images, strict=False):
        ax.imshow(image)
        beside = f" ({figure.paper})" if figure.paper else ""
        ax.set_title(f"{figure.title}{beside}", fontsize=9)
    path = HERE / f"results-{name}.png"
    canvas.savefig(path, dpi=110)
    plt.close(canvas)
    return path


def number(value: object) -> str:
    """As in the report: enough digits to tell apart what differs."""
    if value is None:
        return ""
    if not isinstance(value, int | float):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def table(name: str, out: Path) -> list[str]:
    """The claims of an experiment."""
    lines = ["| claim | paper | ours | 95 % interval | |", "|---|---|---|---|---|"]
    for claim in json.loads((out / "claims.json").read_text()):
        if claim["experiment"] == name:
            low, high = number(claim["low"]), number(claim["high"])
            alone = "" if claim["holds"] is claim["together"] else ", alone"
            verdict = "calibration" if claim["calibration"] else VERDICTS[claim["holds"]] + alone
            interval = f"{low} to {high}" if low else ""
            shown = (
                claim["statement"].replace("|", "/"),
                number(claim["paper"]),
                number(claim["ours"]),
                interval,
                verdict,
            )
            lines.append(f"| {' | '.join(shown)} |")
    return lines


def _has_readings(experiment: Experiment) -> bool:
    return any(axis.name == "reading" for axis in experiment.definition.axes)


def by_reading(name: str, out: Path, readings: list[str]) -> dict[str, dict[str, dict[str, object]]]:
    """The claims of an experiment that makes each of them once for each reading, `reading: claim`."""
    found: dict[str, dict[str, dict[str, object]]] = {}
    for claim in json.loads((out / "claims.json").read_text()):
        reading, _, statement = claim["statement"].partition(": ")
        if claim["experiment"] == name and reading in readings:
            found.setdefault(statement, {})[reading] = claim
    return found


def matrix(found: dict[str, dict[str, dict[str, object]]], readings: list[str]) -> list[str]:
    """A row for each claim, a column for each reading."""
    lines = [f"| | {' | '.join(readings)} |", "|---" * (len(readings) + 1) + "|"]
    for statement, row in found.items():
        cells = [f"{MARKS[row[one]['holds']]} {number(row[one]['ours'])}" if one in row else "" for one in readings]
        lines.append(f"| {statement} | {' | '.join(cells)} |")
    return lines


def summary(found: dict[str, dict[str, dict[str, object]]]) -> list[str]:
    """In which readings each claim holds, fails, or is undecided."""
    lines = ["", "| claim | holds in | fails in | undecided in |", "|---|---|---|---|"]
    for statement, row in found.items():
        readings = ([one for one, claim in row.items() if claim["holds"] is holds] for holds in VERDICTS)
        cells = ("all" if len(names) == len(row) else "; ".join(names) for names in readings)
        lines.append(f"| {statement} | {' | '.join(cells)} |")
    return lines


def seeds(experiment: Experiment) -> str:
    """How many, where points have different numbers the least and the most."""
    counts = sorted({len(experiment.seeds_at(point)) for point in experiment.points})
    return f"{counts[0]} seeds" if len(counts) == 1 else f"{counts[0]} to {counts[-1]} seeds a point"


def readings_of(experiment: Experiment, out: Path) -> list[str]:
    """What an experiment found reading by reading, and what follows from that."""
    readings = experiment.labels("reading")
    found = by_reading(experiment.name, out, readings)
    return [*matrix(found, readings), *summary(found)]


def main() -> int:
    """Replace the sections."""
    out, page = Path(sys.argv[1]), Path(sys.argv[2])
    text = page.read_text()
    for experiment in read_stored_experiments(out):
        name = experiment.name
        section = re.search(rf"<!-- results {name} -->\n.*?<!-- end of results -->", text, re.DOTALL)
        if section is None:
            continue
        picture = sheet(name, out)
        lines = [
            f"`carrycast reproduce {name}` with {seeds(experiment)}:",
            "",
            f"![Figures of {name}](pictures/{picture.name})",
            "",
            *(readings_of(experiment, out) if _has_readings(experiment) else table(name, out)),
        ]
        body = "\n".join(lines)
        kept = f"<!-- results {name} -->\n{body}\n<!-- end of results -->"
        text = text[: section.start()] + kept + text[section.end() :]
    page.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
