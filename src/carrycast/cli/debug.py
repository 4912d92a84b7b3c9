"""`diff`, `debug`: find where two runs part from each other, and stop a run there."""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import add_json, add_scenario, print_json, print_line

if TYPE_CHECKING:
    from carrycast.trace import Difference


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare them."""
    diff = commands.add_parser(
        "diff",
        help="show the first difference of two runs",
        description="Show the first row in which two runs differ, with the rows before it. A run is the folder of a "
        "trace of level full, or a scenario, which is simulated. Exit status: 0 if the runs are equal, else 1.",
    )
    diff.add_argument("first", type=Path, metavar="A", help="a trace's folder, or a scenario (TOML)")
    diff.add_argument("second", type=Path, metavar="B", help="the other one")
    diff.add_argument("--seed", type=int, default=1, metavar="N", help="of scenarios (default 1)")
    add_json(diff)
    diff.set_defaults(command=_diff)

    debug = commands.add_parser(
        "debug",
        help="stop a simulation at a node and time, in the debugger",
        description="Simulate a scenario and open Python's debugger in the first handler that a node enters at a time "
        "or later.",
    )
    add_scenario(debug)
    debug.add_argument("--protocol", metavar="P", help="instead of the scenario's")
    debug.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed gives the same run (default 1)")
    debug.add_argument("--node", type=int, required=True, metavar="N", help="the number of the node")
    debug.add_argument("--at", type=float, default=0.0, metavar="S", help="simulated seconds (default 0)")
    debug.set_defaults(command=_debug)


def _diff(arguments: argparse.Namespace) -> int:
    from carrycast.trace import diff_traces

    with tempfile.TemporaryDirectory(prefix="carrycast-") as scratch:
        first, second = (
            _recorded(path, arguments.seed, Path(scratch) / side)
            for path, side in ((arguments.first, "a"), (arguments.second, "b"))
        )
        found = diff_traces(first, second)
    if arguments.json:
        print_json({"equal": found is None, "difference": None if found is None else asdict(found)})
    elif found is None:
        print_line("the runs are equal")
    else:
        _print_difference(found)
    return 0 if found is None else 1


def _recorded(path: Path, seed: int, scratch: Path) -> Path:
    """The folder of a run's trace; a scenario is simulated first."""
    if path.suffix != ".toml":
        from carrycast.trace import find_traces

        return find_traces([path])[0]
    from carrycast.sim.engine import run
    from carrycast.sim.scenario import load_scenario
    from carrycast.trace import Level

    run(load_scenario(path), seed, Level.FULL).trace.save(scratch)
    return scratch


def _print_difference(found: "Difference") -> None:
    print_line(f"the first difference is in row {found.row} of the table {found.table}")
    for row in found.before:
        print_line(f"  both  {_row_text(row)}")
    for side, one in (("A", found.first), ("B", found.second)):
        print_line(f"  {side}     {'(ends here)' if one is None else _row_text(one)}")
    if found.columns:
        print_line(f"they differ in {', '.join(found.columns)}")
    times = [row["time_s"] for row in (found.first, found.second) if row is not None and "time_s" in row]
    nodes = [row["node"] for row in (found.first, found.second) if row is not None and "node" in row]
    if times and nodes:
        print_line(f"to stop there: carrycast debug SCENARIO --node {nodes[0]} --at {min(times):g}")


def _row_text(row: dict[str, object]) -> str:
    return " ".join(f"{key}={value}" for key, value in row.items() if value is not None)


def _debug(arguments: argparse.Namespace) -> int:
    from carrycast.sim.engine import debug_run
    from carrycast.sim.scenario import parse_assignment, resolve_scenario

    settings = dict(parse_assignment(text) for text in arguments.set)
    scenario = resolve_scenario(arguments.scenario, arguments.protocol, settings)
    outcome = debug_run(scenario, arguments.seed, arguments.node, arguments.at)
    print_line(f"fingerprint {outcome.fingerprint}")
    return 0
