"""Options that several commands share, and functions that print results."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from carrycast.errors import UserError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(commands: Commands, name: str, summary: str, details: str = "") -> argparse.ArgumentParser:
    """Declare a command. Lists of commands show its summary; its own help shows the details, too."""
    return commands.add_parser(name, help=summary, description=f"{summary} {details}".rstrip())


class _RenamedOption(argparse.Action):
    """An option under its former name: the command fails with an error that says the new name."""

    def __init__(self, option_strings: Sequence[str], dest: str, new_name: str, help: str) -> None:
        super().__init__(option_strings, dest, nargs="?", default=argparse.SUPPRESS, help=help)
        self._new_name = new_name

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: object, values: object, option_string: str | None = None
    ) -> NoReturn:
        parser.error(f"{option_string} is called {self._new_name} now")


def add_renamed(parser: argparse.ArgumentParser, old: str, new: str) -> None:
    """Make the former name of an option an error that says the new name."""
    parser.add_argument(old, action=_RenamedOption, new_name=new, help=argparse.SUPPRESS)


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`: one object on standard output and nothing else there."""
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def add_master(parser: argparse.ArgumentParser, help_text: str = "the Spark master (default: this machine)") -> None:
    """Add `--master` and `--conf`: the machines on which Spark runs, and its settings."""
    parser.add_argument("--master", metavar="URL", help=help_text)
    parser.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of Spark, as in --conf spark.executor.memory=2g; spark-defaults.conf is read, too; "
        "may be given several times",
    )


def add_out(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--out`, the options of Spark, and `--json`."""
    parser.add_argument(
        "--out", type=Path, default=Path(default), metavar="DIR", help=f"the output folder (default: {default})"
    )
    add_master(parser)
    add_json(parser)


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Add the argument SCENARIO and `--set`."""
    parser.add_argument("scenario", type=Path, metavar="SCENARIO", help="a scenario file (TOML)")
    add_set(parser)


def add_set(parser: argparse.ArgumentParser) -> None:
    """Add `--set`: settings that replace those of the scenario."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="replace a setting of the scenario, as in --set radio.range_m=100 --set protocol.p=0.3",
    )


def add_protocol(parser: argparse.ArgumentParser) -> None:
    """Add `--protocol`."""
    parser.add_argument(
        "--protocol",
        metavar="PROTOCOL",
        help="run this protocol instead of the scenario's: gossip, gossip:p=0.3, name/variant",
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add `--seed`."""
    parser.add_argument(
        "--seed",
        type=int,
        default=1,
        metavar="N",
        help="the random seed; the same seed gives the same run (default: 1)",
    )


def add_duration(parser: argparse.ArgumentParser, default: str) -> None:
    """Add `--duration`."""
    parser.add_argument(
        "--duration",
        type=float,
        dest="duration_s",
        metavar="SECONDS",
        help=f"the duration of the run (default: {default})",
    )


def add_range(parser: argparse.ArgumentParser) -> None:
    """Add `--range`."""
    parser.add_argument(
        "--range",
        type=float,
        dest="range_m",
        metavar="METERS",
        help="the distance within which nodes meet; needed for recorded movement",
    )


def add_node(parser: argparse.ArgumentParser, required: bool = True, purpose: str = "") -> None:
    """Add `--node`: the live node that the command talks to."""
    parser.add_argument(
        "--node",
        required=required,
        metavar="ADDRESS",
        help=f"the control channel of the live node: its socket, or TOKENFILE@127.0.0.1:port{purpose}",
    )


def print_json(value: object) -> None:
    """Print one line of JSON."""
    import msgspec

    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def console() -> "Console":
    """Return the console on which tables are printed."""
    from rich.console import Console

    return Console()


def print_line(text: str) -> None:
    """Print a line without wrapping it, so that paths and commands can be copied."""
    print(text)


def print_warnings(warnings: Sequence[str], quiet: bool = False) -> None:
    """Print each warning as one line on standard error, also with `--json`."""
    for text in () if quiet else warnings:
        print(f"carrycast: warning: {text}", file=sys.stderr)


def make_folder(path: Path, option: str) -> None:
    """Make a folder for output. Raises UserError if the path is a file or cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{option} {path}: cannot be made a folder: {error.strerror}") from None


def metric_table(rows: Mapping[str, object], meanings: Mapping[str, str] | None = None) -> "Table":
    """Return a table of names, values and, if given, their meanings."""
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
    """Format a number for people; a value that does not exist is a dash."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


def parse_overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that `--set` gave."""
    from carrycast.sim.scenario import parse_assignment

    return dict(parse_assignment(text) for text in arguments.set)
