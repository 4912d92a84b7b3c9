"""The error raised for a filter that does not parse or exceeds a limit."""

from carrycast.errors import UserError

# Only this much of a long filter is shown around the position, so that the error stays one readable line.
EXCERPT_CHARACTERS = 72


class FilterError(UserError):
    """A filter is not valid. The message is one line with the position (counted from 1) and the correction.

    >>> import carrycast
    >>> try:
    ...     carrycast.Filter("road == 'A1'")
    ... except carrycast.FilterError as error:
    ...     print(error)
    filter: write = for equality at position 6: road == 'A1'
    """

    def __init__(self, message: str, position: int, expected: str) -> None:
        super().__init__(message)
        self.position = position
        self.expected = expected

    def __reduce__(self) -> tuple[type["FilterError"], tuple[str, int, str]]:
        # Exceptions are rebuilt from args, which holds the message alone.
        return type(self), (str(self), self.position, self.expected)


def expected_error(text: str, offset: int, expected: str, after: str = "") -> FilterError:
    """Return the error for a text that lacks `expected` at `offset` (counted from 0), after the token `after`."""
    behind = f" after {quote_token(after)}" if after else ""
    message = f"filter: expected {expected}{behind} at position {offset + 1}: {excerpt(text, offset)}"
    return FilterError(message, offset + 1, expected)


def filter_error(text: str, offset: int, problem: str) -> FilterError:
    """Return the error for a text with the given problem at `offset`."""
    message = f"filter: {problem} at position {offset + 1}: {excerpt(text, offset)}"
    return FilterError(message, offset + 1, problem)


def quote_token(token: str) -> str:
    """Shorten a token for an error message and put it in quotes, unless it starts with one."""
    shown = escape_unprintable(token if len(token) <= 24 else token[:21] + "...")
    return shown if token[:1] in {"'", '"'} else f"'{shown}'"


def excerpt(text: str, offset: int) -> str:
    """Return the part of the text around the offset, on one line."""
    if len(text) <= EXCERPT_CHARACTERS:
        return escape_unprintable(text)
    start = max(0, min(offset - EXCERPT_CHARACTERS // 2, len(text) - EXCERPT_CHARACTERS))
    end = start + EXCERPT_CHARACTERS
    head = "..." if start > 0 else ""
    tail = "..." if end < len(text) else ""
    return head + escape_unprintable(text[start:end]) + tail


def escape_unprintable(text: str) -> str:
    """Replace line breaks and other control characters by escape sequences."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)
