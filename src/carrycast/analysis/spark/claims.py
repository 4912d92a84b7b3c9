"""Claims: the statements of an experiment, evaluated over its runs.

A claim holds if its whole 95 % confidence interval meets the stated relation, fails if no part of the interval does,
and is undecided otherwise. A claim with several cases holds if all cases hold and fails if one fails. The report shows
the decisive case, which has the verdict of the claim.

Of twenty claims without any effect, one or more are likely to be decided by chance. So the claims of an experiment are
also tested together, by the Holm-Bonferroni method (S. Holm, Scandinavian Journal of Statistics 6, 1979), from their
p-values.
"""

import importlib.util
import itertools
import math
import operator
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

from carrycast.analysis.spark.definition import ClaimEntry, Relation
from carrycast.analysis.spark.results import Results
from carrycast.analysis.spark.sequential import Look, sequential_chance
from carrycast.analysis.spark.statistics import CONFIDENCE, MIN_RUNS, Interval
from carrycast.errors import UserError

NO_INTERVAL = Interval(0, None, None, None)


class ClaimCase(NamedTuple):
    """One comparison of a claim, with a name for the report."""

    name: str
    found: Interval


class ClaimDecision(NamedTuple):
    """Whether a claim holds, and the p-value of that decision."""

    holds: bool | None
    """None: undecided."""
    chance: float | None = None
    """The p-value; None if undecided."""


UNDECIDED = ClaimDecision(None)


class ClaimVerdict(NamedTuple):
    """The decision about a claim, and its decisive case."""

    decision: ClaimDecision
    case: ClaimCase

    @property
    def holds(self) -> bool | None:
        """None: undecided."""
        return self.decision.holds


def decide(
    found: Interval, relation: Relation, value: float, tolerance: float = 0.0, rare: float = 0.0
) -> ClaimDecision:
    """Decide from its confidence interval whether a mean has a relation to a value.

    `rare` is the share of the rare runs on which the mean depends. The decision is open if there are too few runs to
    contain one of them with 95 % confidence, because the spread of the runs then does not include the rare ones.
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
    """Decide whether all cases hold. The decisive case is the one with the verdict and the smallest margin."""
    decided = [(decide(case.found, relation, value, tolerance, rare), case) for case in cases]
    for holds in (False, None, True):
        alike = [(decision, case) for decision, case in decided if decision.holds is holds]
        if alike:
            _, case = min(alike, key=lambda one: _margin(one[1].found, relation, value, tolerance))
            chances = [decision.chance or 0.0 for decision, _ in alike]
            # If all hold, the largest p-value counts. If one fails, Bonferroni's correction over the cases applies.
            chance = None if holds is None else max(chances) if holds else min(1.0, min(chances) * len(cases))
            return ClaimVerdict(ClaimDecision(holds, chance), case)
    return ClaimVerdict(UNDECIDED, ClaimCase("", NO_INTERVAL))


def holm_decisions(chances: Sequence[float | None]) -> list[bool]:
    """Return which decisions remain if all are to be right with 95 % confidence, by the Holm-Bonferroni method."""
    order = sorted(range(len(chances)), key=lambda place: math.inf if (p := chances[place]) is None else p)
    stand = [False] * len(chances)
    for rank, place in enumerate(order):
        chance = chances[place]
        if chance is None or chance > (1 - CONFIDENCE) / (len(chances) - rank):
            break
        stand[place] = True
    return stand


def _chance(found: Interval, bound: float) -> float:
    """Return the p-value of a decision: its probability if the true mean were the bound. An exact measure has none (0).

    The p-value of a decided claim is at most 0.05; rounding may exceed that where the interval just touches the bound.
    """
    p_value = None if found.exact else found.p_value(bound)
    return 0.0 if p_value is None else min(p_value, 1 - CONFIDENCE)


def relation_text(relation: Relation, value: float, tolerance: float = 0.0) -> str:
    """Return the relation that a claim requires of its mean, as text."""
    return f"{relation} {value:g}" + (f", tolerance {tolerance:g}" if tolerance else "")


def runs_to_observe(rare: float) -> int:
    """Return the number of runs that contain a rare run of this share with 95 % confidence: about 3 / share."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-rare)) if rare > 0 else 0


