"""`tour`: what a newcomer sees first."""

import argparse
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.evaluate import add_out, explain
from carrycast.cli.options import console, print_json, say
from carrycast.cli.watching import resumable

if TYPE_CHECKING:
    from rich.table import Table

    from carrycast.analysis.spark.tour import OpeningRun, Tour

BAR = 36
"""Characters of a bar that is full."""


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    tour = commands.add_parser(
        "tour",
        help="each headline result, in minutes",
        description="Who delivers across islands, to be watched; then the headline of each paper, in minutes.",
    )
    add_out(tour, "out/tour")
    tour.set_defaults(command=_tour)


def _tour(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.spark.session import check_spark_installed
    from carrycast.analysis.spark.tour import run_opening, tour

    check_spark_installed()
    out: Path = arguments.out
    with resumable(out):
        opening = run_opening(out)
        if not arguments.json:
            _open(opening)
        found = tour(out, arguments.master, quiet=arguments.json or arguments.quiet)
    explain(found.report.reasons)
    if arguments.json:
        print_json({**found.report.as_row(), "islands": str(opening.page)})
    else:
        _close(found, opening)
    return 1 if found.report.failed else 0


def _open(opening: "OpeningRun") -> None:
    """The first picture, before anything that takes its time."""
    say(f"{opening.nodes} nodes that meet and part, and are never one network: who gets the events?\n")
    console().print(_bars(opening))
    say(f"\nwatch both, on the same movement: {opening.page}")
    say("now the headline of each paper; that takes a minute or two\n")
    sys.stdout.flush()


def _bars(opening: "OpeningRun") -> "Table":
    from rich.markup import escape
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    for protocol, share in opening.shares.items():
        bar = ProgressBar(total=1.0, completed=share, width=BAR)
        table.add_row(f"  {escape(protocol)}", bar, f"{share:.0%} of those interested")
    return table


def _close(found: "Tour", opening: "OpeningRun") -> None:
    for title, table in found.tables():
        say(title)
        console().print(table)
        say("")
    claims = [claim.holds for claim in found.report.claims if not claim.calibration]
    if claims:
        counts = f"{claims.count(True)} hold, {claims.count(False)} fail, {claims.count(None)} are undecided"
        say(f"claims about these: {counts} with so few runs")
    if found.report.failed:
        say(f"{found.report.failed} of {found.report.runs} runs failed; the report names each")
    command = _command()
    say("next:")
    for what, why in (
        (f"open {opening.page}", "watch islands meet and events spread"),
        (f"open {found.report.page}", "every figure, claim and setting of this tour"),
        (f"{command} new scenario mine", "a scenario of your own, to begin with"),
        (f"{command} compare mine.toml --protocols flooding,epidemic", "who serves it best"),
        (f"{command} reproduce 004 --quick", "one paper, all its figures"),
    ):
        say(f"  {what}\n      {why}")


def _command() -> str:
    """How this command is called here: `make run` finds it where the path of the shell may not."""
    called = Path(sys.argv[0])
    return "carrycast" if called.name != "carrycast" or shutil.which("carrycast") else str(called)
