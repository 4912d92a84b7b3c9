"""`watch`: what live nodes do, minute by minute, from the traces that they write."""

import argparse
import math
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import console, print_json
from carrycast.errors import UserError

if TYPE_CHECKING:
    from rich.console import Group

    from carrycast.analysis.telemetry import Watcher

WEEK_S = 604_800.0


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    watch = commands.add_parser(
        "watch",
        help="follow the traces of live nodes: delivery, delay, load and drops by the minute",
        description="Follow the traces that live nodes write, on Spark: delivery, delay, load and drops of each minute "
        "in the terminal, and as Parquet tables. Killed and started again, it goes on where it was. docs/telemetry.md.",
    )
    watch.add_argument("directories", nargs="+", type=Path, metavar="DIR", help="where nodes write their traces")
    watch.add_argument(
        "--out", type=Path, default=Path("out/watch"), metavar="DIR", help="where the tables go (default out/watch)"
    )
    watch.add_argument(
        "--late",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="how long after it happened a row may be written and still count (default 300)",
    )
    watch.add_argument(
        "--wait",
        type=float,
        default=3600.0,
        metavar="SECONDS",
        help="how long after its minute deliveries of an event are waited for (default 3600)",
    )
    watch.add_argument(
        "--every", type=float, default=2.0, metavar="SECONDS", help="how often new files are looked for (default 2)"
    )
    watch.add_argument("--once", action="store_true", help="take what is there, and stop")
    watch.add_argument(
        "--json", action="store_true", help="print a JSON object for each step, or one with --once, and nothing else"
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
        with _asked_to_end() as ended:
            watcher.start(arguments.every, arguments.once)
            if arguments.json and arguments.once:
                watcher.run(ended, lambda: None)
                _print(watcher, whole=True)
            elif arguments.json:
                watcher.run(ended, lambda: _print(watcher, whole=False))
            elif sys.stdout.isatty() and not arguments.once:
                _show(watcher, ended)
            else:
                watcher.run(ended, lambda: print(_status(watcher), file=sys.stderr, flush=True))
                console().print(_picture(watcher, whole=arguments.once))
    return 0


@contextmanager
def _asked_to_end() -> Iterator[threading.Event]:
    """Set by Ctrl-C or by the one who ends services: the step under way is finished. Whoever insists gets his way."""
    ended = threading.Event()
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def asked(number: int, _frame: object) -> None:
        ended.set()
        signal.signal(number, before[number])

    for number in before:
        signal.signal(number, asked)
    try:
        yield ended
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(watcher: "Watcher", ended: threading.Event) -> None:
    """A table that is renewed in its place."""
    from rich.live import Live

    with Live(_picture(watcher), console=console(), auto_refresh=False) as live:
        watcher.run(ended, lambda: live.update(_picture(watcher), refresh=True))


def _picture(watcher: "Watcher", whole: bool = False) -> "Group":
    from rich.console import Group
    from rich.text import Text

    from carrycast.analysis.telemetry import RECENT, minutes_table, read_minutes

    minutes = read_minutes(watcher.folder.out, None if whole else RECENT)
    lines = [Text(_status(watcher))]
    skewed = sum(minute.get("delays_negative") or 0 for minute in minutes)
    if skewed:
        lines.append(Text(f"{skewed} deliveries before their publication: clocks of nodes do not agree", "yellow"))
    return Group(minutes_table(minutes), *lines)


def _status(watcher: "Watcher") -> str:
    found = watcher.commit
    if found.step < 0:
        return f"no trace yet; tables go to {watcher.folder.out}"
    # What was there before the watch began is as old as it is.
    behind = f", {watcher.behind_s:.1f} s behind" if watcher.behind_s is not None and watcher.behind_s < WEEK_S else ""
    lost = f", {found.left_out:,} left out" if found.left_out else ""
    lost += f", {found.waiting:,} deliveries without their events" if found.waiting else ""
    refused = f", {found.refused} files refused" if found.refused else ""
    traces = "1 trace" if len(found.traces) == 1 else f"{len(found.traces)} traces"
    told = f"{found.rows:,} rows of {traces}{behind}{lost}{refused}"
    return f"{told}; tables in {watcher.folder.out}"


def _print(watcher: "Watcher", whole: bool) -> None:
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
