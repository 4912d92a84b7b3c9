"""`emulate`: a scenario through live nodes."""

import argparse
import sys

from carrycast.cli.options import add_json, add_scenario, console, print_json, say, table_of


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    emulate = commands.add_parser(
        "emulate",
        help="play a scenario to live nodes on this machine, in real time",
        description="Play a scenario to live nodes of one process on loopback, in real time, with links that come and "
        "go as they do in the simulator. docs/emulation.md says what live nodes cannot do.",
    )
    add_scenario(emulate)
    emulate.add_argument("--protocol", metavar="P", help="instead of the scenario's, settings included")
    emulate.add_argument("--seed", type=int, default=1, metavar="N", help="as in run (default 1)")
    emulate.add_argument("--duration", type=float, dest="duration_s", metavar="S", help="instead of the scenario's")
    add_json(emulate)
    emulate.set_defaults(command=_emulate)


def _emulate(arguments: argparse.Namespace) -> int:
    from carrycast.lab.play import emulate
    from carrycast.sim.scenario.measures import metric_meanings
    from carrycast.sim.scenario.overrides import parse_assignment, resolve_scenario

    settings = dict(parse_assignment(text) for text in arguments.set)
    if arguments.duration_s is not None:
        settings["duration_s"] = arguments.duration_s
    scenario = resolve_scenario(arguments.scenario, arguments.protocol, settings)
    outcome = emulate(scenario, arguments.seed, lambda text: print(text, file=sys.stderr, flush=True))
    if arguments.json:
        print_json(outcome.summary())
        return 0
    say(f"{outcome.scenario}, {outcome.protocol}, seed {outcome.seed}, {outcome.duration_s:g} s through live nodes")
    console().print(table_of(outcome.metrics, metric_meanings()))
    say(f"late by {outcome.late_s:.3f} s at worst")
    return 0
