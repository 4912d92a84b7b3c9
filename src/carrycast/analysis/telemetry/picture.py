"""The results of a watch for the terminal: a row for each minute of each run."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carrycast.analysis.telemetry.folder import read_rows

if TYPE_CHECKING:
    from rich.table import Table

RECENT = 10
"""The number of minutes of each run that the terminal shows."""
DAYS = 2
"""The number of daily files that hold the recent minutes, also just after midnight."""
MOST_REASONS = 3
SIMULATED_S = 1e8
"""Times before 1973 belong to simulated runs, which begin at 0."""

Minute = dict[str, Any]


def read_minutes(out: Path, most: int | None = RECENT) -> list[Minute]:
    """Read the last minutes of each run, or all: deliveries, load, and drops by reason in one row.

    A row lacks the keys for which its minute has no data. `final` is that of the deliveries, which become final last.
    """
    load, deliveries, drops = (_read_rows(out / table, most) for table in ("load", "deliveries", "drops"))
    minutes = merge_minutes(load, deliveries, drops)
    if most is None:
        return minutes
    of_run: dict[str, list[Minute]] = {}
    for minute in minutes:
        of_run.setdefault(minute["run"], []).append(minute)
    return [minute for one in of_run.values() for minute in one[-most:]]


def merge_minutes(load: list[Minute], deliveries: list[Minute], drops: list[Minute]) -> list[Minute]:
    """Merge the tables into one row for each minute, sorted by run and minute."""
    found: dict[tuple[str, int], Minute] = {}
    for row in (*load, *deliveries):
        found.setdefault((row["run"], row["minute_s"]), {}).update(row)
    for row in drops:
        minute = found.get((row["run"], row["minute_s"]))
        if minute is not None:
            minute.setdefault("drops", {})[row["reason"]] = row["drops"]
    return [found[key] for key in sorted(found)]


def minutes_table(minutes: list[Minute]) -> "Table":
    """The minutes as a table of the terminal."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    runs = {minute["run"] for minute in minutes}
    names = ["published", "delivered", "ratio", "p50 s", "p95 s", "frames", "kB", "nodes"]
    for name in [*(["run"] if len(runs) > 1 else []), "minute"]:
        table.add_column(name, no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("drops", overflow="ellipsis", no_wrap=True)
    for minute in minutes:
        ratio, kilobytes = minute.get("delivery_ratio"), minute.get("total_bytes")
        delivered = f"{minute['delivered']}/{minute['eligible']}" if "eligible" in minute else "-"
        table.add_row(
            *([escape(minute["run"])] if len(runs) > 1 else []),
            clock_text(minute["minute_s"]),
            str(minute.get("published", "-")),
            delivered,
            "-" if ratio is None else f"{ratio:.3f}",
            *(_seconds_text(minute.get(name)) for name in ("delay_p50_s", "delay_p95_s")),
            str(minute.get("transmissions", "-")),
            "-" if kilobytes is None else f"{kilobytes / 1000:.1f}",
            str(minute.get("nodes", "-")),
            escape(_drops_text(minute.get("drops", {}))),
            style=None if minute.get("final", True) else "bold",
        )
    return table


def clock_text(minute_s: int) -> str:
    """A minute in local time, or in minutes since the start of a simulated run."""
    if minute_s < SIMULATED_S:
        return f"{minute_s // 60} min"
    return time.strftime("%m-%d %H:%M", time.localtime(minute_s))


def _drops_text(reasons: dict[str, int]) -> str:
    """Drop reasons with their counts, the most frequent first."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{reason or 'no reason'} {number}" for reason, number in ordered[:MOST_REASONS])
    return text + (f", {len(ordered) - MOST_REASONS} more" if len(ordered) > MOST_REASONS else "")


def _seconds_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _read_rows(folder: Path, most: int | None) -> list[Minute]:
    days = sorted(folder.glob("[!.]*.parquet"))
    wanted = days if most is None else days[-DAYS:]
    return [row for path in wanted for row in read_rows(path).to_pylist()]
