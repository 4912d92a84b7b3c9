"""`help`: the list of commands by group, pages about topics, and the help of a command."""

import argparse
import difflib
from collections.abc import Mapping
from functools import partial
from importlib import resources

from carrycast.cli.options import Commands, add_command, print_line
from carrycast.errors import UserError

GROUPS = {
    "simulate": ("run", "check", "show", "metrics", "explain", "sql", "diff", "debug", "emulate"),
    "compare and reproduce": (
        "tour",
        "compare",
        "sweep",
        "reproduce",
        "report",
        "verify",
        "evidence",
        "experiments",
        "examples",
    ),
    "fleets": ("ingest", "contacts", "export", "advise"),
    "live": ("node", "pub", "sub", "request", "position", "status", "watch", "policy", "keys"),
    "develop": (
        *("protocols", "routers", "applications", "mobility", "radios", "plugins"),
        *("new", "completion", "help"),
    ),
}
"""The commands by what a user wants to do, in the order in which help lists them."""

TOPICS = {
    "scenarios": "how to describe a run",
    "filters": "how to select events by their content",
    "protocols": "which protocol to use, and how to name it with its settings",
    "settings": "where settings are set, and which one wins",
    "metrics": "what a run measures",
    "traces": "what a run records, and what reads it",
    "experiments": "how to run many simulations and check claims",
    "fleets": "how to simulate recorded movement",
    "live": "how to run nodes and talk to them",
    "guarantees": "what a node guarantees for an event that it has accepted",
    "security": "how to protect a live network with keys",
    "mqtt": "how MQTT clients use a node",
    "plugins": "how to add a protocol, a metric, a radio, ...",
}

START = """start here:
  carrycast tour                                          the main result of each paper, in minutes
  carrycast run examples/quick.toml --protocol epidemic   one simulation
  carrycast compare examples/sparse.toml --protocols flooding,gossip:p=0.5,epidemic
  carrycast help                                          topics: scenarios, filters, metrics, settings, ...
"""


def add_commands(commands: Commands, top: argparse.ArgumentParser) -> None:
    """Declare `help`; `top` is the parser of all commands."""
    command = add_command(commands, "help", "Explain a topic or a command.", "Without a topic, list the topics.")
    command.add_argument("topic", nargs="*", metavar="TOPIC", help="a topic, or a command, as in: carrycast help run")
    command.set_defaults(command=partial(_help, top))


def command_groups(subcommands: Mapping[str, argparse.ArgumentParser]) -> str:
    """Return the list of all commands by group, each with the first sentence of its description."""
    lines: list[str] = []
    for title, names in GROUPS.items():
        lines.append(f"{title}:")
        for name in names:
            summary, _, _ = (subcommands[name].description or "").partition(". ")
            lines.append(f"    {name:<14}{summary.rstrip('.')}.")
        lines.append("")
    return "\n".join([*lines, START])


def _help(top: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    if not arguments.topic:
        print_line("Topics, each explained by `carrycast help TOPIC`:\n")
        for name, meaning in TOPICS.items():
            print_line(f"    {name:<14}{meaning}")
        print_line("\n`carrycast help COMMAND` shows the options of a command, `carrycast --help` lists the commands.")
        return 0
    first = arguments.topic[0]
    if arguments.topic[1:] or first not in TOPICS:
        print_line(_find_parser(top, arguments.topic).format_help().rstrip())
        return 0
    print_line((resources.files("carrycast.cli") / "topics" / f"{first}.txt").read_text("utf-8").rstrip())
    if any(first in names for names in GROUPS.values()):
        print_line(f"\nThere is also a command of this name: carrycast {first} --help")
    return 0


def _find_parser(top: argparse.ArgumentParser, words: list[str]) -> argparse.ArgumentParser:
    """Return the parser of a command such as `run` or `policy status`."""
    parser = top
    for word in words:
        subcommands: Mapping[str, argparse.ArgumentParser] = getattr(parser, "subcommands", {})
        if word not in subcommands:
            known = [*subcommands, *(TOPICS if parser is top else ())]
            close = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {close[0]!r}?" if close else "`carrycast help` lists the topics"
            raise UserError(f"there is no topic or command {' '.join(words)!r}; {hint}")
        parser = subcommands[word]
    return parser
