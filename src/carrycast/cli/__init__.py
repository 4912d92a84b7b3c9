"""The command line: reads arguments, calls the code that does the work, prints. Nothing is decided here."""

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

EPILOG = """start here:
  carrycast tour                                          each headline result, in minutes
  carrycast run examples/quick.toml --protocol epidemic   one simulation
  carrycast compare examples/sparse.toml --protocols flooding,gossip:p=0.5,epidemic
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and knows what can be said."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.options: list[str] = []
        self.kinds: dict[str, _Parser] = {}
        super().__init__(*arguments, **settings)

    def add_argument(self, *names: Any, **settings: Any) -> argparse.Action:
        self.options += [name for name in names if name.startswith("--")]
        return super().add_argument(*names, **settings)

    def add_subparsers(self, **settings: Any) -> Any:
        made = super().add_subparsers(**settings)
        self.kinds = made.choices
        return made

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        # What nobody knows is refused where it was said: the command knows its own options, the whole does not.
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    @property
    def words(self) -> list[str]:
        """What may follow the name of the command: the commands and options below it."""
        return [*self.kinds, *self.options]

    def error(self, message: str) -> NoReturn:
        wrong = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)$", message)
        known = re.findall(r"[\w-]+", wrong[2]) if wrong else self.options
        wrong = wrong or re.search(r"unrecognized arguments: (--[^\s=]+)", message)
        close = difflib.get_close_matches(wrong[1], known, 1) if wrong else []
        hint = f"; did you mean {close[0]!r}?" if close else ""
        self.exit(2, f"{self.prog}: {message}{hint} (see {self.prog} --help)\n")


def parser() -> _Parser:
    """All commands and their options."""
    top = _Parser(
        prog="carrycast",
        description="Publish/subscribe, by content, for networks that move: simulate it, compare it, run it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"carrycast {__version__}")
    loud = top.add_mutually_exclusive_group()
    loud.add_argument("-v", "--verbose", action="store_true", help="log what is done, on standard error")
    loud.add_argument("-q", "--quiet", action="store_true", help="neither progress nor warnings")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    declarations = (
        simulate.add_commands,
        debug.add_commands,
        fleets.add_contacts,
        simulate.add_emulate,
        show.add_commands,
        evaluate.add_commands,
        fleets.add_commands,
        advise.add_commands,
        evaluate.add_tour,
        traces.add_commands,
        telemetry.add_commands,
        live.add_commands,
        keys.add_commands,
        policy.add_commands,
        catalog.add_commands,
        scaffold.add_commands,
    )
    for declare in declarations:
        declare(commands)
    completion.add_commands(commands, lambda: ({name: below.words for name, below in top.kinds.items()}, top.options))
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0 done, 1 the work failed, 2 wrong use."""
    top = parser()
    arguments = top.parse_args(argv)
    command: Command | None = getattr(arguments, "command", None)
    if command is None:
        top.print_help()
        return 0
    _log(arguments)
    try:
        _configure(arguments)
        return command(arguments)
    except UserError as error:
        return _fail(error, 2)
    except WorkError as error:
        return _fail(error, 1)
    except BrokenPipeError:
        # Whoever read our output has had enough. Nothing may be written to it any more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else error, 1)
    except KeyboardInterrupt as error:
        return _fail(f"interrupted{error}", 130)


def _configure(arguments: argparse.Namespace) -> None:
    """Settings of Spark, for the one session that a command may start."""
    if getattr(arguments, "conf", None):
        from carrycast.analysis.spark import configure, parse_conf

        configure(parse_conf(arguments.conf))


def _log(arguments: argparse.Namespace) -> None:
    """Python's own logging, as loud as asked for; programs that call `main` keep theirs otherwise."""
    if arguments.verbose or arguments.quiet:
        import logging

        logging.basicConfig(format="%(asctime)s %(name)s: %(message)s")
        logging.getLogger("carrycast").setLevel(logging.DEBUG if arguments.verbose else logging.CRITICAL)


def _fail(reason: object, status: int) -> int:
    text = " ".join(str(reason).split("\n"))
    print(f"carrycast: {text}", file=sys.stderr)
    return status
