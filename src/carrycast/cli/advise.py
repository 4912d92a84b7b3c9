"""`advise`: which protocol a fleet should run."""

import argparse
import sys
from pathlib import Path

from carrycast.cli.evaluate import add_out
from carrycast.cli.options import print_json, print_line
from carrycast.cli.watching import resumable


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Declare it."""
    advise = commands.add_parser(
        "advise",
        help="which protocol, with which settings, serves a fleet best",
        description="Race every protocol, with its settings, on a fleet's own movement, judge the best on time or "
        "seeds that were held out, and write a recommendation with its evidence and node configurations.",
    )
    advise.add_argument(
        "fleet",
        type=Path,
        metavar="FLEET",
        help="a scenario, a contact plan, recorded movement, or the folder of an ingest",
    )
    advise.add_argument("--workload", type=Path, metavar="FILE", help="who wants and publishes what (TOML)")
    advise.add_argument(
        "--objective",
        default="delivery >= 0.95, least bytes",
        metavar="TEXT",
        help="limits and a goal (default 'delivery >= 0.95, least bytes')",
    )
    advise.add_argument("--range", type=float, dest="range_m", metavar="M", help="for movement: how far nodes hear")
    advise.add_argument("--duration", type=float, dest="duration_s", metavar="S", help="seconds of it (default: all)")
    advise.add_argument(
        "--train", type=float, default=0.6, metavar="SHARE", help="of recorded time, to learn from (default 0.6)"
    )
    advise.add_argument("--runs", type=int, default=10, metavar="N", help="seeds of the last round (default 10)")
    advise.add_argument("--candidates", metavar="P,P", help="only these protocols, as compare takes them")
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
        heard = (
            ""
            if scenario.contacts is not None
            else f"; nodes hear each other within {scenario.radio_model().range_m:g} m"
        )
        print(f"what is not said is taken from {beside}{heard}", file=sys.stderr)
    out: Path = arguments.out
    with resumable(out):
        found = advise(
            scenario,
            objective,
            out,
            arguments.runs,
            arguments.train,
            arguments.candidates,
            arguments.master,
            (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr)),
        )
    page = write_advice_page(found, out)
    files = write_node_configurations(scenario, found.chosen.candidate, out / "nodes")
    said = advice_sentences(found)
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
                "sentences": said,
                "page": str(page),
            }
        )
        return 0
    for line in said:
        print_line(line)
    print_line(f"page  {page}")
    print_line(f"nodes {out / 'nodes'} ({files} configurations)")
    return 0
