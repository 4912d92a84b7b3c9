"""Writes the table of a comparison into a page of the docs, and its picture beside it.

`python docs/pictures/head_to_head.py OUT PAGE` takes what `carrycast compare ... --out OUT` wrote and replaces, in
PAGE, what stands between the lines `<!-- comparison -->` and `<!-- end of comparison -->`.
"""

import csv
import re
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).parent
COLUMNS = {
    "delivery_ratio": ("delivered", 1.0),
    "delay_p50_s": ("delay, median (ms)", 1000.0),
    "delay_p95_s": ("delay, 95 % (s)", 1.0),
    "hops_mean": ("hops", 1.0),
    "data_bytes": ("data (kB)", 0.001),
    "control_bytes": ("control (kB)", 0.001),
    "total_bytes": ("total (kB)", 0.001),
}


def cell(row: dict[str, str], scale: float) -> str:
    """A mean with its interval, which leans; as many digits as tell something."""
    if not row["mean"]:
        return "-"
    mean = float(row["mean"]) * scale
    digits = 0 if abs(mean) >= 100 else 1 if abs(mean) >= 10 else 2
    if not row["high"]:
        return f"{mean:,.{digits}f}"
    low, high = (float(row[end]) * scale for end in ("low", "high"))
    return f"{mean:,.{digits}f} ({low:,.{digits}f} to {high:,.{digits}f})"


def table(path: Path) -> list[str]:
    """A row for each protocol."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            found.setdefault(row["protocol"], {})[row["metric"]] = row
    lines = [
        f"| protocol | {' | '.join(title for title, _ in COLUMNS.values())} |",
        "|---" * (len(COLUMNS) + 1) + "|",
    ]
    for protocol, rows in found.items():
        cells = [cell(rows[metric], scale) for metric, (_, scale) in COLUMNS.items()]
        lines.append(f"| {protocol} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    """Replace the section."""
    out, page = Path(sys.argv[1]), Path(sys.argv[2])
    picture = HERE / f"compare-{page.stem.removeprefix('results-')}.png"
    shutil.copyfile(out / "compare.png", picture)
    lines = [f"![The comparison](pictures/{picture.name})", "", *table(out / "compare.csv")]
    body = "\n".join(lines)
    kept = f"<!-- comparison -->\n{body}\n<!-- end of comparison -->"
    text = page.read_text()
    page.write_text(
        re.sub(r"<!-- comparison -->\n.*?<!-- end of comparison -->", lambda _: kept, text, flags=re.DOTALL)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
