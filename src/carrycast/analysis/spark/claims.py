"""Claims: the statements of an experiment, evaluated over its runs.

A claim holds if its whole 95 % confidence interval does, fails if no part of it does, and is undecided otherwise; the
mean alone never decides. A claim of several cases holds if all of them do and fails if one does. The case that is shown
has the verdict of the claim.

Of twenty claims with no effect behind them, one is decided by chance more often than not. So the claims of an
experiment are also decided together, by Holm's method, from their p-values.
"""

import importlib.util
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from carrycast.analysis.spark.definition import ClaimEntry, Relation
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.statistics import CONFIDENCE, MIN_RUNS, Interval
from carrycast.errors import UserError

NO_INTERVAL = Interval(0, None, None, None)


class ClaimCase(NamedTuple):
    """One of the comparisons that a claim makes."""

    name: str
    found: Interval


class ClaimDecision(NamedTuple):
    """Whether a claim holds, and the p-value of that decision."""

    holds: bool | None
    """None: undecided."""
    chance: float | None = None
    """None where nothing was decided."""


UNDECIDED = ClaimDecision(None)


class ClaimVerdict(NamedTuple):
    """What was decided, and the case that decided it."""

    decision: ClaimDecision
    case: ClaimCase

    @property
    def holds(self) -> bool | None:
        """None: undecided."""
        return self.decision.holds


def decide(
    found: Interval, relation: Relation, value: float, tolerance: float = 0.0, rare: float = 0.0
) -> ClaimDecision:
    """Whether a mean stands in a relation to a value, given where its interval lies.

    `rare` is the share of runs of a kind on which the mean hangs: fewer than show one, with 95 % confidence, decide
    nothing: their spread does not include the runs that they have not seen.
    """
    if found.low is None or found.high is None or found.n < runs_to_observe(rare):
        return UNDECIDED
    if relation == "=":
        low, high = value - tolerance, value + tolerance
        if low <= found.low and found.high <= high:
            return ClaimDecision(True, max(_chance(found, low), _chance(found, high)))
        if found.high < low or high < found.low:
            return ClaimDecision(False, _chance(found, low if found.high < low else high))
        return UNDECIDED
    compare = _COMPARISONS[relation]
    bound = value - tolerance if relation in (">", ">=") else value + tolerance
    ends = (compare(found.low, bound), compare(found.high, bound))
    if any(ends) and not all(ends):
        return UNDECIDED
    return ClaimDecision(all(ends), _chance(found, bound))


def decide_all(
    cases: Sequence[ClaimCase], relation: Relation, value: float, tolerance: float = 0.0, rare: float = 0.0
) -> ClaimVerdict:
    """Whether all cases do; the decisive case is, of those with the verdict, the one that does so least."""
    decided = [(decide(case.found, relation, value, tolerance, rare), case) for case in cases]
    for holds in (False, None, True):
        alike = [(decision, case) for decision, case in decided if decision.holds is holds]
        if alike:
            _, case = min(alike, key=lambda one: _margin(one[1].found, relation, value, tolerance))
            chances = [decision.chance or 0.0 for decision, _ in alike]
            # All hold: the likeliest error counts. One fails: each of the cases had its chance to.
            chance = None if holds is None else max(chances) if holds else min(1.0, min(chances) * len(cases))
            return ClaimVerdict(ClaimDecision(holds, chance), case)
    return ClaimVerdict(UNDECIDED, ClaimCase("", NO_INTERVAL))


def holm_decisions(chances: Sequence[float | None]) -> list[bool]:
    """Which decisions stand if all are to be right with 95 % confidence: Holm's method, over all that were asked."""
    order = sorted(range(len(chances)), key=lambda place: math.inf if (p := chances[place]) is None else p)
    stand = [False] * len(chances)
    for rank, place in enumerate(order):
        chance = chances[place]
        if chance is None or chance > (1 - CONFIDENCE) / (len(chances) - rank):
            break
        stand[place] = True
    return stand


def _chance(found: Interval, bound: float) -> float:
    """How probable it is to decide so by chance, if the truth lay on the bound; a measure without luck knows none.

    An interval that just touches what it was held against is decided by rounding alone: never above five percent.
    """
    p_value = None if found.exact else found.p_value(bound)
    return 0.0 if p_value is None else min(p_value, 1 - CONFIDENCE)


def relation_text(relation: Relation, value: float, tolerance: float = 0.0) -> str:
    """What a claim asks of its mean, for people."""
    return f"{relation} {value:g}" + (f", tolerance {tolerance:g}" if tolerance else "")