def why_undecided(found: Interval, rare: float = 0.0) -> str:
    """Return the reason why the runs cannot decide a claim; empty if they can."""
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
    """Return the distance of the worse end of an interval from violating the relation; -inf without an interval."""
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
    """The verdict if all claims of the experiment are to be right at once (Holm-Bonferroni)."""
    chance: float | None = None
    """The p-value of the decision."""
    calibration: bool = False
    """Whether a setting was fitted to this number, so that its agreement proves nothing."""
    note: str = ""
    asked: str = ""
    """The relation that the interval was compared with, and its tolerance."""
    runs: int | None = None
    """The runs of each point by which the claim was decided, if points stop when their claims are decided."""
    interval: Interval | None = None
    """What the claim was decided by; not part of the row."""

    def as_row(self) -> dict[str, object]:
        """Return the row of claims.json."""
        return asdict(replace(self, interval=None), dict_factory=_drop_interval)


def _drop_interval(fields: list[tuple[str, object]]) -> dict[str, object]:
    return {name: value for name, value in fields if name != "interval"}


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
    """Build a claim from a confidence interval and its decision."""
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
        interval=found,
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
    """Build a claim that holds if all its cases do. Its note has `notes` and the name of the decisive case."""
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


def evaluate_once(results: Results) -> list[Claim]:
    """Evaluate every claim of an experiment alone: those of its file, then those of its `claims.py`."""
    experiment = results.experiment
    claims = [_evaluate_entry(entry, results) for entry in experiment.definition.claims]
    if experiment.hook is not None:
        figures = {figure.name for figure in experiment.definition.figures} | {""}
        claims += [claim for claim in load_hook(experiment.hook)(results) if claim.figure in figures]
    return claims


def apply_holm(claims: Sequence[Claim]) -> list[Claim]:
    """Return the claims with their verdicts if all are to be right at once."""
    # A decision of the hook without a p-value is exact, not an estimate.
    chances = [0.0 if claim.chance is None and claim.holds is not None else claim.chance for claim in claims]
    stand = holm_decisions(chances)
    return [replace(claim, together=claim.holds if safe else None) for claim, safe in zip(claims, stand, strict=True)]


def evaluate_claims(results: Results) -> list[Claim]:
    """Evaluate every claim of an experiment, alone and together with all others.

    If points stop when their claims are decided, the claims are evaluated at each look that the runs have reached. Each
    claim keeps its best decision; an open claim has the interval of the last look. The runs of a point that has stopped
    are tested again when others get more.
    """
    looks = results.experiment.looks
    if not looks:
        return apply_holm(evaluate_once(results))
    reached = [look for place, look in enumerate(looks) if place == 0 or results.has_more(looks[place - 1].runs)]
    best: dict[_ClaimKey, Claim] = {}
    for look in reached:
        found = dict(_number_claims(_correct(claim, look) for claim in evaluate_once(results.first(look.runs))))
        for key, claim in found.items():
            before = best.get(key)
            if before is None or _rank(claim) <= _rank(before):
                same = before is not None and before.interval == claim.interval
                best[key] = replace(claim, runs=before.runs) if before is not None and same else claim
    # A claim whose statement has changed with the runs is another one.
    return apply_holm([best[key] for key in found])


_ClaimKey = tuple[str, str, int]
"""The figure and the statement of a claim, and which claim of that statement it is."""


def _correct(claim: Claim, look: Look) -> Claim:
    """Return a claim as it stands at one of several looks."""
    claim = replace(claim, runs=look.runs)
    if claim.interval is not None:
        widened = claim.interval.widen(look.spent)
        claim = replace(claim, low=widened.low, high=widened.high)
    if claim.holds is None or claim.chance is None:
        return claim
    chance = sequential_chance(claim.chance, look)
    holds = claim.holds if chance <= 1 - CONFIDENCE else None
    return replace(claim, holds=holds, chance=None if holds is None else chance)


def _rank(claim: Claim) -> tuple[bool, float]:
    return claim.holds is None, claim.chance or 0.0


def _number_claims(claims: Iterable[Claim]) -> Iterable[tuple[_ClaimKey, Claim]]:
    seen: Counter[tuple[str, str]] = Counter()
    for claim in claims:
        name = (claim.figure, claim.statement)
        yield (*name, seen[name]), claim
        seen[name] += 1


def load_hook(path: Path) -> Hook:
    """Load the function `claims` of an experiment's `claims.py`."""
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
    """Return a case for each step from one label of an axis to the next."""
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
