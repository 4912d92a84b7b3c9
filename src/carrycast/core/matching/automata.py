"""Decide whether some string satisfies several tests, by searching the product of small automata.

Patterns of `like`, topic filters and intervals of strings are all regular languages. Each is stepped one character at a
time, and a breadth-first search looks for a string that all accept. Characters that no test mentions behave alike, so a
few representatives stand for all of Unicode. The search is bounded, because inclusion of patterns is hard in general:
when the budget is exhausted the answer is unknown, and callers assume the safe case.
"""

from dataclasses import dataclass
from functools import lru_cache

from carrycast.core.matching.intervals import StringIntervals
from carrycast.core.matching.patterns import LikePattern
from carrycast.core.matching.topics import TopicFilter

Pattern = LikePattern | TopicFilter

# A pattern, and whether it must not match.
SignedPattern = tuple[Pattern, bool]

# A step is one character tried by one automaton. All searches of one `covers` or `overlaps` share this budget, which
# takes a fraction of a second. Two topic filters of a hundred characters need some ten thousand steps.
DEFAULT_STEPS = 100_000

# The state of a pattern before the first character: there, and only there, a `$` is special.
_START = -1


class Budget:
    """The steps that a decision may still use."""

    __slots__ = ("steps",)

    def __init__(self, steps: int = DEFAULT_STEPS) -> None:
        self.steps = steps


@dataclass(frozen=True, slots=True)
class _Automaton:
    """A nondeterministic automaton in bits: bit i of a state is set if the first i elements have been matched."""

    advance: dict[str, int]  # for a character, the positions whose element it is
    advance_any: int  # positions whose element is any one character
    stay_any: int  # positions at which any characters may pass
    stay_level: int  # positions at which any characters but '/' may pass
    accepting: int
    guarded: bool  # a leading '$' matches nothing
    characters: tuple[str, ...]

    def step(self, state: int, character: str) -> int:
        if state == _START:
            if self.guarded and character == "$":
                return 0
            state = 1
        moved = (state & (self.advance.get(character, 0) | self.advance_any)) << 1
        moved |= state & self.stay_any
        if character != "/":
            moved |= state & self.stay_level
        return moved

    def accepts(self, state: int) -> bool:
        return bool((1 if state == _START else state) & self.accepting)


@lru_cache(maxsize=1024)
def _make_automaton(pattern: Pattern) -> _Automaton:
    return _make_like_automaton(pattern) if isinstance(pattern, LikePattern) else _make_topic_automaton(pattern)


def _make_like_automaton(pattern: LikePattern) -> _Automaton:
    advance: dict[str, int] = {}
    advance_any = stay_any = position = 0
    for number, segment in enumerate(pattern.segments):
        if number > 0:
            stay_any |= 1 << position
        for character in segment:
            if character is None:
                advance_any |= 1 << position
            else:
                advance[character] = advance.get(character, 0) | 1 << position
            position += 1
    return _Automaton(advance, advance_any, stay_any, 0, 1 << position, False, tuple(advance))


def _make_topic_automaton(topics: TopicFilter) -> _Automaton:
    levels = topics.expand_levels()
    advance: dict[str, int] = {}
    stay_any = stay_level = accepting = position = 0
    for number, level in enumerate(levels):
        if level == "#":
            accepting |= 1 << position
            stay_any |= 1 << (position + 1)
        # Every level but the first has a separator before it. `#` matches all characters after the separator.
        for character in ("/" if number > 0 else "") + (level if level not in {"+", "#"} else ""):
            advance[character] = advance.get(character, 0) | 1 << position
            position += 1
        if level == "+":
            stay_level |= 1 << position
    accepting |= 1 << position
    characters = (*advance, *(() if "/" in advance else ("/",)), *(() if "$" in advance else ("$",)))
    return _Automaton(advance, 0, stay_any, stay_level, accepting, levels[0] == "+", characters)


@dataclass(frozen=True, slots=True)
class _Cuts:
    """The intervals as an automaton. A state is (first, end, depth): the range of the sorted cuts that begin with the
    `depth` characters read so far. Cuts before the range lie below the string, cuts after it above."""

    cuts: tuple[str, ...]

    def start(self) -> tuple[int, int, int]:
        return (0, len(self.cuts), 0)

    def step(self, state: tuple[int, int, int], character: str) -> tuple[int, int, int]:
        first, end, depth = state
        while first < end and (len(self.cuts[first]) == depth or self.cuts[first][depth] < character):
            first += 1
        while first < end and self.cuts[end - 1][depth] > character:
            end -= 1
        return (first, end, depth + 1 if first < end else 0)

    def accepts(self, state: tuple[int, int, int]) -> bool:
        first, end, depth = state
        at_cut = first < end and len(self.cuts[first]) == depth
        # Cuts alternate between start and end of an interval, so a string with an odd number of cuts below is inside.
        return (first + at_cut) % 2 == 1

    def is_dead(self, state: tuple[int, int, int]) -> bool:
        first, end, _ = state
        return first == end and first % 2 == 0


def exists_string(intervals: StringIntervals, patterns: tuple[SignedPattern, ...], budget: Budget) -> bool | None:
    """Whether some string lies in the intervals and satisfies the patterns; None if the budget does not suffice."""
    if budget.steps < 0:
        return None
    cuts = _Cuts(tuple(text for interval in intervals for above, text in interval if not above))
    automata = [(_make_automaton(pattern), negated) for pattern, negated in patterns]
    alphabet = _choose_representatives([*cuts.cuts, *("".join(automaton.characters) for automaton, _ in automata)])
    cost = len(alphabet) * (1 + len(automata))
    start = (cuts.start(), (_START,) * len(automata))
    seen = {start}
    frontier = [start]
    while frontier:
        following: list[tuple[tuple[int, int, int], tuple[int, ...]]] = []
        for place, states in frontier:
            if cuts.accepts(place) and all(
                automaton.accepts(state) is not negated
                for (automaton, negated), state in zip(automata, states, strict=True)
            ):
                return True
            budget.steps -= cost
            if budget.steps < 0:
                return None
            for character in alphabet:
                stepped = tuple(
                    automaton.step(state, character) for (automaton, _), state in zip(automata, states, strict=True)
                )
                there = (cuts.step(place, character), stepped)
                hopeless = cuts.is_dead(there[0]) or any(
                    state == 0 and not negated for (_, negated), state in zip(automata, stepped, strict=True)
                )
                if not hopeless and there not in seen:
                    seen.add(there)
                    following.append(there)
        frontier = following
    return False


def _choose_representatives(texts: list[str]) -> list[str]:
    # All characters between two mentioned ones behave alike; the successor of a mentioned one represents them.
    codes = {0}
    for text in texts:
        for character in text:
            code = ord(character)
            codes.add(code)
            following = 0xE000 if code == 0xD7FF else code + 1
            if following <= 0x10FFFF:
                codes.add(following)
    return [chr(code) for code in sorted(codes)]
