"""The command line: reads arguments, calls the code that does the work, prints. Nothing is decided here."""

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from driftcast import __version__
from driftcast.cli import catalog, evaluate, live, policy, scaffold, show, simulate, traces
from driftcast.errors import UserError, WorkError

Command = Callable[[argparse.Namespace], int]

EPILOG = """start here:
  driftcast tour                                          each headline result, in minutes
  driftcast run examples/quick.toml --protocol epidemic   one simulation
  driftcast compare examples/sparse.toml --protocols flooding,gossip:p=0.5,epidemic
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    top = _Parser(
        prog="driftcast",
        description="Publish/subscribe, by content, for networks that move: simulate it, compare it, run it.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"driftcast {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    for group in (simulate, show, evaluate, traces, live, policy, catalog, scaffold):
        group.add_commands(commands)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. 0 done, 1 the work failed, 2 wrong use."""
    arguments = parser().parse_args(argv)
    command: Command = arguments.command
    try:
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
    except KeyboardInterrupt:
        return _fail("interrupted", 130)


def _fail(reason: object, status: int) -> int:
    text = " ".join(str(reason).split("\n"))
    print(f"driftcast: {text}", file=sys.stderr)
    return status
