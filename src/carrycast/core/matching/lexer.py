"""Lexical analysis: the text of a filter becomes tokens with their positions."""

import math
import re
from dataclasses import dataclass
from enum import Enum

from carrycast.core.matching.errors import FilterError, expected_error, filter_error
from carrycast.core.model import Scalar

KEYWORDS = frozenset(
    ("and", "between", "escape", "false", "in", "is", "like", "matches", "not", "null", "or", "true"),
)

# Longer than any filter that people write, and short enough that hostile text costs little. It equals the model's
# limit for filters in messages.
MAX_TEXT_CHARACTERS = 4096

# Operators of other languages, and the correction that the error states.
FOREIGN_OPERATORS = {
    "==": "write = for equality",
    "&&": "write and",
    "||": "write or",
    "!": "write not",
}

# Possessive quantifiers find a string without a closing quote in one pass. The exponent has none: Python before 3.11.5
# consumes part of a possessive group that does not match.
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]++)
      | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*+)
      | (?P<string>'[^']*+(?:''[^']*+)*+')
      | (?P<quoted>"[^"]*+(?:""[^"]*+)*+")
      | (?P<foreign>==|&&|\|\||!(?!=))
      | (?P<symbol><>|!=|<=|>=|[=<>(),+-])""",
    re.VERBOSE,
)

_WORD_CHARACTER = re.compile(r"[A-Za-z0-9_.]")


class TokenKind(Enum):
    """The kinds of tokens."""

    NAME = "name"
    KEYWORD = "keyword"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True, slots=True)
class FilterToken:
    """A token: its text, its offset (counted from 0) and its value."""

    kind: TokenKind
    written: str
    offset: int
    value: Scalar

    def is_symbol(self, symbol: str) -> bool:
        """Whether this is the given operator or punctuation."""
        return self.kind is TokenKind.SYMBOL and self.value == symbol

    def is_quoted_name(self) -> bool:
        """Whether this is a name in double quotes."""
        return self.kind is TokenKind.NAME and self.written.startswith('"')

    def is_keyword(self, word: str) -> bool:
        """Whether this is the given keyword (in lower case)."""
        return self.kind is TokenKind.KEYWORD and self.value == word


def tokenize(text: str) -> list[FilterToken]:
    """Return the tokens of the text and a final END token, or raise FilterError."""
    check_text(text)
    tokens: list[FilterToken] = []
    offset = 0
    while offset < len(text):
        found = _TOKEN.match(text, offset)
        if found is None:
            raise _no_token_error(text, offset)
        if found.lastgroup != "space":
            tokens.append(_make_token(text, found))
        offset = found.end()
    tokens.append(FilterToken(TokenKind.END, "", len(text), ""))
    return tokens


def check_text(text: str) -> None:
    """Reject text that is too long or that UTF-8 cannot encode."""
    if len(text) > MAX_TEXT_CHARACTERS:
        problem = f"{len(text)} characters, but a filter has at most {MAX_TEXT_CHARACTERS}; the limit is passed"
        raise filter_error(text, MAX_TEXT_CHARACTERS, problem)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise expected_error(text, error.start, "a valid Unicode character") from None


def _make_token(text: str, found: re.Match[str]) -> FilterToken:
    written, offset = found.group(), found.start()
    match found.lastgroup:
        case "number":
            return FilterToken(TokenKind.NUMBER, written, offset, _parse_number(text, written, offset))
        case "word":
            lower = written.lower()
            if lower in KEYWORDS:
                return FilterToken(TokenKind.KEYWORD, written, offset, lower)
            return FilterToken(TokenKind.NAME, written, offset, written)
        case "string":
            return FilterToken(TokenKind.STRING, written, offset, written[1:-1].replace("''", "'"))
        case "quoted":
            return FilterToken(TokenKind.NAME, written, offset, written[1:-1].replace('""', '"'))
        case "foreign":
            raise filter_error(text, offset, FOREIGN_OPERATORS[written])
        case _:
            return FilterToken(TokenKind.SYMBOL, written, offset, "<>" if written == "!=" else written)


def _parse_number(text: str, written: str, offset: int) -> int | float:
    end = offset + len(written)
    if _WORD_CHARACTER.match(text, end):
        raise expected_error(text, end, "the end of the number", written)
    if written.isdigit():
        # 2**63 passes here, although it exceeds 64 bits: with a minus sign it is in range.
        if len(written.lstrip("0")) > 19 or int(written) > 2**63:
            raise expected_error(text, offset, "an integer of at most 64 bits (or a decimal: append '.0')")
        return int(written)
    value = float(written)
    if math.isinf(value):
        raise expected_error(text, offset, "a number below 1.8e308")
    return value


def _no_token_error(text: str, offset: int) -> FilterError:
    character = text[offset]
    if character == "'":
        return expected_error(text, len(text), "a closing ' of the string", text[offset:])
    if character == '"':
        return expected_error(text, len(text), 'a closing " of the name', text[offset:])
    return expected_error(text, offset, f"an attribute, a value or an operator instead of {character!r}")
