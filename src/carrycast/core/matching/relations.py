"""Relations of filters: covering and overlap.

A predicate concerns one attribute, so a conjunction allows a set of values for each attribute it names and any value
for the others: a box. Boxes are compared exactly, attribute by attribute. A filter is a union of boxes (its disjunctive
normal form). For unions the results are sound but not complete: a box is covered if one box of the other filter covers
it.
"""

from collections.abc import Mapping

from carrycast.core.matching.automata import Budget
from carrycast.core.matching.terms import And, Constant, Node, Not, Or
from carrycast.core.matching.values import (
    ANYTHING,
    NOTHING,
    ValueSet,
    allowed_values,
    intersect,
    is_empty,
    is_subset,
    unite,
)

# Attribute name -> allowed values. An attribute that is not named may have any value.
Box = Mapping[str, ValueSet]

# Filters of applications have a handful of alternatives; 64 keeps a comparison of two filters below 4096 box pairs.
MAX_BOXES = 64


def boxes_of(node: Node) -> tuple[Box, ...] | None:
    """Return the boxes whose union is the canonical node; empty if no event matches it, None if there are too many."""
    match node:
        case Constant(value):
            return ({},) if value else ()
        case And(operands):
            return _intersect_operands(operands)
        case Or(operands):
            return _unite_operands(operands)
        case Not():
            raise AssertionError("a canonical node has no negation above a predicate")
        case _:
            values = allowed_values(node)
            return () if values == NOTHING else ({node.attribute: values},)


def _intersect_operands(operands: tuple[Node, ...]) -> tuple[Box, ...] | None:
    result: list[Box] = [{}]
    for operand in operands:
        boxes = boxes_of(operand)
        if boxes is None or len(boxes) * len(result) > MAX_BOXES:
            return None
        result = [box for one in result for two in boxes if (box := _intersect_boxes(one, two)) is not None]
    return tuple(result)


def _unite_operands(operands: tuple[Node, ...]) -> tuple[Box, ...] | None:
    result: list[Box] = []
    # Alternatives on the same single attribute are one set of values, hence one box.
    single: dict[str, ValueSet] = {}
    for operand in operands:
        boxes = boxes_of(operand)
        if boxes is None:
            return None
        for box in boxes:
            if len(box) == 1:
                (name, values), *_ = box.items()
                merged = unite(single.get(name, NOTHING), values)
                if merged == ANYTHING:
                    return ({},)
                if merged is not None:
                    single[name] = merged
                    continue
            result.append(box)
    result.extend({name: values} for name, values in single.items())
    return tuple(result) if len(result) <= MAX_BOXES else None


def _intersect_boxes(one: Box, two: Box) -> Box | None:
    result = dict(one)
    for name, values in two.items():
        result[name] = intersect(result[name], values) if name in result else values
        if result[name] == NOTHING:
            return None
    return result


def boxes_cover(wide: tuple[Box, ...] | None, narrow: tuple[Box, ...] | None) -> bool:
    """True only if every event in the narrow union lies in the wide one."""
    if narrow is None or wide is None:
        # Too many boxes: only the trivial cases are certain.
        return narrow == () or (wide is not None and {} in wide)
    budget = Budget()
    return all(
        any(_box_covers(candidate, box, budget) for candidate in wide) or _box_is_empty(box, budget) for box in narrow
    )


def boxes_overlap(ones: tuple[Box, ...] | None, twos: tuple[Box, ...] | None) -> bool:
    """False only if no event lies in both unions."""
    if ones is None or twos is None:
        return ones != () and twos != ()
    budget = Budget()
    for one in ones:
        for two in twos:
            common = _intersect_boxes(one, two)
            if common is not None and not _box_is_empty(common, budget):
                return True
    return False


def _box_covers(wide: Box, narrow: Box, budget: Budget) -> bool:
    return all(is_subset(narrow.get(name, ANYTHING), values, budget) for name, values in wide.items())


def _box_is_empty(box: Box, budget: Budget) -> bool:
    return any(is_empty(values, budget) for values in box.values())
