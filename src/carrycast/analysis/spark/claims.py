"""Claims: an experiment's statements, held against its runs. `verdict` decides them, by their (paired) intervals."""

import importlib.util
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from carrycast.analysis.spark.definition import ClaimEntry, Relation
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.statistics import Interval
from carrycast.analysis.spark.verdict import (
    Case,
    Decision,
    decide,
    decide_all,
    decided_together,
    told_relation,
    too_few,
)
from carrycast.errors import UserError

__all__ = ["Claim", "Hook", "claimed", "decide", "decide_all", "judge", "load_hook"]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A row of claims.json."""

    experiment: str
    figure: str
    statement: str
    paper: float | str | None
    ours: float | None
    low: float | None
    high: float | None
    holds: bool | None
    """None: undecided."""
    together: bool | None = None
    """The same if all claims of the experiment are to be right at once (Holm)."""
    chance: float | None = None
    """How probable it is to decide so by chance."""
    calibration: bool = False
    """A setting was fitted to this number, so its agreement proves nothing."""
    note: str = ""
    asked: str = ""
    """What the interval was held against, with its tolerance."""

    def as_row(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)


def claimed(
    results: Results,
    figure: str,
    statement: str,
    found: Interval,
    decision: Decision,
    note: str = "",
    paper: float | str | None = None,
    calibration: bool = False,
    asked: str = "",
) -> Claim:
    """A claim of an experiment, with what was found."""
    return Claim(
        experiment=results.experiment.name,
        figure=figure,
        statement=statement,
        paper=paper,
        ours=found.mean,
        low=found.low,
        high=found.high,
        holds=decision.holds,
        chance=decision.chance,
        calibration=calibration,
        note=note,
        asked=asked,
    )


def claimed_of_all(
    results: Results,
    figure: str,
    statement: str,
    cases: Sequence[Case],
    relation: Relation,
    value: float,
    tolerance: float = 0.0,
    notes: Sequence[str] = (),
    paper: float | None = None,
    calibration: bool = False,
) -> Claim:
    """A claim that all its cases must meet; the decisive one stands for all. `notes` are told before its name."""
    decision, decisive = decide_all(cases, relation, value, tolerance)
    asked = told_relation(relation, value, tolerance)
    name = f"decided by {decisive.name}" if len(cases) > 1 and decisive.name else ""
    missing = "" if decisive.found.low is not None else too_few(decisive.found)
    told = "; ".join(part for part in (*notes, name, missing) if part)
    return claimed(results, figure, statement, decisive.found, decision, told, paper, calibration, asked)


Hook = Callable[[Results], Iterable[Claim]]


def judge(results: Results) -> list[Claim]:
    """Every claim of an experiment: those of its file, then those of its `claims.py`."""
    experiment = results.experiment
    claims = [_judged(entry, results) for entry in experiment.definition.claims]
    if experiment.hook is not None:
        figures = {figure.name for figure in experiment.definition.figures} | {""}
        claims += [claim for claim in load_hook(experiment.hook)(results) if claim.figure in figures]
    # A hook's own decision without a chance is no estimate: a count of all there is.
    chances = [0.0 if claim.chance is None and claim.holds is not None else claim.chance for claim in claims]
    stand = decided_together(chances)
    return [replace(claim, together=claim.holds if safe else None) for claim, safe in zip(claims, stand, strict=True)]


def load_hook(path: Path) -> Hook:
    """The function `claims` of an experiment's `claims.py`."""
    spec = importlib.util.spec_from_file_location(f"carrycast_claims_{path.parent.name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise UserError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from None
    hook = getattr(module, "claims", None)
    if not callable(hook):
        raise UserError(f"{path}: has no function claims(results)")
    found: Hook = hook
    return found


def _judged(entry: ClaimEntry, results: Results) -> Claim:
    relation, note = entry.relation, ""
    if entry.kind == "trend":
        relation = ">" if entry.direction == "rising" else "<"
        cases = _steps(entry, results)
        note = "" if cases else f"{entry.along} has too few labels here for a trend"
    elif entry.kind == "compare":
        cases = [Case("", results.difference(entry.left, entry.right, entry.metric, entry.exact))]
    else:
        cases = [Case("", results.mean(entry.of, entry.metric, entry.exact))]
    assert relation is not None
    value = 0.0 if entry.kind == "trend" else entry.value
    rare = results.experiment.definition.rare.get(entry.metric, 0.0)
    decision, decisive = decide_all(cases, relation, value, entry.tolerance, rare)
    few = too_few(decisive.found, rare) if cases else ""
    told = "; ".join(part for part in (entry.note, note, decisive.name, few) if part)
    asked = ("each step " if entry.kind == "trend" else "") + told_relation(relation, value, entry.tolerance)
    return claimed(
        results, entry.figure, entry.statement, decisive.found, decision, told, entry.paper, entry.calibration, asked
    )


def _steps(entry: ClaimEntry, results: Results) -> list[Case]:
    """From each label of an axis to the next; every one must go the claimed way."""
    axis = entry.along
    chosen = {point.labels[axis] for point in results.points(entry.of)}
    labels = [label for label in results.experiment.labels(axis) if label in chosen]
    return [
        Case(
            f"decisive step: {before} to {after}",
            results.difference({**entry.of, axis: after}, {**entry.of, axis: before}, entry.metric, entry.exact),
        )
        for before, after in itertools.pairwise(labels)
    ]
