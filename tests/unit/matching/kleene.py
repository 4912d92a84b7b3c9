"""SQL's three-valued logic, written down a second time as plainly as possible, to hold the filters against.

It evaluates the terms as they were written, before any normalization: True, False, or None for unknown.
"""

import re

from carrycast.core.matching.patterns import LikePattern
from carrycast.core.matching.terms import (
    And,
    Between,
    Compare,
    Constant,
    In,
    IsNull,
    Like,
    Literal,
    Matches,
    Node,
    Not,
    Operator,
    Or,
    ValueKind,
)
from carrycast.core.model import Attributes, Scalar

Truth = bool | None


def evaluate(node: Node, attributes: Attributes) -> Truth:
    """The truth of the node for an event with these attributes."""
    match node:
        case Constant(value):
            return value
        case Not(operand):
            return negation(evaluate(operand, attributes))
        case And(operands):
            return conjunction([evaluate(operand, attributes) for operand in operands])
        case Or(operands):
            return negation(conjunction([negation(evaluate(operand, attributes)) for operand in operands]))
        case IsNull(attribute, negated):
            return (attribute not in attributes) is not negated
        case _:
            return _test(node, attributes.get(node.attribute))


def _test(node: Compare | Between | In | Like | Matches, value: Scalar | None) -> Truth:
    match node:
        case Compare(_, operator, literal):
            return compare(value, operator, literal)
        case Between(_, low, high, negated):
            inside = conjunction([compare(value, Operator.GE, low), compare(value, Operator.LE, high)])
            return negation(inside) if negated else inside
        case In(_, literals, negated):
            outside = conjunction([negation(compare(value, Operator.EQ, literal)) for literal in literals])
            return outside if negated else negation(outside)
        case Like(_, pattern, negated):
            found = re.fullmatch(like_expression(pattern), value, re.DOTALL) if isinstance(value, str) else None
            return (found is not None) is not negated if isinstance(value, str) else None
        case Matches(_, topics, negated):
            return topic_matches(topics.levels, value) is not negated if isinstance(value, str) else None


def negation(truth: Truth) -> Truth:
    """SQL's NOT."""
    return None if truth is None else not truth


def conjunction(truths: list[Truth]) -> Truth:
    """SQL's AND."""
    if False in truths:
        return False
    return None if None in truths else True


def kind_of(value: Scalar) -> ValueKind:
    """The kind of a value of an event."""
    if isinstance(value, bool):
        return ValueKind.BOOLEAN
    return ValueKind.STRING if isinstance(value, str) else ValueKind.NUMBER


def compare(value: Scalar | None, operator: Operator, literal: Literal) -> Truth:
    """A comparison: unknown for an absent attribute and across kinds."""
    if value is None or kind_of(value) is not literal.kind:
        return None
    pair = (value, literal.value)
    equal, less = pair[0] == pair[1], sorted(pair)[0] == pair[0] and pair[0] != pair[1]
    outcomes = {
        Operator.EQ: equal,
        Operator.NE: not equal,
        Operator.LT: less,
        Operator.LE: less or equal,
        Operator.GT: not less and not equal,
        Operator.GE: not less,
    }
    return outcomes[operator]


def like_expression(pattern: LikePattern) -> str:
    """The pattern as a regular expression."""
    return ".*".join("".join("." if c is None else re.escape(c) for c in segment) for segment in pattern.segments)


def topic_matches(levels: tuple[str, ...], topic: str) -> bool:
    """MQTT's rules, level by level, by recursion."""
    if topic.startswith("$") and levels[0] in {"+", "#"}:
        return False
    return _levels_match(levels, tuple(topic.split("/")))


def _levels_match(levels: tuple[str, ...], topic: tuple[str, ...]) -> bool:
    if levels == ("#",):
        return True
    if not levels or not topic:
        return not levels and not topic
    return levels[0] in {"+", topic[0]} and _levels_match(levels[1:], topic[1:])
