"""What is wrong with a policy, and where."""

from carrycast.core.matching.errors import quoted
from carrycast.errors import UserError


class PolicyError(UserError):
    """A policy that cannot be read: line and column, both counted from 1, and what was expected there."""

    def __init__(self, message: str, line: int, column: int, expected: str) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.expected = expected

    def __reduce__(self) -> tuple[type["PolicyError"], tuple[str, int, int, str]]:
        # Exceptions are rebuilt from args, which holds the message alone.
        return type(self), (str(self), self.line, self.column, self.expected)


def place(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset."""
    before = text[:offset]
    return before.count("\n") + 1, offset - (before.rfind("\n") + 1) + 1


def expectation(text: str, offset: int, expected: str) -> PolicyError:
    """Something else should stand at an offset, or behind the blanks there."""
    offset += len(text[offset:]) - len(text[offset:].lstrip())
    line, column = place(text, offset)
    rest = text[offset:].split(maxsplit=1)
    found = quoted(rest[0]) if rest else "the end"
    return PolicyError(f"line {line}, column {column}: expected {expected}, not {found}", line, column, expected)


def flaw(text: str, offset: int, problem: str) -> PolicyError:
    """What stands at an offset cannot be meant."""
    line, column = place(text, offset)
    return PolicyError(f"line {line}, column {column}: {problem}", line, column, problem)
