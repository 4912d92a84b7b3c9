"""`run`, `check` and `emulate`: commands that run one scenario, without Spark."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import (
    Commands,
    add_command,
    add_duration,
    add_json,
    add_protocol,
    add_scenario,
    add_seed,
    console,
    make_folder,
    metric_table,
    parse_overrides,
    print_json,
    print_line,
    print_warnings,
)
from carrycast.cli.progress import show_progress
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from carrycast.analysis.player import Scene
    from carrycast.core.protocol import StackPlan
    from carrycast.sim.scenario import Scenario
    from carrycast.trace import Trace


def add_commands(commands: Commands) -> None:
    """Declare `run`, `check` and `emulate`."""
    run = add_command(commands, "run", "Simulate a scenario once and print its metrics.")
    add_scenario(run)
    add_protocol(run)
    add_seed(run)
    run.add_argument(
        "--engine",
        choices=["auto", "python", "native"],
        default="auto",
        help="the simulator's engine; both give the same results (default: auto, native where it covers the scenario)",
    )
    run.add_argument("--trace", type=Path, metavar="DIR", help="record a trace in this new folder, as Parquet")
    run.add_argument(
        "--level", choices=["deliveries", "full"], default="full", help="how much the trace records (default: full)"
    )
    add_json(run)
    run.set_defaults(command=_run)

    check = add_command(commands, "check", "Check a scenario for mistakes without running it.")
    add_scenario(check)
    add_protocol(check)
    add_json(check)
    check.set_defaults(command=_check)

    emulate = add_command(
        commands,
        "emulate",
        "Play a scenario to live nodes on this machine.",
        "The nodes run in one process, in real time, over loopback. Links come and go as they do in the simulator. "
        "See docs/emulation.md for the limits.",
    )
    add_scenario(emulate)
    add_protocol(emulate)
    add_seed(emulate)
    add_duration(emulate, "the scenario's")
    add_json(emulate)
    emulate.set_defaults(command=_emulate)


def _run(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.player import Scene
    from carrycast.sim.engine import run
    from carrycast.sim.scenario import find_warnings, metric_meanings, resolve_scenario
    from carrycast.trace import Level

    scenario = resolve_scenario(arguments.scenario, arguments.protocol, parse_overrides(arguments))
    level = None
    if arguments.trace is not None:
        make_folder(arguments.trace, "--trace")
        if any(arguments.trace.iterdir()):
            raise UserError(f"{arguments.trace}: is not empty; give a new folder for the trace")
        arguments.trace.rmdir()
        level = Level(arguments.level)
    # A run computes how nodes move anyway.
    warnings = find_warnings(scenario, arguments.seed, moving=True)
    print_warnings(warnings, arguments.quiet)
    with show_progress(scenario.duration_s, quiet=arguments.json or arguments.quiet) as progress:
        outcome = run(scenario, arguments.seed, level, on_progress=progress, engine=arguments.engine)
        if arguments.trace is not None:
            _save_atomically(outcome.trace, Scene.of(scenario, arguments.seed), arguments.trace)
    if arguments.json:
        print_json({**outcome.summary(), "warnings": warnings})
        return 0
    print_line(f"{outcome.scenario}, {outcome.protocol}, seed {outcome.seed}")
    console().print(metric_table(outcome.metrics, metric_meanings()))
    for processor, failures in outcome.failures.items():
        times = "once" if failures.times == 1 else f"{failures.times} times"
        print_line(f"processor {processor} failed {times}: {failures.first}")
    print_line(f"fingerprint {outcome.fingerprint}")
    if arguments.trace is not None:
        print_line(f"trace in {arguments.trace}")
    return 0


def _save_atomically(trace: "Trace", scene: "Scene", directory: Path) -> None:
    """Write the trace and its scene (used by `show`) to a temporary folder and rename it.

    An interrupted run leaves no folder that looks complete.
    """
    try:
        with tempfile.TemporaryDirectory(dir=directory.parent, prefix=f".{directory.name}-") as scratch:
            unfinished = Path(scratch) / "trace"
            trace.save(unfinished)
            scene.save(unfinished)
            unfinished.rename(directory)
    except OSError as error:
        raise WorkError(f"{directory}: the trace cannot be written: {error.strerror or error}") from None


def _check(arguments: argparse.Namespace) -> int:
    from carrycast.sim.engine import check_run
    from carrycast.sim.scenario import check_files, find_warnings, resolve_scenario

    scenario = resolve_scenario(arguments.scenario, arguments.protocol, parse_overrides(arguments))
    plan = scenario.make_stack_plan()
    check_files(scenario)
    check_run(scenario)
    warnings = find_warnings(scenario)
    print_warnings(warnings, arguments.quiet)
    facts = {
        "scenario": scenario.name,
        "nodes": scenario.nodes,
        "duration_s": scenario.duration_s,
        "protocol": plan.protocol.name,
        "router": None if plan.router is None else plan.router.name,
        "discovery": _discovery_mode(scenario, plan),
    }
    if arguments.json:
        print_json({"ok": True, **facts, "warnings": warnings})
    else:
        print_line(f"{arguments.scenario}: {'runs, with warnings' if warnings else 'fine'}")
        for name, value in facts.items():
            print_line(f"  {name} {'-' if value is None else value}")
    return 0


def _discovery_mode(scenario: "Scenario", plan: "StackPlan") -> str:
    """Return how nodes find their neighbors: the scenario's mode, or "router" if the router needs no beacons."""
    mode = str(scenario.discovery.__struct_config__.tag)
    return "router" if mode == "beacon" and plan.beacons is None else mode


def _emulate(arguments: argparse.Namespace) -> int:
    from carrycast.lab import emulate
    from carrycast.sim.scenario import metric_meanings, resolve_scenario

    settings = parse_overrides(arguments)
    if arguments.duration_s is not None:
        settings["duration_s"] = arguments.duration_s
    scenario = resolve_scenario(arguments.scenario, arguments.protocol, settings)
    outcome = emulate(scenario, arguments.seed, lambda text: print(text, file=sys.stderr, flush=True))
    if arguments.json:
        print_json(outcome.summary())
        return 0
    print_line(
        f"{outcome.scenario}, {outcome.protocol}, seed {outcome.seed}, {outcome.duration_s:g} s through live nodes"
    )
    console().print(metric_table(outcome.metrics, metric_meanings()))
    print_line(f"late by {outcome.late_s:.3f} s at worst")
    return 0
