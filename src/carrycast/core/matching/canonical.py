"""The canonical form and text of a filter.

Negations are pushed into the predicates. Under SQL's three-valued logic this changes nothing: `not x < 5` and `x >= 5`
are both unknown when x is absent or no number, and otherwise opposite. The result has no negation above a predicate,
so whether it is TRUE depends only on which of its predicates are TRUE: unknown and false need not be distinguished,
and evaluation is two-valued.
"""

from carrycast.core.matching.lexer import KEYWORDS
from carrycast.core.matching.terms import (
    NEGATED,
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

_TRUE = Constant(True)
_FALSE = Constant(False)


def canonicalize(node: Node, negated: bool = False) -> Node:
    """Return the canonical form of the node, or of its negation."""
    match node:
        case Not(operand):
            return canonicalize(operand, not negated)
        case And(operands) | Or(operands):
            conjunction = isinstance(node, And) is not negated
            return _combine([canonicalize(operand, negated) for operand in operands], conjunction)
        case Constant(value):
            return Constant(value is not negated)
        case Compare(attribute, operator, literal):
            return Compare(attribute, NEGATED[operator] if negated else operator, literal)
        case Between(attribute, low, high, inverse):
            return Between(attribute, low, high, inverse is not negated)
        case In(attribute, literals, inverse):
            return _make_membership(attribute, literals, inverse is not negated)
        case Like(attribute, pattern, inverse):
            only = pattern.literal()
            if only is not None:
                return _make_equality(attribute, Literal(ValueKind.STRING, only), inverse is not negated)
            return Like(attribute, pattern, inverse is not negated)
        case Matches(attribute, topics, inverse):
            only = topics.literal()
            if only is not None:
                return _make_equality(attribute, Literal(ValueKind.STRING, only), inverse is not negated)
            return Matches(attribute, topics, inverse is not negated)
        case IsNull(attribute, inverse):
            return IsNull(attribute, inverse is not negated)


def _make_equality(attribute: str, literal: Literal, negated: bool) -> Node:
    return Compare(attribute, Operator.NE if negated else Operator.EQ, literal)


def _make_membership(attribute: str, literals: tuple[Literal, ...], negated: bool) -> Node:
    unique = dict.fromkeys(literals)
    if len(unique) == 1:
        return _make_equality(attribute, literals[0], negated)
    # Values are compared only within a kind, so the kind comes first.
    ordered = sorted(unique, key=lambda literal: (literal.kind, literal.value))
    return In(attribute, tuple(ordered), negated)


def _combine(operands: list[Node], conjunction: bool) -> Node:
    neutral, absorbing = (_TRUE, _FALSE) if conjunction else (_FALSE, _TRUE)
    by_text: dict[str, Node] = {}
    for operand in operands:
        if isinstance(operand, And if conjunction else Or):
            by_text.update((_operand_text(inner), inner) for inner in operand.operands)
        elif operand == absorbing:
            return absorbing
        elif operand != neutral:
            by_text[_operand_text(operand)] = operand
    if not by_text:
        return neutral
    unique = tuple(by_text[text] for text in sorted(by_text))
    if len(unique) == 1:
        return unique[0]
    return And(unique) if conjunction else Or(unique)


def canonical_text(node: Node) -> str:
    """Return the canonical text of a canonical node. Parsing it gives the same node."""
    match node:
        case Constant(value):
            return "true" if value else "false"
        case Compare(attribute, operator, literal):
            return f"{_name_text(attribute)} {operator.value} {_literal_text(literal)}"
        case Between(attribute, low, high, negated):
            return f"{_name_text(attribute)} {_not(negated)}between {_literal_text(low)} and {_literal_text(high)}"
        case In(attribute, literals, negated):
            values = ", ".join(_literal_text(literal) for literal in literals)
            return f"{_name_text(attribute)} {_not(negated)}in ({values})"
        case Like(attribute, pattern, negated):
            return f"{_name_text(attribute)} {_not(negated)}like {pattern.to_sql()}"
        case Matches(attribute, topics, negated):
            return f"{_name_text(attribute)} {_not(negated)}matches {_string_text(str(topics))}"
        case IsNull(attribute, negated):
            return f"{_name_text(attribute)} is {_not(negated)}null"
        case And(operands):
            return " and ".join(_operand_text(operand) for operand in operands)
        case Or(operands):
            return " or ".join(_operand_text(operand) for operand in operands)
        case Not(operand):
            return f"not ({canonical_text(operand)})"


def _operand_text(node: Node) -> str:
    # `and` binds tighter than `or`, so only a disjunction inside of a conjunction needs parentheses. Disjunctions in
    # disjunctions do not occur, because they are merged.
    return f"({canonical_text(node)})" if isinstance(node, Or) else canonical_text(node)


def _not(negated: bool) -> str:
    return "not " if negated else ""


def _name_text(attribute: str) -> str:
    plain = attribute.isascii() and attribute.replace(".", "_").isidentifier() and not attribute.startswith(".")
    if plain and attribute.lower() not in KEYWORDS:
        return attribute
    return '"' + attribute.replace('"', '""') + '"'


def _literal_text(literal: Literal) -> str:
    if isinstance(literal.value, str):
        return _string_text(literal.value)
    if isinstance(literal.value, bool):
        return "true" if literal.value else "false"
    return repr(literal.value)


def _string_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
