"""The scanner of policy texts, and errors with line and column."""

import re

from carrycast.core.matching import quote_token
from carrycast.errors import UserError


class PolicyError(UserError):
    """The text of a policy is not valid: line and column, both counted from 1, and the expected text."""

    def __init__(self, message: str, line: int, column: int, expected: str) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.expected = expected

    def __reduce__(self) -> tuple[type["PolicyError"], tuple[str, int, int, str]]:
        # Exceptions are rebuilt from args, which holds the message alone.
        return type(self), (str(self), self.line, self.column, self.expected)


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def expected_error(text: str, offset: int, expected: str) -> PolicyError:
    """The error for a text that lacks `expected` at an offset, or after the blanks there."""
    offset += len(text[offset:]) - len(text[offset:].lstrip())
    line, column = line_and_column(text, offset)
    rest = text[offset:].split(maxsplit=1)
    found = quote_token(rest[0]) if rest else "the end"
    return PolicyError(f"line {line}, column {column}: expected {expected}, not {found}", line, column, expected)


def syntax_error(text: str, offset: int, problem: str) -> PolicyError:
    """The error for a problem at an offset."""
    line, column = line_and_column(text, offset)
    return PolicyError(f"line {line}, column {column}: {problem}", line, column, problem)


_SPACE = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*")

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Scanner:
    """Reads tokens on demand, or raises PolicyError. Tokens are separated by blanks, line breaks and comments."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self.skip()

    def skip(self) -> None:
        """Skip blanks and comments."""
        found = _SPACE.match(self.text, self.offset)
        assert found is not None
        self.offset = found.end()

    def is_at_end(self) -> bool:
        """Whether the whole text has been read."""
        return self.offset == len(self.text)

    def sees(self, start: str) -> bool:
        """Whether the rest of the text starts with `start`."""
        return self.text.startswith(start, self.offset)

    def take(self, pattern: str | re.Pattern[str], expected: str) -> str:
        """Read the next token, which must match the pattern."""
        found = re.compile(pattern).match(self.text, self.offset)
        if found is None:
            raise expected_error(self.text, self.offset, expected)
        self.offset = found.end()
        self.skip()
        return found[0]

    def try_symbol(self, symbol: str) -> bool:
        """Read a symbol; False if it is not next."""
        if not self.sees(symbol):
            return False
        self.offset += len(symbol)
        self.skip()
        return True

    def expect_symbol(self, symbol: str, expected: str) -> None:
        """Read a symbol, which must be next."""
        if not self.try_symbol(symbol):
            raise expected_error(self.text, self.offset, expected)

    def try_word(self, word: str) -> bool:
        """Read a word in any case; False if it is not next."""
        found = _WORD.match(self.text, self.offset)
        if found is None or found[0].lower() != word:
            return False
        self.offset = found.end()
        self.skip()
        return True

    def expect_word(self, word: str, expected: str) -> None:
        """Read a word, which must be next."""
        if not self.try_word(word):
            raise expected_error(self.text, self.offset, expected)
