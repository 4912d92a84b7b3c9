"""`run`, `check`: what needs the simulator and no Spark."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import (
    add_json,
    add_scenario,
    console,
    make_folder,
    metric_table,
    print_json,
    print_line,
    print_warnings,
)
from carrycast.cli.watching import watched
from carrycast.errors import UserError, WorkError

if TYPE_CHECKING:
    from carrycast.analysis.player import Scene
    from carrycast.core.protocol import StackPlan
    from carrycast.sim.scenario import Scenario
    from carrycast.trace import Trace


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare them."""
    run = commands.add_parser("run", help="simulate a scenario once", description="Simulate a scenario once.")
    add_scenario(run)
    run.add_argument(
        "--protocol",
        metavar="P",
        help="instead of the scenario's, settings included: gossip, gossip:p=0.3, name/variant",
    )
    run.add_argument("--seed", type=int, default=1, metavar="N", help="the same seed gives the same run (default 1)")
    run.add_argument("--trace", type=Path, metavar="DIR", help="keep the trace there, as Parquet")
    run.add_argument("--level", choices=["deliveries", "full"], default="full", help="how much of it (default full)")
    add_json(run)
    run.set_defaults(command=_run)

    check = commands.add_parser(
        "check", help="say what is wrong with a scenario", description="Read a scenario and say what is wrong with it."
    )
    add_scenario(check)
    check.add_argument("--protocol", metavar="P", help="instead of the scenario's")
    add_json(check)
    check.set_defaults(command=_check)


def _run(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.player import Scene
    from carrycast.sim.engine import run
    from carrycast.sim.scenario import find_warnings, metric_meanings, resolve_scenario
    from carrycast.trace import Level

    scenario = resolve_scenario(arguments.scenario, arguments.protocol, _settings(arguments))
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
    with watched(scenario.duration_s, quiet=arguments.json or arguments.quiet) as watch:
        outcome = run(scenario, arguments.seed, level, on_progress=watch)
        if arguments.trace is not None:
            _save_whole(outcome.trace, Scene.of(scenario, arguments.seed), arguments.trace)
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


def _settings(arguments: argparse.Namespace) -> dict[str, object]:
    from carrycast.sim.scenario import parse_assignment

    return dict(parse_assignment(text) for text in arguments.set)


def _save_whole(trace: "Trace", scene: "Scene", directory: Path) -> None:
    """Write beside the place and rename, so that an interrupted run leaves nothing that looks whole.

    With where it took place, so that `show` can show it as it was.
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

    scenario = resolve_scenario(arguments.scenario, arguments.protocol, _settings(arguments))
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
        "discovery": _discovery(scenario, plan),
    }
    if arguments.json:
        print_json({"ok": True, **facts, "warnings": warnings})
    else:
        print_line(f"{arguments.scenario}: {'runs, with warnings' if warnings else 'fine'}")
        for name, value in facts.items():
            print_line(f"  {name} {'-' if value is None else value}")
    return 0


def _discovery(scenario: "Scenario", plan: "StackPlan") -> str:
    """How nodes find their neighbors: as the scenario has it, or by their router if it needs no beacons beneath it."""
    mode = str(scenario.discovery.__struct_config__.tag)
    return "router" if mode == "beacon" and plan.beacons is None else mode


def add_emulate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
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
    from carrycast.lab import emulate
    from carrycast.sim.scenario import metric_meanings, parse_assignment, resolve_scenario

    settings = dict(parse_assignment(text) for text in arguments.set)
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
