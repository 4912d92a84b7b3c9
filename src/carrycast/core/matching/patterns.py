"""The patterns of `like`: `%` stands for any characters, `_` for exactly one.

Matching takes at worst time proportional to the product of the two lengths. Filters come from other nodes, so no
pattern may make a regular expression backtrack for minutes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

# SQL dialects disagree on the meaning of a backslash in a string, but not on this character.
CANONICAL_ESCAPE = "!"

# One character, or None for any one character.
Segment = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern, split at its `%` signs into segments. Most patterns that match the same strings are equal objects."""

    segments: tuple[Segment, ...]

    def literal(self) -> str | None:
        """Return the only string that this pattern matches, or None if it has a wildcard."""
        if len(self.segments) > 1 or None in self.segments[0]:
            return None
        return "".join(c for c in self.segments[0] if c is not None)

    def prefix(self) -> str:
        """Return the characters with which every matching string begins."""
        head: list[str] = []
        for character in self.segments[0]:
            if character is None:
                break
            head.append(character)
        return "".join(head)

    def to_sql(self) -> str:
        """Format the pattern as SQL text, with an escape clause where one is needed."""
        special = any(c in {"%", "_"} for segment in self.segments for c in segment)
        escaped = {"%", "_", CANONICAL_ESCAPE} if special else set()
        texts = [
            "".join("_" if c is None else CANONICAL_ESCAPE + c if c in escaped else c for c in segment)
            for segment in self.segments
        ]
        body = "%".join(texts).replace("'", "''")
        return f"'{body}' escape '{CANONICAL_ESCAPE}'" if special else f"'{body}'"


def parse_like(text: str, escape: str | None) -> LikePattern:
    """Parse a pattern; raises ValueError if the escape character precedes anything but `%`, `_` or itself."""
    segments: list[list[str | None]] = [[]]
    characters = iter(text)
    for character in characters:
        if character == escape:
            following = next(characters, "")
            if following not in {"%", "_", escape}:
                raise ValueError(f"'%', '_' or {escape!r} after each escape character {escape!r} of the pattern")
            segments[-1].append(following)
        elif character == "%":
            segments.append([])
        elif character == "_":
            segments[-1].append(None)
        else:
            segments[-1].append(character)
    return LikePattern(_normalize(segments))


def _normalize(segments: list[list[str | None]]) -> tuple[Segment, ...]:
    # `%_` equals `_%`, and `%%` equals `%`: `_` moves before the `%`, and empty middle segments are removed.
    kept = [segments[0]]
    for segment in segments[1:]:
        start = 0
        while start < len(segment) and segment[start] is None:
            start += 1
        if len(kept) > 1 and not kept[-1]:
            kept.pop()
        kept[-1].extend(segment[:start])
        kept.append(segment[start:])
    return tuple(tuple(segment) for segment in kept)


def make_like_matcher(pattern: LikePattern) -> Callable[[str], bool]:
    """Return a function that tests whether a string matches the pattern."""
    segments = pattern.segments
    if None not in {c for segment in segments for c in segment} and len(segments) == 2:
        head, tail = ("".join(c for c in segment if c is not None) for segment in segments)
        least = len(head) + len(tail)
        if not tail:
            return lambda text: text.startswith(head)
        return lambda text: len(text) >= least and text.startswith(head) and text.endswith(tail)
    return _make_general_matcher(segments)


def _make_general_matcher(segments: tuple[Segment, ...]) -> Callable[[str], bool]:
    expressions = [_compile_segment(segment) for segment in segments]
    first, last, middles = expressions[0], expressions[-1], expressions[1:-1]
    first_size, last_size = len(segments[0]), len(segments[-1])
    if len(segments) == 1:
        return lambda text: first.fullmatch(text) is not None
    least = sum(len(segment) for segment in segments)

    def matches(text: str) -> bool:
        end = len(text) - last_size
        if len(text) < least or first.match(text) is None or last.match(text, end) is None:
            return False
        position = first_size
        for middle in middles:
            # The leftmost match of a segment leaves the most room for the next, so no other has to be tried.
            found = middle.search(text, position, end)
            if found is None:
                return False
            position = found.end()
        return True

    return matches


def _compile_segment(segment: Segment) -> re.Pattern[str]:
    # The expression has no repetition, so it cannot backtrack.
    return re.compile("".join("." if c is None else re.escape(c) for c in segment), re.DOTALL)
