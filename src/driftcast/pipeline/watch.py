"""The page beside a report on which one of its runs can be watched."""

from pathlib import Path

from driftcast.errors import UserError, WorkError
from driftcast.pipeline.experiment import Experiment
from driftcast.player import player_of_scenario

PLAYERS = "players"
MAX_NODE_S = 2e6
"""Nodes times seconds: 500 nodes for an hour. More is not simulated again only to be looked at."""


def player_file(experiment: str) -> str:
    """Where the page of an experiment is, from its report."""
    return f"{PLAYERS}/{experiment}.html"


def player_page(experiment: Experiment) -> str | None:
    """The first two points side by side, at the first seed; None if that is too much, or if a run fails."""
    points = experiment.points[:2]
    if any(point.scenario.nodes * point.scenario.duration_s > MAX_NODE_S for point in points):
        return None
    try:
        return player_of_scenario({point.name: point.scenario for point in points}, experiment.seeds[0])
    except (UserError, WorkError):
        # The report tells of every run that failed, this one among them.
        return None


def linked_player(experiment: str, out: Path) -> str | None:
    """What a report in a folder can lead to."""
    file = player_file(experiment)
    return file if (out / file).is_file() else None
