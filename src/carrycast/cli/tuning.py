"""The option `--tune` of commands that compare protocols."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.cli.options import parse_overrides
from carrycast.errors import UserError

if TYPE_CHECKING:
    from carrycast.analysis.spark import Experiment

FOLDER = "tuning"
"""The folder of the tuning runs, in the output folder of the command."""


def add_tune(parser: argparse.ArgumentParser) -> None:
    """Declare `--tune`."""
    parser.add_argument(
        "--tune",
        type=int,
        default=0,
        metavar="N",
        help="first tune the main settings of each rival on N training seeds; the report has both rows",
    )


def tune_comparison(
    arguments: argparse.Namespace, protocols: list[dict[str, object]], out: Path
) -> list[dict[str, object]]:
    """The protocols of `compare`, with a tuned row below each rival if `--tune` was given."""
    from carrycast.analysis.advice import add_tuned_rivals
    from carrycast.sim.scenario import apply_overrides, load_scenario

    if not _is_wanted(arguments):
        return protocols
    settings = dict(parse_overrides(arguments) or {})
    if arguments.discovery is not None:
        settings["discovery.mode"] = arguments.discovery
    scenario = load_scenario(arguments.scenario)
    scenario = apply_overrides(scenario, settings) if settings else scenario
    return add_tuned_rivals(scenario, protocols, out / FOLDER, arguments.tune, arguments.master, _speaker(arguments))


def tune_experiments(arguments: argparse.Namespace, experiments: "list[Experiment]") -> "list[Experiment]":
    """The experiments of `reproduce`, with tuned points beside those of each rival."""
    from carrycast.analysis.advice import tune_experiment

    return [
        tune_experiment(
            one, arguments.out / FOLDER / one.name, arguments.tune, master=arguments.master, say=_speaker(arguments)
        )
        for one in experiments
        if _is_wanted(arguments)
    ]


def _is_wanted(arguments: argparse.Namespace) -> bool:
    if arguments.tune < 0:
        raise UserError(f"--tune {arguments.tune}: a number of training seeds, at least 1")
    return bool(arguments.tune)


def _speaker(arguments: argparse.Namespace) -> Callable[[str], None]:
    if arguments.json or arguments.quiet:
        return lambda text: None
    return lambda text: print(text, file=sys.stderr)
