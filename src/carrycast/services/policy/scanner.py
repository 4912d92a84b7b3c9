"""A place in the text of a policy, moved on by what is expected there."""

import re

from carrycast.services.policy.errors import expectation

_SPACE = re.compile(r"(?:[ \t\r\n]++|#[^\n]*+)*")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


class Scanner:
    """Reads what it is asked for, or raises a PolicyError. Blanks, line breaks and comments separate."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.offset = 0
        self.skip()

    def skip(self) -> None:
        """To what comes next."""
        found = _SPACE.match(self.text, self.offset)
        assert found is not None
        self.offset = found.end()

    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self.offset == len(self.text)

    def sees(self, start: str) -> bool:
        """Whether what comes next begins so."""
        return self.text.startswith(start, self.offset)

    def take(self, pattern: str | re.Pattern[str], expected: str) -> str:
        """What comes next, if it fits a pattern."""
        found = re.compile(pattern).match(self.text, self.offset)
        if found is None:
            raise expectation(self.text, self.offset, expected)
        self.offset = found.end()
        self.skip()
        return found[0]

    def try_symbol(self, symbol: str) -> bool:
        """Whether a symbol comes next; it is then behind us."""
        if not self.sees(symbol):
            return False
        self.offset += len(symbol)
        self.skip()
        return True

    def symbol(self, symbol: str, expected: str) -> None:
        """A symbol must come next."""
        if not self.try_symbol(symbol):
            raise expectation(self.text, self.offset, expected)

    def try_word(self, word: str) -> bool:
        """Whether a word comes next, in letters of any size; it is then behind us."""
        found = _WORD.match(self.text, self.offset)
        if found is None or found[0].lower() != word:
            return False
        self.offset = found.end()
        self.skip()
        return True

    def word(self, word: str, expected: str) -> None:
        """A word must come next."""
        if not self.try_word(word):
            raise expectation(self.text, self.offset, expected)
