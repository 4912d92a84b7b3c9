"""Decide by a backtracking search whether several conditions can hold together, and find an example.

`Filter.overlaps` compares boxes and gives up on filters that have too many. The search does not expand the boxes: it
tries one alternative after the other and backtracks at the first attribute without an allowed value.
"""

import enum
from collections.abc import Iterable
from typing import NamedTuple

from carrycast.core.matching.automata import Budget
from carrycast.core.matching.intervals import NumberIntervals
from carrycast.core.matching.relations import Box
from carrycast.core.matching.terms import And, Constant, Node, Not, Or
from carrycast.core.matching.values import ValueSet, allowed_values, intersect, is_empty, satisfies
from carrycast.core.model import Scalar

STEPS = 20_000
"""The most predicates that a search visits: some tens of milliseconds. Conditions that people write need about 100."""


class Satisfiability(enum.Enum):
    """Whether conditions can be satisfied together."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"
    """The search was aborted."""


class SatisfiabilityResult(NamedTuple):
    """The answer and, if it is yes, the allowed values of each attribute."""

    answer: Satisfiability
    box: Box


class _SearchAbortedError(Exception):
    """The search needed too many steps."""


def check_satisfiability(nodes: Iterable[Node]) -> SatisfiabilityResult:
    """Decide whether an event can match all of these canonical nodes. Exact unless the search is aborted."""
    search = _Search()
    try:
        found = search.find_box({}, list(nodes))
    except _SearchAbortedError:
        return SatisfiabilityResult(Satisfiability.PERHAPS, {})
    if found is None:
        return SatisfiabilityResult(Satisfiability.NO, {})
    # When the budget of pattern searches is exhausted, sets that may be empty have been taken as nonempty.
    return (
        SatisfiabilityResult(Satisfiability.YES, found)
        if search.budget.steps >= 0
        else SatisfiabilityResult(Satisfiability.PERHAPS, {})
    )


class _Search:
    def __init__(self) -> None:
        self.budget = Budget()
        self._steps = STEPS

    def find_box(self, box: dict[str, ValueSet], pending: list[Node]) -> dict[str, ValueSet] | None:
        """Return a box within `box` in which all pending nodes hold, or None."""
        alternatives: list[Or] = []
        while pending:
            self._steps -= 1
            if self._steps < 0:
                raise _SearchAbortedError
            node = pending.pop()
            if isinstance(node, Constant):
                if not node.value:
                    return None
            elif isinstance(node, And):
                pending.extend(node.operands)
            elif isinstance(node, Or):
                alternatives.append(node)
            else:
                assert not isinstance(node, Not), "a canonical node has no negation above a predicate"
                values = allowed_values(node)
                name = node.attribute
                box[name] = intersect(box[name], values) if name in box else values
                if is_empty(box[name], self.budget):
                    return None
        if not alternatives:
            return box
        # The node with the fewest alternatives comes first, because it fails soonest.
        first = min(alternatives, key=lambda node: len(node.operands))
        others = [node for node in alternatives if node is not first]
        for operand in first.operands:
            found = self.find_box(dict(box), [*others, operand])
            if found is not None:
                return found
        return None


def find_example(box: Box) -> dict[str, Scalar] | None:
    """Return attributes that lie in a box; None if a value would have to be constructed from patterns."""
    found: dict[str, Scalar] = {}
    for name, values in box.items():
        value = _pick_value(values)
        if value is not None:
            found[name] = value
        elif not values.absent:
            return None
    return found


def _pick_value(values: ValueSet) -> Scalar | None:
    """Return a value of the set, the simplest first; None if only absence is allowed or no value is found."""
    if values.booleans:
        return values.booleans[-1]
    for start, end in values.strings:
        # The start of an interval lies in it.
        if not start[0] and start < end and satisfies(start[1], values.patterns):
            return start[1]
    return _pick_number(values.numbers)


def _pick_number(intervals: NumberIntervals) -> float | None:
    for (low, above), (high, beyond) in intervals:
        if low <= 0 <= high and (low, above) <= (0, 0) and (high, beyond) >= (0, 1):
            return 0
        if not above and abs(low) != float("inf"):
            return low
        if beyond and abs(high) != float("inf"):
            return high
        if low == -float("inf"):
            return high - 1
        if high == float("inf"):
            return low + 1
        middle = (low + high) / 2
        if low < middle < high:
            return middle
    return None
