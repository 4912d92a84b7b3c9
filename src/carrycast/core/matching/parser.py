"""A recursive-descent parser from text to terms, with exact error positions.

filter     = [ or ]
or         = and { "or" and }
and        = not { "and" not }
not        = "not" not | condition
condition  = "(" or ")" | "true" | "false" | attribute [ test ] | literal comparison attribute
test       = comparison literal
           | [ "not" ] "between" literal "and" literal
           | [ "not" ] "in" "(" literal { "," literal } ")"
           | [ "not" ] "like" string [ "escape" string ]
           | [ "not" ] "matches" string
           | "is" [ "not" ] "null"
comparison = "=" | "<>" | "!=" | "<" | "<=" | ">" | ">="
"""

from carrycast.core.matching.errors import FilterError, expected_error, filter_error
from carrycast.core.matching.lexer import FilterToken, TokenKind, tokenize
from carrycast.core.matching.patterns import parse_like
from carrycast.core.matching.terms import (
    MIRRORED,
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
from carrycast.core.matching.topics import parse_topic_filter

# Deeper than filters that people write, and far below the depth at which recursion over terms could fail.
MAX_DEPTH = 32

# A term is a test of an attribute or an element of an `in` list. The limit bounds the cost of matching one event.
MAX_TERMS = 256

_OPERATORS = {operator.value: operator for operator in Operator}


def parse(text: str) -> Node:
    """Parse the text into terms, in the order written. Empty text is `true`. Raises FilterError."""
    return _Parser(text).parse_filter()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokenize(text)
        self._next = 0
        self._depth = 0
        self._terms = 0

    def parse_filter(self) -> Node:
        if self._peek().kind is TokenKind.END:
            return Constant(True)
        node = self._parse_or()
        if self._peek().kind is not TokenKind.END:
            raise self._expected_error("'and', 'or' or the end")
        return node

    def _parse_or(self) -> Node:
        operands = [self._parse_and()]
        while self._accept("or"):
            operands.append(self._parse_and())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def _parse_and(self) -> Node:
        operands = [self._parse_not()]
        while self._accept("and"):
            operands.append(self._parse_not())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def _parse_not(self) -> Node:
        token = self._peek()
        if not self._accept("not"):
            return self._parse_condition()
        self._enter(token)
        node = Not(self._parse_not())
        self._depth -= 1
        return node

    def _parse_condition(self) -> Node:
        token = self._peek()
        if self._accept_symbol("("):
            self._enter(token)
            node = self._parse_or()
            if not self._accept_symbol(")"):
                raise self._expected_error("'and', 'or' or ')'")
            self._depth -= 1
            return node
        self._count_term(token)
        if token.kind is TokenKind.NAME:
            return self._parse_test(self._parse_attribute())
        literal = self._parse_optional_literal()
        if literal is None:
            raise self._expected_error("a condition")
        operator = self._parse_comparison()
        if operator is None:
            if isinstance(literal.value, bool):
                return Constant(literal.value)
            raise self._expected_error("a comparison")
        return Compare(self._parse_attribute(), MIRRORED[operator], literal)

    def _parse_attribute(self) -> str:
        token = self._peek()
        if token.kind is not TokenKind.NAME:
            raise self._expected_error("an attribute")
        if not token.value:
            raise expected_error(self._text, token.offset + 1, "an attribute name", '"')
        self._next += 1
        return str(token.value)

    def _parse_test(self, attribute: str) -> Node:
        operator = self._parse_comparison()
        if operator is not None:
            return Compare(attribute, operator, self._parse_literal())
        if self._accept("is"):
            negated = self._accept("not")
            if not self._accept("null"):
                raise self._expected_error("'null'" if negated else "'null' or 'not null'")
            return IsNull(attribute, negated)
        negated = self._accept("not")
        if self._accept("between"):
            low = self._parse_literal()
            if not self._accept("and"):
                raise self._expected_error("'and'")
            return Between(attribute, low, self._parse_literal(), negated)
        if self._accept("in"):
            return In(attribute, self._parse_list(), negated)
        if self._accept("like"):
            return self._parse_like(attribute, negated)
        if self._accept("matches"):
            return self._parse_matches(attribute, negated)
        if negated:
            raise self._expected_error("'between', 'in', 'like' or 'matches'")
        return Compare(attribute, Operator.EQ, Literal(ValueKind.BOOLEAN, True))

    def _parse_list(self) -> tuple[Literal, ...]:
        if not self._accept_symbol("("):
            raise self._expected_error("'('")
        literals = [self._parse_literal()]
        while self._accept_symbol(","):
            self._count_term(self._peek())
            literals.append(self._parse_literal())
        if not self._accept_symbol(")"):
            raise self._expected_error("',' or ')'")
        return tuple(literals)

    def _parse_like(self, attribute: str, negated: bool) -> Node:
        pattern = self._parse_string("a pattern in quotes")
        escape: str | None = None
        if self._accept("escape"):
            token = self._parse_string("one character in quotes")
            escape = str(token.value)
            if len(escape) != 1:
                raise self._expected_error_at(token, "one character in quotes")
        try:
            return Like(attribute, parse_like(str(pattern.value), escape), negated)
        except ValueError as error:
            raise self._expected_error_at(pattern, str(error)) from None

    def _parse_matches(self, attribute: str, negated: bool) -> Node:
        token = self._parse_string("a topic filter in quotes")
        try:
            return Matches(attribute, parse_topic_filter(str(token.value)), negated)
        except ValueError as error:
            raise self._expected_error_at(token, str(error)) from None

    def _parse_literal(self) -> Literal:
        if self._peek().is_keyword("null"):
            raise self._expected_error("a value (absence is tested with 'is null')")
        literal = self._parse_optional_literal()
        if literal is None:
            self._reject_double_quotes()
            raise self._expected_error("a value")
        return literal

    def _parse_optional_literal(self) -> Literal | None:
        token = self._peek()
        if token.kind is TokenKind.STRING:
            self._next += 1
            return Literal(ValueKind.STRING, token.value)
        if token.is_keyword("true") or token.is_keyword("false"):
            self._next += 1
            return Literal(ValueKind.BOOLEAN, token.value == "true")
        signed = token.is_symbol("-") or token.is_symbol("+")
        if signed:
            self._next += 1
            if self._peek().kind is not TokenKind.NUMBER:
                raise self._expected_error("a number")
        number = self._peek()
        if number.kind is not TokenKind.NUMBER or isinstance(number.value, str):
            return None
        self._next += 1
        return self._make_number(number, -number.value if token.is_symbol("-") else number.value)

    def _make_number(self, token: FilterToken, value: int | float) -> Literal:
        # 1, 1.0 and 1e0 are the same number and get the same literal.
        if isinstance(value, float):
            integral = value.is_integer() and -(2**63) <= value < 2**63
            return Literal(ValueKind.NUMBER, int(value) if integral else value)
        if value >= 2**63:
            raise self._expected_error_at(token, "an integer of at most 64 bits (or a decimal: append '.0')")
        return Literal(ValueKind.NUMBER, value)

    def _parse_comparison(self) -> Operator | None:
        token = self._peek()
        operator = _OPERATORS.get(str(token.value)) if token.kind is TokenKind.SYMBOL else None
        if operator is not None:
            self._next += 1
        return operator

    def _parse_string(self, expected: str) -> FilterToken:
        token = self._peek()
        if token.kind is not TokenKind.STRING:
            self._reject_double_quotes()
            raise self._expected_error(expected)
        self._next += 1
        return token

    def _reject_double_quotes(self) -> None:
        # SQL has names in double quotes, but most programming languages have text in them.
        token = self._peek()
        if token.is_quoted_name():
            raise filter_error(self._text, token.offset, "write text in single quotes")

    def _peek(self) -> FilterToken:
        return self._tokens[self._next]

    def _accept(self, keyword: str) -> bool:
        found = self._peek().is_keyword(keyword)
        self._next += found
        return found

    def _accept_symbol(self, symbol: str) -> bool:
        found = self._peek().is_symbol(symbol)
        self._next += found
        return found

    def _enter(self, token: FilterToken) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise filter_error(self._text, token.offset, f"nested deeper than {MAX_DEPTH} levels")

    def _count_term(self, token: FilterToken) -> None:
        self._terms += 1
        if self._terms > MAX_TERMS:
            raise filter_error(self._text, token.offset, f"more than {MAX_TERMS} terms")

    def _expected_error(self, what: str) -> FilterError:
        return self._expected_error_at(self._peek(), what)

    def _expected_error_at(self, token: FilterToken, what: str) -> FilterError:
        index = self._tokens.index(token)
        after = self._tokens[index - 1].written if index > 0 else ""
        return expected_error(self._text, token.offset, what, after)
