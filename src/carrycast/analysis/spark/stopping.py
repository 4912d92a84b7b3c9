"""Points stop when the claims about them are decided: how many runs each point gets, and why no more.

`sequential.py` keeps the error rate of claims that are looked at several times.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from carrycast.analysis.spark.claims import Claim, evaluate_claims
from carrycast.analysis.spark.definition import Selector
from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.results import Results


class PointRuns(NamedTuple):
    """How many runs a point has, of how many, and why not more."""

    point: str
    runs: int
    most: int
    why: str

    def as_row(self) -> dict[str, object]:
        """Return the row as `--json` prints it."""
        return self._asdict()


def begin(experiment: Experiment) -> Experiment:
    """Return an experiment with the runs of its first look."""
    looks = experiment.looks
    return replace(experiment, used={point.name: looks[0].runs for point in experiment.points}) if looks else experiment


def extend(experiment: Experiment, results: Results) -> Experiment | None:
    """Return an experiment with the runs of its next look, or None if no point needs more.

    A point goes on while a claim about it is not decided together with all others. A point without claims has all runs.
    """
    looks = experiment.looks
    if not looks:
        return None
    about = _claims_by_point(experiment, evaluate_claims(results))
    used = dict(experiment.used)
    for name, runs in experiment.used.items():
        if not about[name]:
            used[name] = looks[-1].runs
        elif any(claim.together is None for claim in about[name]):
            used[name] = next((look.runs for look in looks if look.runs > runs), runs)
    extended = replace(experiment, used=used)
    more = any(extended.seeds_at(point) != experiment.seeds_at(point) for point in experiment.points)
    return extended if more else None


def count_runs(experiment: Experiment, claims: Sequence[Claim]) -> list[PointRuns]:
    """Return, for each point of an experiment that may stop early, its runs and why it has no more."""
    if not experiment.looks:
        return []
    about = _claims_by_point(experiment, claims)
    every = replace(experiment, used={})
    found = []
    for point in experiment.points:
        runs, most = len(experiment.seeds_at(point)), len(every.seeds_at(point))
        undecided = sum(claim.together is None for claim in about[point.name])
        if not about[point.name]:
            why = "no claim is about it"
        elif undecided:
            why = f"all its runs are made, and {undecided} of {len(about[point.name])} claims about it are undecided"
        else:
            why = f"all {len(about[point.name])} claims about it are decided"
        found.append(PointRuns(point.name, runs, most, why))
    return found


def stop_sentence(counted: Sequence[PointRuns]) -> str:
    """Return in words how many runs were saved."""
    early = sum(one.runs < one.most for one in counted)
    runs, most = sum(one.runs for one in counted), sum(one.most for one in counted)
    why = " because all claims about them are decided" if early else ""
    return f"{runs} of at most {most}; {early} of {len(counted)} points stopped early{why}"


def _claims_by_point(experiment: Experiment, claims: Sequence[Claim]) -> Mapping[str, list[Claim]]:
    """Return the claims about each point: of a claim in the file its selections, of another one its figure's points."""
    about: dict[str, list[Claim]] = {point.name: [] for point in experiment.points}
    entries = experiment.definition.claims
    for place, claim in enumerate(claims):
        if place < len(entries):
            selectors = entries[place].selectors
        else:
            selectors = _figure_selectors(experiment, claim.figure)
        for point in experiment.points:
            if any(point.matches(selector) for selector in selectors):
                about[point.name].append(claim)
    return about


def _figure_selectors(experiment: Experiment, name: str) -> list[Selector]:
    """Return the selections that a claim of `claims.py` about a figure may use; without a figure, all points."""
    figures = [figure for figure in experiment.definition.figures if figure.name == name]
    if not figures:
        return [{}]
    entries = [entry for entry in experiment.definition.claims if entry.figure == name]
    return [
        *(selector for figure in figures for selector in (figure.where, *figure.also)),
        *(selector for entry in entries for selector in entry.selectors),
    ]
