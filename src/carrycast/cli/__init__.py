"""The command line. It reads arguments, calls the package that does the work, and prints the result."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from carrycast import __version__
from carrycast.cli import (
    advise,
    catalog,
    completion,
    debug,
    evaluate,
    fleets,
    help_pages,
    keys,
    live,
    policy,
    scaffold,
    show,
    simulate,
    telemetry,
    traces,
)
from carrycast.errors import UserError, WorkError

Command = Callable[[argparse.Namespace], int]

MODULES = (simulate, show, traces, debug, evaluate, fleets, advise, live, telemetry, policy, keys, catalog, scaffold)


class _Parser(argparse.ArgumentParser):
    """Reports a wrong argument in one line, with the closest command or option that exists."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.options: list[str] = []
        self.subcommands: dict[str, _Parser] = {}
        super().__init__(*arguments, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        if settings.get("help") is not argparse.SUPPRESS:
            self.options += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **settings)

    def add_subparsers(self, **settings: Any) -> Any:
        action = super().add_subparsers(**settings)
        self.subcommands = action.choices
        return action

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # The parser of the command reports an unknown option, because it knows which options are close to it.
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    @property
    def words(self) -> list[str]:
        """The words that may follow the name of the command: its subcommands and options."""
        return [*self.subcommands, *self.options]

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message)
        known = re.findall(r"[\w-]+", wrong[2]) if wrong else self.options
        wrong = wrong or re.search(r"unrecognized arguments: (--[^\s=]+)", message)
        close = difflib.get_close_matches(wrong[1], known, 1) if wrong else []
        hint = f"; did you mean {close[0]!r}?" if close else ""
        self.exit(2, f"{self.prog}: {message}{hint} (see {self.prog} --help)\n")


class _VersionAction(argparse.Action):
    """Prints the version. The engine is found out only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from carrycast.native import has_native_core

        core = "native" if has_native_core() else "pure Python"

        sys.stdout.write(f"carrycast {__version__} ({core})\n")
        parser.exit()


def parser() -> _Parser:
    """Return the parser of all commands and their options."""
    top = _Parser(
        prog="carrycast",
        usage="carrycast [-h] [--version] [-v | -q] COMMAND ...",
        description="Content-based publish/subscribe for mobile networks: simulate it, compare protocols, run it.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument(
        "--version", action=_VersionAction, nargs=0, help="print the version, and whether the simulator is native"
    )
    verbosity = top.add_mutually_exclusive_group()
    verbosity.add_argument("-v", "--verbose", action="store_true", help="log every step on standard error")
    verbosity.add_argument("-q", "--quiet", action="store_true", help="print neither progress nor warnings")
    # The epilog lists the commands by group, which argparse cannot do.
    commands = top.add_subparsers(prog="carrycast", metavar="COMMAND", help=argparse.SUPPRESS, parser_class=_Parser)
    for module in MODULES:
        module.add_commands(commands)
    completion.add_commands(
        commands, lambda: ({name: below.words for name, below in top.subcommands.items()}, top.options)
    )
    help_pages.add_commands(commands, top)
    top.epilog = help_pages.command_groups(top.subcommands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0 done, 1 the work failed, 2 wrong use."""
    top = parser()
    arguments = top.parse_args(argv)
    command: Command | None = getattr(arguments, "command", None)
    if command is None:
        top.print_help()
        return 0
    _configure_logging(arguments)
    try:
        _configure_spark(arguments)
        return command(arguments)
    except UserError as error:
        return _fail(error, 2)
    except WorkError as error:
        return _fail(error, 1)
    except BrokenPipeError:
        # The reader of the output has closed the pipe. Python would write to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else error, 1)
    except KeyboardInterrupt as error:
        return _fail(f"interrupted{error}", 130)


def _configure_spark(arguments: argparse.Namespace) -> None:
    """Apply the settings of `--conf` to the Spark session that the command may start."""
    if getattr(arguments, "conf", None):
        from carrycast.analysis.spark import configure, parse_conf

        configure(parse_conf(arguments.conf))


def _configure_logging(arguments: argparse.Namespace) -> None:
    """Apply `--verbose` or `--quiet`. Without them, a program that calls `main` keeps its own logging."""
    if arguments.verbose or arguments.quiet:
        import logging

        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
        logging.getLogger("carrycast").setLevel(logging.DEBUG if arguments.verbose else logging.CRITICAL)


def _fail(reason: object, status: int) -> int:
    text = " ".join(str(reason).split("\n"))
    print(f"carrycast: {text}", file=sys.stderr)
    return status
