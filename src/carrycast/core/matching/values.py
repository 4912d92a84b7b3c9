"""Exact sets of the values that a filter allows for one attribute: all kinds of values, and absence."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from carrycast.core.matching.automata import Budget, Pattern, SignedPattern, exists_string
from carrycast.core.matching.intervals import (
    ALL_NUMBERS,
    ALL_STRINGS,
    NumberIntervals,
    StringIntervals,
    difference,
    intersection,
    number_interval,
    string_above,
    string_below,
    string_point,
    string_points,
    union,
)
from carrycast.core.matching.patterns import LikePattern, make_like_matcher
from carrycast.core.matching.terms import Between, Compare, In, IsNull, Like, Literal, Matches, Operator
from carrycast.core.matching.topics import TopicFilter, make_topic_matcher, topics_cover, topics_overlap

Predicate = Compare | Between | In | Like | Matches | IsNull


@dataclass(frozen=True, slots=True)
class ValueSet:
    """The allowed values of an attribute. A string must lie in `strings` and satisfy all `patterns`."""

    absent: bool = False
    booleans: tuple[bool, ...] = ()
    numbers: NumberIntervals = ()
    strings: StringIntervals = ()
    patterns: tuple[SignedPattern, ...] = ()


ANYTHING = ValueSet(True, (False, True), ALL_NUMBERS, ALL_STRINGS)
PRESENT = ValueSet(False, (False, True), ALL_NUMBERS, ALL_STRINGS)
ABSENT = ValueSet(absent=True)
NOTHING = ValueSet()


def allowed_values(predicate: Predicate) -> ValueSet:
    """Return the values of the attribute that make the predicate TRUE."""
    match predicate:
        case Compare(_, operator, literal):
            return _select_values(operator, literal)
        case Between(_, low, high, False):
            return intersect(_select_values(Operator.GE, low), _select_values(Operator.LE, high))
        case Between(_, low, high, _):
            return _unite_values(_select_values(Operator.LT, low), _select_values(Operator.GT, high))
        case In(_, literals, negated):
            sets = [_select_values(Operator.NE if negated else Operator.EQ, literal) for literal in literals]
            result = sets[0]
            for other in sets[1:]:
                result = intersect(result, other) if negated else _unite_values(result, other)
            return result
        case Like(_, pattern, negated):
            return ValueSet(strings=ALL_STRINGS, patterns=((pattern, negated),))
        case Matches(_, topics, negated):
            return ValueSet(strings=ALL_STRINGS, patterns=((topics, negated),))
        case IsNull(_, negated):
            return PRESENT if negated else ABSENT


def _select_values(operator: Operator, literal: Literal) -> ValueSet:
    value = literal.value
    if isinstance(value, str):
        return ValueSet(strings=_select_strings(operator, value))
    if isinstance(value, bool):
        return ValueSet(booleans=_select_booleans(operator, value))
    return ValueSet(numbers=_select_numbers(operator, value))


def _select_strings(operator: Operator, value: str) -> StringIntervals:
    match operator:
        case Operator.EQ:
            return string_point(value)
        case Operator.NE:
            return difference(ALL_STRINGS, string_point(value))
        case Operator.LT | Operator.LE:
            return string_below(value, operator is Operator.LE)
        case Operator.GT | Operator.GE:
            return string_above(value, operator is Operator.GE)


def _select_numbers(operator: Operator, value: float) -> NumberIntervals:
    lowest, highest = -float("inf"), float("inf")
    match operator:
        case Operator.EQ:
            return number_interval(value, False, value, False)
        case Operator.NE:
            return difference(ALL_NUMBERS, number_interval(value, False, value, False))
        case Operator.LT | Operator.LE:
            return number_interval(lowest, False, value, operator is Operator.LT)
        case Operator.GT | Operator.GE:
            return number_interval(value, operator is Operator.GT, highest, False)


def _select_booleans(operator: Operator, value: bool) -> tuple[bool, ...]:
    tests = {
        Operator.EQ: lambda candidate: candidate == value,
        Operator.NE: lambda candidate: candidate != value,
        Operator.LT: lambda candidate: candidate < value,
        Operator.LE: lambda candidate: candidate <= value,
        Operator.GT: lambda candidate: candidate > value,
        Operator.GE: lambda candidate: candidate >= value,
    }
    return tuple(candidate for candidate in (False, True) if tests[operator](candidate))


def intersect(one: ValueSet, two: ValueSet) -> ValueSet:
    """Return the values in both sets."""
    strings = intersection(one.strings, two.strings)
    patterns = tuple(dict.fromkeys((*one.patterns, *two.patterns))) if strings else ()
    points = string_points(strings) if patterns else None
    if points is not None:
        # Few strings are left: testing them now makes the patterns redundant.
        kept = tuple(interval for interval, text in zip(strings, points, strict=True) if satisfies(text, patterns))
        strings, patterns = kept, ()
    return ValueSet(
        one.absent and two.absent,
        tuple(value for value in one.booleans if value in two.booleans),
        intersection(one.numbers, two.numbers),
        strings,
        patterns,
    )


def unite(one: ValueSet, two: ValueSet) -> ValueSet | None:
    """Return the values in either set, or None if patterns prevent a simple set."""
    return None if one.patterns or two.patterns else _unite_values(one, two)


def _unite_values(one: ValueSet, two: ValueSet) -> ValueSet:
    return ValueSet(
        one.absent or two.absent,
        tuple(value for value in (False, True) if value in one.booleans or value in two.booleans),
        union(one.numbers, two.numbers),
        union(one.strings, two.strings),
    )


@lru_cache(maxsize=1024)
def _make_matcher(pattern: Pattern) -> Callable[[str], bool]:
    return make_like_matcher(pattern) if isinstance(pattern, LikePattern) else make_topic_matcher(pattern)


def satisfies(text: str, patterns: tuple[SignedPattern, ...]) -> bool:
    """Whether a text matches all positive and no negated patterns."""
    return all(_make_matcher(pattern)(text) is not negated for pattern, negated in patterns)


def is_empty(values: ValueSet, budget: Budget) -> bool:
    """True only if no value is in the set; exact unless the budget runs out."""
    if values.absent or values.booleans or values.numbers:
        return False
    return not values.strings or not _may_hold(values.strings, values.patterns, budget)


def is_subset(narrow: ValueSet, wide: ValueSet, budget: Budget) -> bool:
    """True only if every value of the narrow set is in the wide one; exact unless the budget runs out."""
    if narrow.absent > wide.absent or not set(narrow.booleans) <= set(wide.booleans):
        return False
    if difference(narrow.numbers, wide.numbers):
        return False
    outside = difference(narrow.strings, wide.strings)
    if outside and _may_hold(outside, narrow.patterns, budget):
        return False
    return not narrow.strings or all(
        pattern in narrow.patterns
        or not _may_hold(narrow.strings, (*narrow.patterns, (pattern[0], not pattern[1])), budget)
        for pattern in wide.patterns
    )


@lru_cache(maxsize=4096)
def _contradict(one: SignedPattern, two: SignedPattern) -> bool:
    # The common cases need no search: a pattern and its negation, and topic filters level by level.
    if one[0] == two[0]:
        return one[1] is not two[1]
    if not isinstance(one[0], TopicFilter) or not isinstance(two[0], TopicFilter):
        return False
    if one[1] and two[1]:
        return False
    if one[1]:
        return topics_cover(one[0], two[0])
    if two[1]:
        return topics_cover(two[0], one[0])
    return not topics_overlap(one[0], two[0])


def _may_hold(strings: StringIntervals, patterns: tuple[SignedPattern, ...], budget: Budget) -> bool:
    """False only if no string in the intervals satisfies the patterns."""
    if not patterns:
        return bool(strings)
    budget.steps -= len(patterns) ** 2
    if budget.steps < 0:
        return True
    for number, one in enumerate(patterns):
        if any(_contradict(one, two) for two in patterns[:number]):
            return False
    points = string_points(strings)
    if points is not None:
        return any(satisfies(text, patterns) for text in points)
    return exists_string(strings, patterns, budget) is not False
