"""Compiles a canonical filter to a predicate over attributes.

The predicates are closures over the terms; no text of a filter is executed. See `canonical` for why two truth values
are sufficient.
"""

from collections.abc import Callable

from carrycast.core.matching.patterns import make_like_matcher
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
from carrycast.core.matching.topics import make_topic_matcher
from carrycast.core.model import Attributes, Scalar

Predicate = Callable[[Attributes], bool]


def compile_predicate(node: Node) -> Predicate:
    """Compile a canonical node."""
    match node:
        case Constant(value):
            return lambda attributes: value
        case Compare(attribute, operator, literal):
            return compile_comparison(attribute, operator, literal)
        case Between(attribute, low, high, negated):
            return _compile_between(attribute, low, high, negated)
        case In(attribute, literals, negated):
            return _compile_not_in(attribute, literals) if negated else _compile_in(attribute, literals)
        case Like(attribute, pattern, negated):
            return _compile_string_test(attribute, make_like_matcher(pattern), negated)
        case Matches(attribute, topics, negated):
            return _compile_string_test(attribute, make_topic_matcher(topics), negated)
        case IsNull(attribute, negated):
            if negated:
                return lambda attributes: attribute in attributes
            return lambda attributes: attribute not in attributes
        case And(operands):
            return _compile_all([compile_predicate(operand) for operand in operands])
        case Or(operands):
            return _compile_any([compile_predicate(operand) for operand in operands])
        case Not():
            raise AssertionError("a canonical node has no negation above a predicate")


def compile_comparison(attribute: str, operator: Operator, literal: Literal) -> Predicate:
    """Compile a comparison. An attribute of another kind than the literal never makes it TRUE."""
    value = literal.value
    if isinstance(value, str):
        return _compile_string_comparison(attribute, operator, value)
    if isinstance(value, bool):
        return _compile_boolean_comparison(attribute, operator, value)
    return _compile_number_comparison(attribute, operator, value)


def _compile_string_comparison(name: str, operator: Operator, value: str) -> Predicate:
    match operator:
        case Operator.EQ:
            return lambda attributes: attributes.get(name) == value
        case Operator.NE:
            return lambda attributes: isinstance(v := attributes.get(name), str) and v != value
        case Operator.LT:
            return lambda attributes: isinstance(v := attributes.get(name), str) and v < value
        case Operator.LE:
            return lambda attributes: isinstance(v := attributes.get(name), str) and v <= value
        case Operator.GT:
            return lambda attributes: isinstance(v := attributes.get(name), str) and v > value
        case Operator.GE:
            return lambda attributes: isinstance(v := attributes.get(name), str) and v >= value


def _compile_boolean_comparison(name: str, operator: Operator, value: bool) -> Predicate:
    # Both outcomes are computed in advance. False sorts before True, as in SQL.
    outcomes = {
        Operator.EQ: (not value, value),
        Operator.NE: (value, not value),
        Operator.LT: (value, False),
        Operator.LE: (True, value),
        Operator.GT: (False, not value),
        Operator.GE: (not value, True),
    }
    on_false, on_true = outcomes[operator]

    def holds(attributes: Attributes) -> bool:
        v = attributes.get(name)
        return (on_true if v else on_false) if isinstance(v, bool) else False

    return holds


def is_number(value: Scalar | None) -> bool:
    """Whether the value is of kind number. Unlike in Python, a bool is not a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _compile_number_comparison(name: str, operator: Operator, value: float) -> Predicate:
    # Python compares int with float exactly, even if no float equals the integer.
    def less(attributes: Attributes) -> bool:
        v = attributes.get(name)
        return isinstance(v, (int, float)) and v < value and not isinstance(v, bool)

    def at_most(attributes: Attributes) -> bool:
        v = attributes.get(name)
        return isinstance(v, (int, float)) and v <= value and not isinstance(v, bool)

    def greater(attributes: Attributes) -> bool:
        v = attributes.get(name)
        return isinstance(v, (int, float)) and v > value and not isinstance(v, bool)

    def at_least(attributes: Attributes) -> bool:
        v = attributes.get(name)
        return isinstance(v, (int, float)) and v >= value and not isinstance(v, bool)

    match operator:
        case Operator.EQ:
            return lambda attributes: (v := attributes.get(name)) == value and not isinstance(v, bool)
        case Operator.NE:
            return lambda attributes: is_number(v := attributes.get(name)) and v != value
        case Operator.LT:
            return less
        case Operator.LE:
            return at_most
        case Operator.GT:
            return greater
        case Operator.GE:
            return at_least


def _compile_between(name: str, low: Literal, high: Literal, negated: bool) -> Predicate:
    if negated:
        return _compile_any([compile_comparison(name, Operator.LT, low), compile_comparison(name, Operator.GT, high)])
    return _compile_all([compile_comparison(name, Operator.GE, low), compile_comparison(name, Operator.LE, high)])


def _compile_in(name: str, literals: tuple[Literal, ...]) -> Predicate:
    booleans = frozenset(literal.value for literal in literals if isinstance(literal.value, bool))
    others = frozenset(literal.value for literal in literals if not isinstance(literal.value, bool))

    def holds(attributes: Attributes) -> bool:
        v = attributes.get(name)
        return v in booleans if isinstance(v, bool) else v in others

    return holds


def _compile_not_in(name: str, literals: tuple[Literal, ...]) -> Predicate:
    # Unless all literals are of one kind, some comparison is unknown for any value, and so is `not in`.
    kinds = {literal.kind for literal in literals}
    if len(kinds) > 1:
        return lambda attributes: False
    values = frozenset(literal.value for literal in literals)
    match literals[0].kind:
        case ValueKind.STRING:
            return lambda attributes: isinstance(v := attributes.get(name), str) and v not in values
        case ValueKind.NUMBER:
            return lambda attributes: is_number(v := attributes.get(name)) and v not in values
        case ValueKind.BOOLEAN:
            return lambda attributes: isinstance(v := attributes.get(name), bool) and v not in values


def _compile_string_test(name: str, test: Callable[[str], bool], negated: bool) -> Predicate:
    if negated:
        return lambda attributes: isinstance(v := attributes.get(name), str) and not test(v)
    return lambda attributes: isinstance(v := attributes.get(name), str) and test(v)


def _compile_all(operands: list[Predicate]) -> Predicate:
    if len(operands) == 2:
        first, second = operands
        return lambda attributes: first(attributes) and second(attributes)
    if len(operands) == 3:
        first, second, third = operands
        return lambda attributes: first(attributes) and second(attributes) and third(attributes)

    def holds(attributes: Attributes) -> bool:
        for operand in operands:  # noqa: SIM110 - a generator expression costs more than the whole test
            if not operand(attributes):
                return False
        return True

    return holds


def _compile_any(operands: list[Predicate]) -> Predicate:
    if len(operands) == 2:
        first, second = operands
        return lambda attributes: first(attributes) or second(attributes)

    def holds(attributes: Attributes) -> bool:
        for operand in operands:  # noqa: SIM110 - a generator expression costs more than the whole test
            if operand(attributes):
                return True
        return False

    return holds
