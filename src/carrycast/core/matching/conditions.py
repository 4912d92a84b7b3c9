"""Conditions: the constraint of a box on one attribute as a flat tuple, for tables of a million filters.

A condition is a tuple (name, low, high, kind): a single value, an interval of numbers, or any other set of values. It
is equivalent to the box's `ValueSet`, takes a fifth of its memory, and is tested without function calls.
"""

import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from carrycast.core.matching.automata import Budget
from carrycast.core.matching.intervals import ALL_STRINGS, string_points
from carrycast.core.matching.relations import Box
from carrycast.core.matching.values import ANYTHING, ValueSet, is_empty, is_subset, satisfies
from carrycast.core.model import Attributes, Scalar

POINT, CLOSED, LOW_OPEN, HIGH_OPEN, BOTH_OPEN, OTHER = range(6)
"""Kinds of conditions; from CLOSED to BOTH_OPEN those with an interval of numbers."""

Condition: TypeAlias = tuple[str, Any, Any, int]
"""(name, low, high, kind). The value of a point is in `low`, a boolean as a tuple, since True equals 1. For any other
set `low` is its `ValueSet`."""

Conditions: TypeAlias = tuple[Condition, ...]


def conditions_of(box: Box) -> Conditions | None:
    """The conditions of a box, in the order of their names; None if the box is empty."""
    budget = Budget()
    if any(is_empty(values, budget) for values in box.values()):
        return None
    found: list[Condition] = []
    for name in sorted(box):
        values = box[name]
        if values != ANYTHING:
            atoms = None if values.absent else atoms_of(name, values)
            found.append(atoms[0] if atoms is not None and len(atoms) == 1 else (sys.intern(name), values, None, OTHER))
    return tuple(found)


def atoms_of(name: str, values: ValueSet) -> list[Condition] | None:
    """The points and intervals of numbers that make up a set; None if it has more than single strings."""
    texts = [] if not values.strings else None if values.patterns else string_points(values.strings)
    if texts is None:
        return None
    name = sys.intern(name)
    atoms: list[Condition] = [(name, (value,), None, POINT) for value in values.booleans]
    atoms += [(name, text, None, POINT) for text in texts]
    for (low, low_side), (high, high_side) in values.numbers:
        if low == high:
            atoms.append((name, low, None, POINT))
        else:
            atoms.append((name, low, high, CLOSED + low_side + 2 * (1 - high_side)))
    return atoms


def is_selective(condition: Condition) -> bool:
    """Whether a condition is neither a point nor an interval, and still selective: one of several values, a pattern, a
    range of strings."""
    values = condition[1]
    if condition[3] != OTHER or values.absent:
        return False
    return values.strings != ALL_STRINGS or any(not negated for _, negated in values.patterns)


def values_of(condition: Condition) -> ValueSet:
    """The set of values of a condition."""
    _, low, _, kind = condition
    if kind == OTHER:
        values: ValueSet = low
        return values
    if kind == POINT:
        if isinstance(low, tuple):
            return ValueSet(booleans=low)
        if isinstance(low, str):
            return ValueSet(strings=(((0, low), (0, low + "\0")),))
        return ValueSet(numbers=(((low, 0), (low, 1)),))
    return ValueSet(numbers=((_low_cut(condition), _high_cut(condition)),))


def all_hold(conditions: Conditions, attributes: Attributes) -> bool:
    """Whether attributes satisfy every condition."""
    for name, low, high, kind in conditions:
        value = attributes.get(name)
        if kind == POINT:
            if value is not low[0] if isinstance(low, tuple) else value != low or isinstance(value, bool):
                return False
        elif kind == OTHER:
            if not _contains(low, value):
                return False
        elif not isinstance(value, int | float) or isinstance(value, bool) or not _lies_in(value, low, high, kind):
            return False
    return True


def conditions_cover(wide: Conditions, narrow: Mapping[str, Condition]) -> bool:
    """True only if every event that satisfies the narrow conditions, by name, satisfies the wide ones."""
    for condition in wide:
        other = narrow.get(condition[0])
        if other is None or not _covers(condition, other):
            return False
    return True


def by_name(conditions: Conditions) -> dict[str, Condition]:
    """Conditions under their names."""
    return {condition[0]: condition for condition in conditions}


def samples(conditions: Conditions) -> Iterator[Condition]:
    """One point or interval of each condition that has some: a filter that covers all covers these too. Sets of strings
    with negated patterns (`not like '_%'`) have no known member, and are given as they are."""
    for condition in conditions:
        if condition[3] != OTHER:
            yield condition
        elif not condition[1].absent:
            atoms = atoms_of(condition[0], condition[1])
            if atoms:
                yield atoms[0]
            elif any(negated for _, negated in condition[1].patterns):
                yield condition


def _lies_in(value: float, low: float, high: float, kind: int) -> bool:
    above = low < value if kind in (LOW_OPEN, BOTH_OPEN) else low <= value
    return above and (value < high if kind in (HIGH_OPEN, BOTH_OPEN) else value <= high)


def _covers(wide: Condition, narrow: Condition) -> bool:
    if wide[3] == POINT and narrow[3] == POINT:
        return bool(wide[1] == narrow[1])
    if wide[3] == OTHER or narrow[3] == OTHER:
        return is_subset(values_of(narrow), values_of(wide), Budget())
    if wide[3] == POINT or isinstance(narrow[1], str | tuple):
        return False
    return _low_cut(wide) <= _low_cut(narrow) and _high_cut(narrow) <= _high_cut(wide)


def _low_cut(condition: Condition) -> tuple[float, int]:
    return condition[1], int(condition[3] in (LOW_OPEN, BOTH_OPEN))


def _high_cut(condition: Condition) -> tuple[float, int]:
    if condition[3] == POINT:
        return condition[1], 1
    return condition[2], int(condition[3] not in (HIGH_OPEN, BOTH_OPEN))


def _contains(values: ValueSet, value: Scalar | None) -> bool:
    if value is None:
        return values.absent
    if isinstance(value, bool):
        return value in values.booleans
    if isinstance(value, str):
        cut = (0, value)
        return any(start <= cut < end for start, end in values.strings) and satisfies(value, values.patterns)
    number = (value, 0)
    return any(start <= number < end for start, end in values.numbers)
