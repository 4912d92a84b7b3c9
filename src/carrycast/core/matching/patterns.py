"""The patterns of `like`: `%` stands for any characters, `_` for exactly one.

Matching takes time proportional to the product of the lengths at worst, whatever the pattern: filters come from other
nodes, so a pattern must not be able to make a regular expression backtrack for minutes.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

# Backslash would mean different things to SQL dialects inside of a string, this does not.
CANONICAL_ESCAPE = "!"

# One character, or None for any one character.
Segment = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class LikePattern:
    """A pattern, cut at its `%` signs into segments. Equal languages written differently are mostly equal objects."""

    segments: tuple[Segment, ...]

    def literal(self) -> str | None:
        """The one string that this pattern matches, or None if it has a wildcard."""
        if len(self.segments) > 1 or None in self.segments[0]:
            return None
        return "".join(c for c in self.segments[0] if c is not None)

    def prefix(self) -> str:
        """The characters with which every matching string begins."""
        head: list[str] = []
        for character in self.segments[0]:
            if character is None:
                break
            head.append(character)
        return "".join(head)

    def sql(self) -> str:
        """The pattern as SQL text, with an escape clause where one is needed."""
        special = any(c in {"%", "_"} for segment in self.segments for c in segment)
        escaped = {"%", "_", CANONICAL_ESCAPE} if special else set()
        texts = [
            "".join("_" if c is None else CANONICAL_ESCAPE + c if c in escaped else c for c in segment)
            for segment in self.segments
        ]
        body = "%".join(texts).replace("'", "''")
        return f"'{body}' escape '{CANONICAL_ESCAPE}'" if special else f"'{body}'"


def parse_like(text: str, escape: str | None) -> LikePattern:
    """Read a pattern; raises ValueError if the escape character precedes anything but `%`, `_` or itself."""
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
    return LikePattern(_normalized(segments))


def _normalized(segments: list[list[str | None]]) -> tuple[Segment, ...]:
    # `%_` and `_%` mean the same, as do `%%` and `%`: single wildcards move before the `%`, empty middles go.
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


def like_matcher(pattern: LikePattern) -> Callable[[str], bool]:
    """A function that tells whether a string matches the pattern."""
    segments = pattern.segments
    if None not in {c for segment in segments for c in segment} and len(segments) == 2:
        head, tail = ("".join(c for c in segment if c is not None) for segment in segments)
        least = len(head) + len(tail)
        if not tail:
            return lambda text: text.startswith(head)
        return lambda text: len(text) >= least and text.startswith(head) and text.endswith(tail)
    return _general_matcher(segments)


def _general_matcher(segments: tuple[Segment, ...]) -> Callable[[str], bool]:
    expressions = [_expression(segment) for segment in segments]
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
            # Taking the leftmost place for each middle segment leaves the most room for the next, so it is never wrong.
            found = middle.search(text, position, end)
            if found is None:
                return False
            position = found.end()
        return True

    return matches


def _expression(segment: Segment) -> re.Pattern[str]:
    # No repetition occurs in it, so it cannot backtrack.
    return re.compile("".join("." if c is None else re.escape(c) for c in segment), re.DOTALL)
