"""`watch`: metrics of live nodes for each minute, from the traces that they write."""

import argparse
import math
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import Commands, add_command, console, print_json
from carrycast.errors import UserError

if TYPE_CHECKING:
    from rich.console import Group

    from carrycast.analysis.telemetry import Watcher

WEEK_S = 604_800.0


def add_commands(commands: Commands) -> None:
    """Declare `watch`."""
    watch = add_command(
        commands,
        "watch",
        "Show the metrics of live nodes minute by minute.",
        "It follows the traces that the nodes write, on Spark. Delivery, delay, load and drops of each minute appear "
        "in the terminal, and as Parquet tables. After a restart it continues where it stopped. See docs/telemetry.md.",
    )
    watch.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="folders with the traces of nodes")
    watch.add_argument(
        "--out",
        type=Path,
        default=Path("out/watch"),
        metavar="DIR",
        help="the output folder of the tables (default: out/watch)",
    )
    watch.add_argument(
        "--late",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="the longest delay with which a row may be written and still count (default: 300)",
    )
    watch.add_argument(
        "--wait",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="how long to wait for deliveries of an event after its minute (default: 3600)",
    )
    watch.add_argument(
        "--every",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="the interval of searches for new files (default: 2)",
    )
    watch.add_argument("--once", action="store_true", help="process the files that exist, and stop")
    watch.add_argument(
        "--json", action="store_true", help="print a JSON object for each step (with --once only one) and nothing else"
    )
    watch.set_defaults(command=_watch)


def _watch(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark import check_spark_installed, lock_folder, session
    from carrycast.analysis.telemetry import TelemetrySettings, Watcher, WatchFolder, check_folders

    for option, least in (("late", 1.0), ("wait", 0.0), ("every", 0.1)):
        value = getattr(arguments, option)
        if not (math.isfinite(value) and least <= value <= WEEK_S):
            raise UserError(f"--{option} {value:g}: give from {least:g} to {WEEK_S:g} seconds")
    out = arguments.out
    settings = TelemetrySettings(
        folders=check_folders(arguments.directories, out), late_s=arguments.late, wait_s=arguments.wait
    )
    check_spark_installed()
    with lock_folder(out):
        folder = WatchFolder(out, settings)
        watcher = Watcher(session("carrycast"), folder)
        with _catch_signals() as ended:
            watcher.start(arguments.every, arguments.once)
            if arguments.json and arguments.once:
                watcher.run(ended, lambda: None)
                _print_step(watcher, whole=True)
            elif arguments.json:
                watcher.run(ended, lambda: _print_step(watcher, whole=False))
            elif sys.stdout.isatty() and not arguments.once:
                _show_live(watcher, ended)
            else:
                watcher.run(ended, lambda: print(_status_line(watcher), file=sys.stderr, flush=True))
                console().print(_make_view(watcher, whole=arguments.once))
    return 0


@contextmanager
def _catch_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set, so that the current step is finished. A second one ends at once."""
    ended = threading.Event()
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def on_signal(number: int, _frame: object) -> None:
        ended.set()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, on_signal)
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show_live(watcher: "Watcher", ended: threading.Event) -> None:
    """Show a table that is updated in place."""
    from rich.live import Live

    with Live(_make_view(watcher), console=console(), auto_refresh=False) as live:
        watcher.run(ended, lambda: live.update(_make_view(watcher), refresh=True))


def _make_view(watcher: "Watcher", whole: bool = False) -> "Group":
    from rich.console import Group
    from rich.text import Text

    from carrycast.analysis.telemetry import RECENT, minutes_table, read_minutes

    minutes = read_minutes(watcher.folder.out, None if whole else RECENT)
    lines = [Text(_status_line(watcher))]
    skewed = sum(minute.get("delays_negative") or 0 for minute in minutes)
    if skewed:
        lines.append(Text(f"{skewed} deliveries before their publication: clocks of nodes do not agree", "yellow"))
    return Group(minutes_table(minutes), *lines)


def _status_line(watcher: "Watcher") -> str:
    found = watcher.commit
    if found.step < 0:
        return f"no trace yet; tables go to {watcher.folder.out}"
    # Rows from before the watch began say nothing about how far it is behind.
    behind = f", {watcher.behind_s:.1f} s behind" if watcher.behind_s is not None and watcher.behind_s < WEEK_S else ""
    lost = f", {found.left_out:,} left out" if found.left_out else ""
    lost += f", {found.waiting:,} deliveries without their events" if found.waiting else ""
    refused = f", {found.refused} files refused" if found.refused else ""
    traces = "1 trace" if len(found.traces) == 1 else f"{len(found.traces)} traces"
    counts = f"{found.rows:,} rows of {traces}{behind}{lost}{refused}"
    return f"{counts}; tables in {watcher.folder.out}"


def _print_step(watcher: "Watcher", whole: bool) -> None:
    from carrycast.analysis.telemetry import RECENT, read_minutes

    found = watcher.commit
    print_json(
        {
            "step": found.step,
            "rows": found.rows,
            "left_out": found.left_out,
            "waiting": found.waiting,
            "refused": found.refused,
            "watermark_s": found.watermark_s,
            "behind_s": watcher.behind_s,
            "out": str(watcher.folder.out),
            "minutes": read_minutes(watcher.folder.out, None if whole else RECENT),
        }
    )
    sys.stdout.flush()
