"""The text of a filter, cut into tokens that know their position."""

import math
import re
from dataclasses import dataclass
from enum import Enum

from carrycast.core.matching.errors import expectation, limit
from carrycast.core.model import Scalar

KEYWORDS = frozenset(
    ("and", "between", "escape", "false", "in", "is", "like", "matches", "not", "null", "or", "true"),
)

# Longer than any filter written by a person; short enough that hostile text costs next to nothing. It equals the bound
# that the model puts on a filter that travels.
MAX_TEXT_CHARACTERS = 4096

# Quantifiers are possessive: a string that never ends is found at its opening quote, in one pass. Not that of
# the exponent: Python before 3.11.5 takes part of what a possessive group has tried in vain.
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]++)
      | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?)
      | (?P<word>[A-Za-z_][A-Za-z0-9_.]*+)
      | (?P<string>'[^']*+(?:''[^']*+)*+')
      | (?P<quoted>"[^"]*+(?:""[^"]*+)*+")
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
    """A token: how it was written, where (counted from 0), and what it stands for."""

    kind: TokenKind
    written: str
    offset: int
    value: Scalar

    def is_symbol(self, symbol: str) -> bool:
        """Whether this is the given operator or punctuation."""
        return self.kind is TokenKind.SYMBOL and self.value == symbol

    def is_keyword(self, word: str) -> bool:
        """Whether this is the given keyword (in lower case)."""
        return self.kind is TokenKind.KEYWORD and self.value == word


def tokenize(text: str) -> list[FilterToken]:
    """The tokens of the text, an END token last; raises FilterError."""
    check_text(text)
    tokens: list[FilterToken] = []
    offset = 0
    while offset < len(text):
        found = _TOKEN.match(text, offset)
        if found is None:
            raise _unreadable(text, offset)
        if found.lastgroup != "space":
            tokens.append(_token(text, found))
        offset = found.end()
    tokens.append(FilterToken(TokenKind.END, "", len(text), ""))
    return tokens


def check_text(text: str) -> None:
    """Refuse text that is too long, or that could not be sent as UTF-8."""
    if len(text) > MAX_TEXT_CHARACTERS:
        problem = f"{len(text)} characters, but a filter has at most {MAX_TEXT_CHARACTERS}; the limit is passed"
        raise limit(text, MAX_TEXT_CHARACTERS, problem)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise expectation(text, error.start, "a valid Unicode character") from None


def _token(text: str, found: re.Match[str]) -> FilterToken:
    written, offset = found.group(), found.start()
    match found.lastgroup:
        case "number":
            return FilterToken(TokenKind.NUMBER, written, offset, _number(text, written, offset))
        case "word":
            lower = written.lower()
            if lower in KEYWORDS:
                return FilterToken(TokenKind.KEYWORD, written, offset, lower)
            return FilterToken(TokenKind.NAME, written, offset, written)
        case "string":
            return FilterToken(TokenKind.STRING, written, offset, written[1:-1].replace("''", "'"))
        case "quoted":
            if written == '""':
                raise expectation(text, offset + 1, "an attribute name", '"')
            return FilterToken(TokenKind.NAME, written, offset, written[1:-1].replace('""', '"'))
        case _:
            return FilterToken(TokenKind.SYMBOL, written, offset, "<>" if written == "!=" else written)


def _number(text: str, written: str, offset: int) -> int | float:
    end = offset + len(written)
    if _WORD_CHARACTER.match(text, end):
        raise expectation(text, end, "the end of the number", written)
    if written.isdigit():
        # One more than the largest 64-bit integer is let through here: with a minus sign it is in range.
        if len(written.lstrip("0")) > 19 or int(written) > 2**63:
            raise expectation(text, offset, "an integer of at most 64 bits (or a decimal: append '.0')")
        return int(written)
    value = float(written)
    if math.isinf(value):
        raise expectation(text, offset, "a number below 1.8e308")
    return value


def _unreadable(text: str, offset: int) -> Exception:
    character = text[offset]
    if character == "'":
        return expectation(text, len(text), "a closing ' of the string", text[offset:])
    if character == '"':
        return expectation(text, len(text), 'a closing " of the name', text[offset:])
    return expectation(text, offset, f"an attribute, a value or an operator instead of {character!r}")
