"""Sets of numbers and of strings as sorted, disjoint intervals between cuts.

A cut lies between values. For numbers it is (value, side): side 0 just below the value, 1 just above. So [1, 2) runs
from (1, 0) to (2, 0), and the point 3 from (3, 0) to (3, 1). Strings in code point order have immediate successors (s
is followed by s + NUL), so a cut above s is the cut below its successor, and every string cut is (0, s), 'below s';
(1, "") lies above all strings.

Numbers are taken as reals: `x > 1 and x < 2` is satisfiable, and nothing is concluded from the gaps between floats.
"""

import math
from typing import TypeVar

NumberCut = tuple[float, int]
StringCut = tuple[int, str]
Cut = TypeVar("Cut", NumberCut, StringCut)

NumberIntervals = tuple[tuple[NumberCut, NumberCut], ...]
StringIntervals = tuple[tuple[StringCut, StringCut], ...]

ALL_NUMBERS: NumberIntervals = (((-math.inf, 0), (math.inf, 1)),)
ALL_STRINGS: StringIntervals = (((0, ""), (1, "")),)


def number_interval(low: float, low_open: bool, high: float, high_open: bool) -> NumberIntervals:
    """The numbers from low to high; empty if there are none."""
    start: NumberCut = (low, 1 if low_open else 0)
    end: NumberCut = (high, 0 if high_open else 1)
    return ((start, end),) if start < end else ()


def string_below(text: str, included: bool) -> StringIntervals:
    """The strings before the text, and the text itself if included."""
    end: StringCut = (0, text + "\0" if included else text)
    return (((0, ""), end),) if end > (0, "") else ()


def string_above(text: str, included: bool) -> StringIntervals:
    """The strings after the text, and the text itself if included."""
    return (((0, text if included else text + "\0"), (1, "")),)


def string_point(text: str) -> StringIntervals:
    """The text alone."""
    return (((0, text), (0, text + "\0")),)


def strings_with_prefix(prefix: str) -> StringIntervals:
    """The strings that begin with the prefix."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return (((0, prefix), (1, "")),)
    following = 0xE000 if stem[-1] == "\ud7ff" else ord(stem[-1]) + 1
    return (((0, prefix), (0, stem[:-1] + chr(following))),)


def intersection(ones: tuple[tuple[Cut, Cut], ...], twos: tuple[tuple[Cut, Cut], ...]) -> tuple[tuple[Cut, Cut], ...]:
    """The intersection of two sets."""
    common: list[tuple[Cut, Cut]] = []
    i = j = 0
    while i < len(ones) and j < len(twos):
        start = max(ones[i][0], twos[j][0])
        end = min(ones[i][1], twos[j][1])
        if start < end:
            common.append((start, end))
        if ones[i][1] < twos[j][1]:
            i += 1
        else:
            j += 1
    return tuple(common)


def union(ones: tuple[tuple[Cut, Cut], ...], twos: tuple[tuple[Cut, Cut], ...]) -> tuple[tuple[Cut, Cut], ...]:
    """The union of two sets, with touching intervals merged."""
    merged: list[tuple[Cut, Cut]] = []
    pieces = list(ones)
    pieces.extend(twos)
    pieces.sort()
    for start, end in pieces:
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return tuple(merged)


def difference(ones: tuple[tuple[Cut, Cut], ...], twos: tuple[tuple[Cut, Cut], ...]) -> tuple[tuple[Cut, Cut], ...]:
    """The difference: the first set without the second."""
    left: list[tuple[Cut, Cut]] = []
    j = 0
    for start, end in ones:
        position = start
        while j < len(twos) and twos[j][1] <= position:
            j += 1
        while j < len(twos) and twos[j][0] < end:
            if position < twos[j][0]:
                left.append((position, twos[j][0]))
            position = twos[j][1]
            if position >= end:
                # The interval may reach into the next one, so it is compared with that too.
                break
            j += 1
        if position < end:
            left.append((position, end))
    return tuple(left)


def number_points(intervals: NumberIntervals) -> list[float] | None:
    """The numbers of the set if it is finite, else None."""
    if any(start[0] != end[0] for start, end in intervals):
        return None
    return [start[0] for start, _ in intervals]


def string_points(intervals: StringIntervals) -> list[str] | None:
    """The strings of the set if each stands alone, else None."""
    if any(end != (0, start[1] + "\0") for start, end in intervals):
        return None
    return [start[1] for start, _ in intervals]
