"""How a claim is decided: the 95 % interval decides, never the mean alone, and of several the one that is shown.

A claim holds if its whole interval does, fails if no part of it does, and is undecided between. One of several cases
holds if all of them do and fails if one does. The case that is shown has the verdict of the claim, so the two never
contradict each other.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from driftcast.pipeline.definition import Relation
from driftcast.pipeline.statistics import CONFIDENCE, Interval

NOTHING = Interval(0, None, None, None)


class Case(NamedTuple):
    """One of the comparisons that a claim makes."""

    name: str
    found: Interval


class Verdict(NamedTuple):
    """What was decided, and the case that decided it."""

    holds: bool | None
    """None: undecided."""
    case: Case


def decide(found: Interval, relation: Relation, value: float, tolerance: float = 0.0, rare: float = 0.0) -> bool | None:
    """Whether a mean stands in a relation to a value, given where its interval lies.

    `rare` is the share of runs of a kind on which the mean hangs: fewer than show one, with 95 % confidence, decide
    nothing. Their own spread tells nothing of what they have not seen.
    """
    if found.low is None or found.high is None or found.n < runs_to_see(rare):
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


def decide_all(
    cases: Sequence[Case], relation: Relation, value: float, tolerance: float = 0.0, rare: float = 0.0
) -> Verdict:
    """Whether all cases do; the decisive case is, of those with the verdict, the one that does so least."""
    judged = [(decide(case.found, relation, value, tolerance, rare), case) for case in cases]
    for holds in (False, None, True):
        alike = [case for verdict, case in judged if verdict is holds]
        if alike:
            return Verdict(holds, min(alike, key=lambda case: _margin(case.found, relation, value, tolerance)))
    return Verdict(None, Case("", NOTHING))


def told_relation(relation: Relation, value: float, tolerance: float = 0.0) -> str:
    """What a claim asks of its mean, for people."""
    return f"{relation} {value:g}" + (f", tolerance {tolerance:g}" if tolerance else "")


def runs_to_see(rare: float) -> int:
    """How many runs show, with 95 % confidence, at least one of a kind that has this share: about 3 / share."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log1p(-rare)) if rare > 0 else 0


def too_few(found: Interval, rare: float = 0.0) -> str:
    """Why so many runs decide nothing; empty if they may."""
    needed = runs_to_see(rare)
    if found.n < 2:
        return f"{found.n} run(s) decide nothing"
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
