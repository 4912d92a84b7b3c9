"""`diff` and `debug`: find the first difference of two runs, and stop a run there in the debugger."""

import argparse
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import (
    Commands,
    add_command,
    add_json,
    add_protocol,
    add_scenario,
    add_seed,
    parse_overrides,
    print_json,
    print_line,
)

if TYPE_CHECKING:
    from carrycast.trace import Difference


def add_commands(commands: Commands) -> None:
    """Declare `diff` and `debug`."""
    diff = add_command(
        commands,
        "diff",
        "Show the first difference of two runs.",
        "The rows before it are shown, too. A run is the folder of a trace of level full, or a scenario, which is "
        "simulated first. Exit status: 0 if the runs are equal, else 1.",
    )
    diff.add_argument("first", type=Path, metavar="A", help="the folder of a trace, or a scenario (TOML)")
    diff.add_argument("second", type=Path, metavar="B", help="the trace or scenario to compare with")
    add_seed(diff)
    add_json(diff)
    diff.set_defaults(command=_diff)

    debug = add_command(
        commands,
        "debug",
        "Stop a simulation in the debugger, at a node and a time.",
        "Python's debugger opens in the first handler that the node enters at that time or later.",
    )
    add_scenario(debug)
    add_protocol(debug)
    add_seed(debug)
    debug.add_argument("--node", type=int, required=True, metavar="N", help="the number of the node")
    debug.add_argument("--at", type=float, default=0.0, metavar="SECONDS", help="the simulated time (default: 0)")
    debug.set_defaults(command=_debug)


def _diff(arguments: argparse.Namespace) -> int:
    from carrycast.trace import diff_traces

    with tempfile.TemporaryDirectory(prefix="carrycast-") as scratch:
        first, second = (
            _find_or_record(path, arguments.seed, Path(scratch) / side)
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


def _find_or_record(path: Path, seed: int, scratch: Path) -> Path:
    """Return the folder of a trace. A scenario is simulated, and its trace is written to `scratch`."""
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
    from carrycast.sim.scenario import resolve_scenario

    scenario = resolve_scenario(arguments.scenario, arguments.protocol, parse_overrides(arguments))
    outcome = debug_run(scenario, arguments.seed, arguments.node, arguments.at)
    print_line(f"fingerprint {outcome.fingerprint}")
    return 0
