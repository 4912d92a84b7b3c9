"""The error that a filter gives when it does not parse or breaks a limit."""

from carrycast.errors import UserError

# An error must stay one readable line, so only this much of a long filter is shown around the position.
EXCERPT_CHARACTERS = 72


class FilterError(UserError):
    """A filter that cannot be used: one line with the position (counted from 1) and what was expected there."""

    def __init__(self, message: str, position: int, expected: str) -> None:
        super().__init__(message)
        self.position = position
        self.expected = expected

    def __reduce__(self) -> tuple[type["FilterError"], tuple[str, int, str]]:
        # Exceptions are rebuilt from args, which holds the message alone.
        return type(self), (str(self), self.position, self.expected)


def expectation(text: str, offset: int, expected: str, after: str = "") -> FilterError:
    """The error for a text in which `expected` should stand at `offset` (counted from 0), behind the token `after`."""
    behind = f" after {quoted(after)}" if after else ""
    message = f"filter: expected {expected}{behind} at position {offset + 1}: {excerpt(text, offset)}"
    return FilterError(message, offset + 1, expected)


def limit(text: str, offset: int, problem: str) -> FilterError:
    """The error for a text that breaks a limit at `offset`."""
    message = f"filter: {problem} at position {offset + 1}: {excerpt(text, offset)}"
    return FilterError(message, offset + 1, problem)


def quoted(token: str) -> str:
    """A token as an error message shows it: short and in quotes, unless it brings its own."""
    shown = printable(token if len(token) <= 24 else token[:21] + "...")
    return shown if token[:1] in {"'", '"'} else f"'{shown}'"


def excerpt(text: str, offset: int) -> str:
    """The part of the text around the offset, on one line."""
    if len(text) <= EXCERPT_CHARACTERS:
        return printable(text)
    start = max(0, min(offset - EXCERPT_CHARACTERS // 2, len(text) - EXCERPT_CHARACTERS))
    end = start + EXCERPT_CHARACTERS
    head = "..." if start > 0 else ""
    tail = "..." if end < len(text) else ""
    return head + printable(text[start:end]) + tail


def printable(text: str) -> str:
    """The text with line breaks and other control characters written as escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