def runs_to_observe(rare: float) -> int:
    """How many runs show, with 95 % confidence, at least one of a kind that has this share: about 3 / share."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-rare)) if rare > 0 else 0


def why_undecided(found: Interval, rare: float = 0.0) -> str:
    """Why so many runs decide nothing; empty if they may."""
    needed = runs_to_observe(rare)
    if found.n < MIN_RUNS:
        return f"{found.n} run(s) decide nothing"
    if found.low is None and found.mean is not None:
        return f"all {found.n} runs alike: they show no spread to judge by"
    if found.n < needed:
        return f"{found.n} runs decide nothing: the mean hangs on one run in {1 / rare:.0f}, and {needed} show one"
    return ""


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def _margin(found: Interval, relation: Relation, value: float, tolerance: float) -> float:
    """How far the worse end of an interval is on the right side; without an interval there is none."""
    if found.low is None or found.high is None:
        return -math.inf
    if relation in (">", ">="):
        return found.low - value + tolerance
    if relation in ("<", "<="):
        return value + tolerance - found.high
    return tolerance - max(abs(found.low - value), abs(found.high - value))


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
    """The p-value of the decision: how probable it is to decide so by chance."""
    calibration: bool = False
    """A setting was fitted to this number, so its agreement proves nothing."""
    note: str = ""
    asked: str = ""
    """The relation that the interval was compared with, and its tolerance."""

    def as_row(self) -> dict[str, object]:
        """As JSON has it."""
        return asdict(self)


def make_claim(
    results: Results,
    figure: str,
    statement: str,
    found: Interval,
    decision: ClaimDecision,
    *,
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


def make_claim_over_cases(
    results: Results,
    figure: str,
    statement: str,
    cases: Sequence[ClaimCase],
    relation: Relation,
    value: float,
    *,
    tolerance: float = 0.0,
    notes: Sequence[str] = (),
    paper: float | None = None,
    calibration: bool = False,
) -> Claim:
    """A claim that all its cases must meet; the decisive one stands for all. `notes` stand before its name."""
    decision, decisive = decide_all(cases, relation, value, tolerance)
    asked = relation_text(relation, value, tolerance)
    name = f"decided by {decisive.name}" if len(cases) > 1 and decisive.name else ""
    missing = "" if decisive.found.low is not None else why_undecided(decisive.found)
    note = "; ".join(part for part in (*notes, name, missing) if part)
    return make_claim(
        results,
        figure,
        statement,
        decisive.found,
        decision,
        note=note,
        paper=paper,
        calibration=calibration,
        asked=asked,
    )


Hook = Callable[[Results], Iterable[Claim]]


def evaluate_claims(results: Results) -> list[Claim]:
    """Every claim of an experiment: those of its file, then those of its `claims.py`."""
    experiment = results.experiment
    claims = [_evaluate_entry(entry, results) for entry in experiment.definition.claims]
    if experiment.hook is not None:
        figures = {figure.name for figure in experiment.definition.figures} | {""}
        claims += [claim for claim in load_hook(experiment.hook)(results) if claim.figure in figures]
    # A hook's own decision without a chance is no estimate: a count of all there is.
    chances = [0.0 if claim.chance is None and claim.holds is not None else claim.chance for claim in claims]
    stand = holm_decisions(chances)
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


def _evaluate_entry(entry: ClaimEntry, results: Results) -> Claim:
    relation, note = entry.relation, ""
    if entry.kind == "trend":
        relation = ">" if entry.direction == "rising" else "<"
        cases = _steps(entry, results)
        note = "" if cases else f"{entry.along} has too few labels here for a trend"
    elif entry.kind == "compare":
        cases = [ClaimCase("", results.difference(entry.left, entry.right, entry.metric, entry.exact))]
    else:
        cases = [ClaimCase("", results.mean(entry.of, entry.metric, entry.exact))]
    assert relation is not None
    value = 0.0 if entry.kind == "trend" else entry.value
    rare = results.experiment.definition.rare.get(entry.metric, 0.0)
    decision, decisive = decide_all(cases, relation, value, entry.tolerance, rare)
    few = why_undecided(decisive.found, rare) if cases else ""
    notes = "; ".join(part for part in (entry.note, note, decisive.name, few) if part)
    asked = ("each step " if entry.kind == "trend" else "") + relation_text(relation, value, entry.tolerance)
    return make_claim(
        results,
        entry.figure,
        entry.statement,
        decisive.found,
        decision,
        note=notes,
        paper=entry.paper,
        calibration=entry.calibration,
        asked=asked,
    )


def _steps(entry: ClaimEntry, results: Results) -> list[ClaimCase]:
    """From each label of an axis to the next; every one must go the claimed way."""
    axis = entry.along
    chosen = {point.labels[axis] for point in results.points(entry.of)}
    labels = [label for label in results.experiment.labels(axis) if label in chosen]
    return [
        ClaimCase(
            f"decisive step: {before} to {after}",
            results.difference({**entry.of, axis: after}, {**entry.of, axis: before}, entry.metric, entry.exact),
        )
        for before, after in itertools.pairwise(labels)
    ]
