"""Options that several commands have, and how results are printed."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`: one object on standard output and nothing else there."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_master(parser: argparse.ArgumentParser, help_text: str = "a Spark master (default: this machine)") -> None:
    """`--master` and `--conf`: on which machines Spark runs, and how."""
    parser.add_argument("--master", metavar="URL", help=help_text)
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, as in --conf spark.executor.memory=2g; spark-defaults.conf counts too",
    )


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """A scenario file and settings that replace some of its own."""
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="a scenario file (TOML)")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace a setting, as in --set radio.range_m=100 --set protocol.p=0.3",
    )


def print_json(value: object) -> None:
    """As one line of JSON."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def console() -> "Console":
    """Where tables go."""
    from rich.console import Console

    return Console()


def print_line(text: str) -> None:
    """A line for people, never broken: paths and commands are there to be copied."""
    print(text)


def print_warnings(warnings: Sequence[str], quiet: bool = False) -> None:
    """One line each, where errors go: also beside `--json`."""
    for text in () if quiet else warnings:
        print(f"carrycast: warning: {text}", file=sys.stderr)


def make_folder(path: Path, option: str) -> None:
    """Make a folder for output; a UserError if something else stands there or in the way."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be made a folder: {error.strerror}") from None


def metric_table(rows: Mapping[str, object], meanings: Mapping[str, str] | None = None) -> "Table":
    """Names, values and, if told, what they mean."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("metric", style="bold")
    table.add_column("value", justify="right")
    if meanings is not None:
        table.add_column("meaning", style="dim")
    for name, value in rows.items():
        table.add_row(name, value_text(value), *([] if meanings is None else [meanings.get(name, "")]))
    return table


def value_text(value: object) -> str:
    """A number as people read it; a dash for what does not exist."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)
