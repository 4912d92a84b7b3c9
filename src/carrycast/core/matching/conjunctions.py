"""A tree index of many conjunctions: finds those that an event satisfies, or that cover or are covered by another.

A tree of tables. In each, a conjunction is indexed by one of its conditions: by its rarest single value if it has one,
else by an interval. Where too many conjunctions share a value they form a table of their own, indexed by another
condition. So a lookup visits few conjunctions that do not match.

A conjunction is a sequence of conditions. A condition is the constraint on one attribute as a flat tuple (name, low,
high, kind): a single value, an interval of numbers, or any other set of values. It is equivalent to the box's
`ValueSet`, takes a fifth of its memory, and is tested without function calls.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from carrycast.core.matching.automata import Budget
from carrycast.core.matching.intervals import ALL_STRINGS, NumberCut, string_points
from carrycast.core.matching.ranges import RangeIndex
from carrycast.core.matching.relations import Box
from carrycast.core.matching.values import ANYTHING, ValueSet, is_empty, is_subset, satisfies
from carrycast.core.model import Attributes, Scalar

POINT, CLOSED, LOW_OPEN, HIGH_OPEN, BOTH_OPEN, OTHER = range(6)
"""The kinds of conditions. CLOSED to BOTH_OPEN are intervals of numbers."""

Condition: TypeAlias = tuple[str, Any, Any, int]
"""(name, low, high, kind). `low` holds the value of a point (a boolean in a tuple, since True equals 1), and the
`ValueSet` of any other set."""

Conditions: TypeAlias = tuple[Condition, ...]


def conditions_of(box: Box) -> Conditions | None:
    """Return the conditions of a box, in the order of their names; None if the box is empty."""
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
    """Return the points and intervals of numbers that make up a set; None if it has ranges or patterns of strings."""
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
    """Whether a condition is selective although it is neither a point nor an interval of numbers: a list of values, a
    pattern, a range of strings."""
    values = condition[1]
    if condition[3] != OTHER or values.absent:
        return False
    return values.strings != ALL_STRINGS or any(not negated for _, negated in values.patterns)


def values_of(condition: Condition) -> ValueSet:
    """Return the set of values of a condition."""
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
    """Whether the attributes satisfy every condition."""
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
    """True only if every event that satisfies the narrow conditions (by attribute name) satisfies the wide ones."""
    for condition in wide:
        other = narrow.get(condition[0])
        if other is None or not _covers(condition, other):
            return False
    return True


def index_by_name(conditions: Conditions) -> dict[str, Condition]:
    """Return the conditions by attribute name."""
    return {condition[0]: condition for condition in conditions}


def take_samples(conditions: Conditions) -> Iterator[Condition]:
    """Return one point or interval of each condition that has one. A filter that covers all conditions covers these
    too. Sets of strings with negated patterns (`not like '_%'`) have no known member and are returned unchanged."""
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


# Above this number of conjunctions with the same value, a subtree is cheaper than testing each.
LISTED = 8
# Up to this number of intervals, a scan is faster than a tree.
SCANNED = 192


class IndexedConjunction:
    """A conjunction in the tree. `owner` is its filter. Its first conditions are those by which it is indexed."""

    __slots__ = ("conditions", "owner", "residual")

    def __init__(self, owner: object, conditions: Conditions) -> None:
        self.owner = owner
        self.conditions = conditions
        self.residual: Conditions = conditions
        """The conditions that a lookup still has to test."""


# The largest set of values that is split into single values: alone, and beside a condition that can be indexed.
SPREAD = 64
SPREAD_BESIDE = 16


def indexable_conjunctions(conditions: Conditions) -> list[Conditions] | None:
    """Return equivalent conjunctions, each with a point or an interval to index it by; None if there are none or too
    many. A set of values (`role in (...)`) is split: conjunctions that share their other values often differ in it."""
    simple = any(kind != OTHER for _, _, _, kind in conditions)
    best: tuple[int, list[Condition]] | None = None
    for place, (name, values, _, kind) in enumerate(conditions):
        atoms = None if kind != OTHER or values.absent else atoms_of(name, values)
        if atoms and (best is None or len(atoms) < len(best[1])):
            best = place, atoms
    if best is None or len(best[1]) > (SPREAD_BESIDE if simple else SPREAD):
        return [conditions] if simple else None
    place, atoms = best
    return [(*conditions[:place], atom, *conditions[place + 1 :]) for atom in atoms]


class _Ranges:
    """Intervals of numbers, indexed as closed. Callers test matches at an open end again."""

    __slots__ = ("_few", "_many", "_next", "_numbers", "_placed")

    def __init__(self) -> None:
        self._few: list[tuple[float, float, IndexedConjunction]] = []
        self._many: RangeIndex[NumberCut] | None = None
        self._placed: dict[int, IndexedConjunction] = {}
        self._numbers: dict[IndexedConjunction, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._few) + len(self._placed)

    def __iter__(self) -> Iterator[IndexedConjunction]:
        yield from (placed for _, _, placed in self._few)
        yield from self._placed.values()

    def add(self, low: float, high: float, placed: IndexedConjunction) -> None:
        if self._many is None:
            self._few.append((low, high, placed))
            if len(self._few) > SCANNED:
                few, self._few, self._many = self._few, [], RangeIndex()
                for item in few:
                    self._enter(self._many, *item)
        else:
            self._enter(self._many, low, high, placed)

    def _enter(self, many: RangeIndex[NumberCut], low: float, high: float, placed: IndexedConjunction) -> None:
        number = self._numbers[placed] = self._next
        self._next += 1
        self._placed[number] = placed
        many.add(number, (low, 0), (high, 1))

    def remove(self, placed: IndexedConjunction) -> None:
        if self._many is None:
            self._few = [item for item in self._few if item[2] is not placed]
            return
        number = self._numbers.pop(placed)
        self._many.remove(number)
        del self._placed[number]
        if not self._placed:
            self._many = None

    def find_containing(self, low: float, high: float) -> list[IndexedConjunction]:
        """Return the conjunctions whose interval contains [low, high]."""
        if self._many is None:
            return [placed for start, end, placed in self._few if start <= low and high <= end]
        placed = self._placed
        return [placed[number] for number in self._many.find_containing((low, 0), (high, 1))]

    def find_within(self, low: float, high: float) -> list[IndexedConjunction]:
        """Return the conjunctions whose interval lies in [low, high]."""
        if self._many is None:
            return [placed for start, end, placed in self._few if low <= start and end <= high]
        placed = self._placed
        return [placed[number] for number in self._many.find_within((low, 0), (high, 1))]


class ConjunctionTree:
    """A tree of conjunctions, each with at least one point or interval of numbers."""

    __slots__ = ("_depth", "_plain", "_points", "_ranges")

    def __init__(self, depth: int = 0) -> None:
        self._depth = depth
        self._points: dict[str, dict[object, IndexedConjunction | list[IndexedConjunction] | ConjunctionTree]] = {}
        self._ranges: dict[str, _Ranges] = {}
        self._plain: dict[IndexedConjunction, None] = {}
        """The conjunctions without another condition that can be indexed."""

    def __bool__(self) -> bool:
        return bool(self._points or self._ranges or self._plain)

    def add(self, placed: IndexedConjunction) -> None:
        """Index a conjunction by the most selective of its conditions."""
        depth, conditions = self._depth, placed.conditions
        place = self._choose_condition(conditions)
        if place is None:
            placed.residual = conditions[depth:]
            self._plain[placed] = None
            return
        chosen = conditions[place]
        if place != depth:
            rest = (*conditions[depth:place], *conditions[place + 1 :])
            conditions = placed.conditions = (*conditions[:depth], chosen, *rest)
        name, low, high, kind = chosen
        if kind == POINT:
            self._add_point(name, low, placed)
            return
        # An interval is indexed as if it were closed.
        placed.residual = conditions[depth + (kind == CLOSED) :]
        ranges = self._ranges.get(name)
        if ranges is None:
            ranges = self._ranges[name] = _Ranges()
        ranges.add(low, high, placed)

    def remove(self, placed: IndexedConjunction) -> None:
        """Remove a conjunction."""
        if placed in self._plain:
            del self._plain[placed]
            return
        name, low, _, kind = placed.conditions[self._depth]
        if kind != POINT:
            ranges = self._ranges[name]
            ranges.remove(placed)
            if not len(ranges):
                del self._ranges[name]
            return
        table = self._points[name]
        bucket = table[low]
        if not isinstance(bucket, IndexedConjunction):
            bucket.remove(placed)
        if isinstance(bucket, IndexedConjunction) or not bucket:
            del table[low]
            if not table:
                del self._points[name]

    def _add_point(self, name: str, value: object, placed: IndexedConjunction) -> None:
        table = self._points.setdefault(name, {})
        bucket = table.get(value)
        if isinstance(bucket, ConjunctionTree):
            bucket.add(placed)
            return
        placed.residual = placed.conditions[self._depth + 1 :]
        if bucket is None:
            table[value] = placed
        elif isinstance(bucket, IndexedConjunction):
            table[value] = [bucket, placed]
        else:
            bucket.append(placed)
            if len(bucket) > LISTED:
                tree = table[value] = ConjunctionTree(self._depth + 1)
                for each in bucket:
                    tree.add(each)

    def _choose_condition(self, conditions: Conditions) -> int | None:
        """Return the position of the condition with the rarest value, else of the interval on the rarest attribute."""
        best, least = None, 0
        for place in range(self._depth, len(conditions)):
            name, low, _, kind = conditions[place]
            if kind == OTHER:
                continue
            if kind == POINT:
                bucket = self._points.get(name, {}).get(low)
                cost = 0 if bucket is None else len(bucket) if isinstance(bucket, list) else 1
                cost = LISTED if isinstance(bucket, ConjunctionTree) else cost
            else:
                cost = 2 * LISTED + len(self._ranges.get(name, ()))
            if best is None or cost < least:
                best, least = place, cost
        return best

    def match(self, attributes: Attributes, found: list[IndexedConjunction]) -> None:
        """Append the conjunctions that an event with these attributes satisfies."""
        for placed in self._plain:
            if not placed.residual or all_hold(placed.residual, attributes):
                found.append(placed)
        points, ranges = self._points, self._ranges
        for name, value in attributes.items():
            table = points.get(name)
            if table is not None:
                bucket = table.get((value,) if isinstance(value, bool) else value)
                if isinstance(bucket, IndexedConjunction):
                    if not bucket.residual or all_hold(bucket.residual, attributes):
                        found.append(bucket)
                elif isinstance(bucket, list):
                    for placed in bucket:
                        if not placed.residual or all_hold(placed.residual, attributes):
                            found.append(placed)
                elif bucket is not None:
                    bucket.match(attributes, found)
            if ranges and name in ranges and isinstance(value, int | float) and not isinstance(value, bool):
                for placed in ranges[name].find_containing(value, value):
                    if not placed.residual or all_hold(placed.residual, attributes):
                        found.append(placed)

    def find_covering(self, samples: Mapping[str, Condition], found: list[IndexedConjunction]) -> None:
        """Append the conjunctions that may cover a conjunction, given by each of its conditions or a part of it."""
        found.extend(self._plain)
        for name, condition in samples.items():
            _, low, high, kind = condition
            if kind in (POINT, OTHER):
                for bucket in _select_buckets(self._points.get(name, {}), condition):
                    if isinstance(bucket, ConjunctionTree):
                        bucket.find_covering(samples, found)
                    else:
                        found.extend(_as_sequence(bucket))
            ranges = self._ranges.get(name)
            if ranges is not None and kind != OTHER and not isinstance(low, str | tuple):
                found.extend(ranges.find_containing(low, low if kind == POINT else high))

    def find_covered(self, wide: Mapping[str, Condition], found: list[IndexedConjunction]) -> None:
        """Append the conjunctions that the wide conditions (by attribute name) may cover."""
        found.extend(self._plain)
        for name, table in self._points.items():
            for bucket in _select_buckets(table, wide.get(name)):
                if isinstance(bucket, ConjunctionTree):
                    bucket.find_covered(wide, found)
                else:
                    found.extend(_as_sequence(bucket))
        for name, ranges in self._ranges.items():
            atoms = _split_condition(wide.get(name))
            if atoms is None:
                found.extend(ranges)
                continue
            for _, low, high, kind in atoms:
                if kind != POINT:
                    found.extend(ranges.find_within(low, high))


def _as_sequence(bucket: IndexedConjunction | list[IndexedConjunction]) -> Iterable[IndexedConjunction]:
    return bucket if isinstance(bucket, list) else (bucket,)


def _select_buckets(
    table: dict[object, IndexedConjunction | list[IndexedConjunction] | ConjunctionTree], condition: Condition | None
) -> Iterable[IndexedConjunction | list[IndexedConjunction] | ConjunctionTree]:
    """Return the buckets of all values that the condition allows, and perhaps others."""
    atoms = _split_condition(condition)
    if atoms is None:
        return table.values()
    found = []
    for _, low, high, kind in atoms:
        if kind == POINT:
            found += [table[low]] if low in table else []
        else:
            assert CLOSED <= kind <= BOTH_OPEN
            found += [
                bucket for value, bucket in table.items() if isinstance(value, int | float) and low <= value <= high
            ]
    return found


def _split_condition(condition: Condition | None) -> list[Condition] | None:
    """Return the points and intervals of a condition; None if it allows other values too."""
    if condition is None:
        return None
    name, values, _, kind = condition
    if kind != OTHER:
        return [condition]
    return None if values.absent else atoms_of(name, values)
