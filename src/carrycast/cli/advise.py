"""`advise`: recommend a protocol for a fleet."""

import argparse
import sys
from pathlib import Path

from carrycast.cli.options import (
    Commands,
    add_command,
    add_duration,
    add_out,
    add_range,
    add_renamed,
    print_json,
    print_line,
)
from carrycast.cli.progress import announce_resume


def add_commands(commands: Commands) -> None:
    """Declare `advise`."""
    advise = add_command(
        commands,
        "advise",
        "Recommend a protocol, with its settings, for a fleet.",
        "The protocols run on the movement of the fleet. The best are evaluated on time or seeds that were held out. "
        "The result is a recommendation with its evidence, and configurations for the nodes.",
    )
    advise.add_argument(
        "fleet",
        type=Path,
        metavar="FLEET",
        help="a scenario, a contact plan, recorded movement, or a folder that `carrycast ingest` made",
    )
    advise.add_argument("--workload", type=Path, metavar="FILE", help="the subscriptions and publications (TOML)")
    advise.add_argument(
        "--objective",
        default="delivery >= 0.95, least bytes",
        metavar="TEXT",
        help="limits and a goal (default: 'delivery >= 0.95, least bytes')",
    )
    add_range(advise)
    add_duration(advise, "all of the movement")
    advise.add_argument(
        "--train",
        type=float,
        default=0.6,
        metavar="SHARE",
        help="the share of the recorded time that the search uses; the rest is held out (default: 0.6)",
    )
    advise.add_argument(
        "--runs", type=int, default=10, metavar="N", help="runs of each protocol in the last round (default: 10)"
    )
    advise.add_argument(
        "--protocols",
        metavar="PROTOCOL,...",
        help="search only these, as in flooding,gossip:p=0.3,epidemic (default: all)",
    )
    add_renamed(advise, "--candidates", "--protocols")
    add_out(advise, "out/advice")
    advise.set_defaults(command=_advise)


def _advise(arguments: argparse.Namespace) -> int:
    from carrycast.analysis.advice import (
        advice_sentences,
        advise,
        parse_objective,
        read_fleet,
        recorded_file,
        write_advice_page,
        write_node_configurations,
    )

    objective = parse_objective(arguments.objective)
    scenario = read_fleet(arguments.fleet, arguments.workload, arguments.range_m, arguments.duration_s)
    quiet = arguments.json or arguments.quiet
    beside = recorded_file(arguments.fleet, arguments.workload, arguments.range_m)
    if beside is not None and not quiet:
        radio_range = (
            ""
            if scenario.contacts is not None
            else f"; nodes hear each other within {scenario.radio_model().range_m:g} m"
        )
        print(f"settings that are not given are taken from {beside}{radio_range}", file=sys.stderr)
    out: Path = arguments.out
    with announce_resume(out):
        found = advise(
            scenario,
            objective,
            out,
            arguments.runs,
            arguments.train,
            arguments.protocols,
            arguments.master,
            (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr)),
        )
    page = write_advice_page(found, out)
    files = write_node_configurations(scenario, found.chosen.candidate, out / "nodes")
    sentences = advice_sentences(found)
    if arguments.json:
        print_json(
            {
                "protocol": found.chosen.candidate.label,
                "keeps_limits": found.keeps_limits(found.chosen),
                "objective": objective.text,
                "held_out": {
                    one.candidate.label: {name: mean._asdict() for name, mean in one.means.items()}
                    for one in found.evaluated
                },
                "bound": found.bound._asdict(),
                "runs": found.search.runs,
                "exhaustive": found.exhaustive,
                "sentences": sentences,
                "page": str(page),
            }
        )
        return 0
    for line in sentences:
        print_line(line)
    print_line(f"page  {page}")
    print_line(f"nodes {out / 'nodes'} ({files} configurations)")
    return 0
