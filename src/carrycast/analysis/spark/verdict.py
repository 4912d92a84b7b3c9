"""How a claim is decided: the 95 % interval decides, never the mean alone, and of several the one that is shown.

A claim holds if its whole interval does, fails if no part of it does, and is undecided between. One of several cases
holds if all of them do and fails if one does. The case that is shown has the verdict of the claim, so the two never
contradict each other.

Of twenty questions with nothing in them, one is decided by chance more often than not. So the claims of an experiment
are also decided together: by Holm's method, from how probable each decision would be by chance.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from carrycast.analysis.spark.definition import Relation
from carrycast.analysis.spark.statistics import FEWEST, Interval
from carrycast.analysis.spark.student import CONFIDENCE

NOTHING = Interval(0, None, None, None)


class Case(NamedTuple):
    """One of the comparisons that a claim makes."""

    name: str
    found: Interval


class Decision(NamedTuple):
    """Whether a claim holds, and how probable it is to decide so by chance."""

    holds: bool | None
    """None: undecided."""
    chance: float | None = None
    """None where nothing was decided."""


UNDECIDED = Decision(None)


class Verdict(NamedTuple):
    """What was decided, and the case that decided it."""

    decision: Decision
    case: Case

    @property
    def holds(self) -> bool | None:
        """None: undecided."""
        return self.decision.holds


def decide(found: Interval, relation: Relation, value: float, tolerance: float = 0.0, rare: float = 0.0) -> Decision:
    """Whether a mean stands in a relation to a value, given where its interval lies.

    `rare` is the share of runs of a kind on which the mean hangs: fewer than show one, with 95 % confidence, decide
    nothing. Their own spread tells nothing of what they have not seen.
    """
    if found.low is None or found.high is None or found.n < runs_to_see(rare):
        return UNDECIDED
    if relation == "=":
        low, high = value - tolerance, value + tolerance
        if low <= found.low and found.high <= high:
            return Decision(True, max(_chance(found, low), _chance(found, high)))
        if found.high < low or high < found.low:
            return Decision(False, _chance(found, low if found.high < low else high))
        return UNDECIDED
    compare = _COMPARISONS[relation]
    bound = value - tolerance if relation in (">", ">=") else value + tolerance
    ends = (compare(found.low, bound), compare(found.high, bound))
    if any(ends) and not all(ends):
        return UNDECIDED
    return Decision(all(ends), _chance(found, bound))


def decide_all(
    cases: Sequence[Case], relation: Relation, value: float, tolerance: float = 0.0, rare: float = 0.0
) -> Verdict:
    """Whether all cases do; the decisive case is, of those with the verdict, the one that does so least."""
    judged = [(decide(case.found, relation, value, tolerance, rare), case) for case in cases]
    for holds in (False, None, True):
        alike = [(decision, case) for decision, case in judged if decision.holds is holds]
        if alike:
            _, case = min(alike, key=lambda one: _margin(one[1].found, relation, value, tolerance))
            chances = [decision.chance or 0.0 for decision, _ in alike]
            # All hold: the likeliest error counts. One fails: each of the cases had its chance to.
            chance = None if holds is None else max(chances) if holds else min(1.0, min(chances) * len(cases))
            return Verdict(Decision(holds, chance), case)
    return Verdict(UNDECIDED, Case("", NOTHING))


def decided_together(chances: Sequence[float | None]) -> list[bool]:
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
    tails = None if found.exact else found.tails(bound)
    return 0.0 if tails is None else min(tails, 1 - CONFIDENCE)


def told_relation(relation: Relation, value: float, tolerance: float = 0.0) -> str:
    """What a claim asks of its mean, for people."""
    return f"{relation} {value:g}" + (f", tolerance {tolerance:g}" if tolerance else "")


def runs_to_see(rare: float) -> int:
    """How many runs show, with 95 % confidence, at least one of a kind that has this share: about 3 / share."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-rare)) if rare > 0 else 0


def too_few(found: Interval, rare: float = 0.0) -> str:
    """Why so many runs decide nothing; empty if they may."""
    needed = runs_to_see(rare)
    if found.n < FEWEST:
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
