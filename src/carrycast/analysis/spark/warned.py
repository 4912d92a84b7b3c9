"""Warnings of an experiment's points: found before its runs, kept beside its definition, shown in its report."""

import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from carrycast.analysis.spark.disk import write_whole
from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.plan import movement_key
from carrycast.errors import UserError
from carrycast.sim.scenario.warnings import MOST_NODE_SECONDS, merged, warnings_of

FILE = "warnings.json"
MOST_MOVEMENTS = 4
"""Different movements of a sweep that are computed to be looked at; each takes seconds at most."""


def experiment_warnings(experiment: Experiment) -> list[str]:
    """What is meaningless at some points, or at all, each once."""
    keys = [movement_key(point.scenario) for point in experiment.points]
    looked_at = set(list(dict.fromkeys(keys))[:MOST_MOVEMENTS])
    found = {}
    # Points with the same movement one after the other, so that it is computed once.
    for key, point in sorted(zip(keys, experiment.points, strict=True), key=lambda one: one[0]):
        small = point.scenario.nodes * point.scenario.duration_s <= MOST_NODE_SECONDS
        try:
            found[point.name] = warnings_of(point.scenario, experiment.seeds[0], moving=key in looked_at and small)
        except UserError:
            # Its runs fail and say why, each in its row.
            found[point.name] = []
    return merged([(point.name, found[point.name]) for point in experiment.points])


def tell_warnings(warnings: Sequence[str]) -> None:
    """One line each, where errors go."""
    for text in warnings:
        print(f"carrycast: warning: {text}", file=sys.stderr)


def keep_warnings(warnings: Sequence[str], folder: Path) -> None:
    """Beside the experiment's definition: its files may be gone when its report is written again."""
    write_whole(folder / FILE, msgspec.json.format(msgspec.json.encode(list(warnings)), indent=1))


def kept_warnings(folder: Path) -> list[str]:
    """What was kept; nothing of a sweep that kept nothing."""
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=list[str])
    except (OSError, msgspec.MsgspecError):
        return []
