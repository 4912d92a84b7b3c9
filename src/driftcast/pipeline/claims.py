"""Claims: an experiment's statements, held against its runs. The (paired) 95 % interval decides, never the mean alone.

A claim holds if its whole interval does, fails if no part of it does, and is undecided between.
"""

import importlib.util
import itertools
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from driftcast.errors import UserError
from driftcast.pipeline.definition import ClaimEntry, Relation
from driftcast.pipeline.results import Results
from driftcast.pipeline.statistics import Interval, interval


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
    calibration: bool = False
    """A setting was fitted to this number, so its agreement proves nothing."""
    note: str = ""

    def as_row(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)


def claimed(
    results: Results,
    figure: str,
    statement: str,
    found: Interval,
    holds: bool | None,
    note: str = "",
    paper: float | str | None = None,
    calibration: bool = False,
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
        holds=holds,
        calibration=calibration,
        note=note,
    )


Hook = Callable[[Results], Iterable[Claim]]


def judge(results: Results) -> list[Claim]:
    """Every claim of an experiment: those of its file, then those of its `claims.py`."""
    experiment = results.experiment
    claims = [_judged(entry, results) for entry in experiment.definition.claims]
    if experiment.hook is not None:
        figures = {figure.name for figure in experiment.definition.figures} | {""}
        claims += [claim for claim in load_hook(experiment.hook)(results) if claim.figure in figures]
    return claims


def load_hook(path: Path) -> Hook:
    """The function `claims` of an experiment's `claims.py`."""
    spec = importlib.util.spec_from_file_location(f"driftcast_claims_{path.parent.name}", path)
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


def decide(found: Interval, relation: Relation, value: float, tolerance: float = 0.0) -> bool | None:
    """Whether a mean stands in a relation to a value, given where its interval lies."""
    if found.low is None or found.high is None:
        return None
    if relation == "=":
        low, high = value - tolerance, value + tolerance
        if low <= found.low and found.high <= high:
            return True
        return False if found.high < low or high < found.low else None
    compare = _COMPARISONS[relation]
    bound = value - tolerance if relation in (">", ">=") else value + tolerance
    ends = (compare(found.low, bound), compare(found.high, bound))
    return True if all(ends) else (None if any(ends) else False)


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _judged(entry: ClaimEntry, results: Results) -> Claim:
    if entry.kind == "trend":
        found, holds, note = _trend(entry, results)
    elif entry.kind == "compare":
        assert entry.relation is not None
        found, note = results.difference(entry.left, entry.right, entry.metric), ""
        holds = decide(found, entry.relation, entry.value, entry.tolerance)
    else:
        assert entry.relation is not None
        found, note = interval(results.selected(entry.of, entry.metric).values()), ""
        holds = decide(found, entry.relation, entry.value, entry.tolerance)
    if found.n < 2:
        note = f"{found.n} run(s) decide nothing"
    told = "; ".join(part for part in (entry.note, note) if part)
    return claimed(results, entry.figure, entry.statement, found, holds, told, entry.paper, entry.calibration)


def _trend(entry: ClaimEntry, results: Results) -> tuple[Interval, bool | None, str]:
    """Every step must go the claimed way; the step that does so least stands for all."""
    axis = entry.along
    chosen = {point.labels[axis] for point in results.points(entry.of)}
    labels = [label for label in results.experiment.labels(axis) if label in chosen]
    sign = 1.0 if entry.direction == "rising" else -1.0
    steps: list[tuple[Interval, bool | None, str]] = []
    for before, after in itertools.pairwise(labels):
        step = results.difference({**entry.of, axis: after}, {**entry.of, axis: before}, entry.metric)
        holds = decide(step, ">" if sign > 0 else "<", 0.0, entry.tolerance)
        steps.append((step, holds, f"smallest step: {before} to {after}"))
    if not steps:
        return Interval(0, None, None, None), None, f"{axis} has too few labels here for a trend"
    verdicts = [holds for _, holds, _ in steps]
    weakest = min(steps, key=lambda step: _advance(step[0], sign))
    verdict = False if False in verdicts else (None if None in verdicts else True)
    return weakest[0], verdict, weakest[2]


def _advance(step: Interval, sign: float) -> float:
    """How surely a step goes the claimed way: the worse end of its interval."""
    end = step.low if sign > 0 else step.high
    return float("-inf") if end is None else sign * end
