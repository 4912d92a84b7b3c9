"""`covers` and `overlaps` are sound, and complete for conjunctions."""

from itertools import product
from random import Random

import pytest

from carrycast.core.matching import Filter
from carrycast.core.matching.automata import Budget, exists_string
from carrycast.core.matching.intervals import ALL_STRINGS
from carrycast.core.matching.patterns import make_like_matcher, parse_like
from carrycast.core.model import Scalar
from tests.unit.matching.generators import (
    TOPICS,
    random_attributes,
    random_conjunction,
    random_filter,
    topic_condition,
)

COVERS = [
    # (wide, narrow, does the first cover the second)
    ("", "x = 1", True),
    ("x = 1", "", False),
    ("x = 1", "false", True),
    ("x = 1", "x = 1 and y = 2", True),
    ("x = 1 and y = 2", "x = 1", False),
    ("x > 1", "x > 1", True),
    ("x > 1", "x > 1.0", True),
    ("x > 1", "x >= 1", False),
    ("x >= 1", "x > 1", True),
    ("x > 1", "x between 2 and 3", True),
    ("x between 1 and 3", "x > 1 and x < 3", True),
    ("x > 1 and x < 3", "x between 1 and 3", False),
    ("x <> 2", "x > 2", True),
    ("x <> 2", "x > 1", False),
    ("x not in (1, 2)", "x between 3 and 4", True),
    ("x in (1, 2, 3)", "x in (1, 3)", True),
    ("x in (1, 3)", "x in (1, 2)", False),
    ("x in (1, 'a')", "x = 'a'", True),
    ("x is not null", "x = 1", True),
    ("x is not null", "x <> 'a'", True),
    ("x = 1 or x <> 1", "x is not null", False),  # a string is neither
    ("x is null or x is not null", "", True),
    ("x < 1 or x >= 1", "x between 0 and 2", True),
    ("x", "x = true", True),
    ("x <> false", "x", True),
    ("x <= true", "x is not null", False),
    ("x", "x = 1", False),
    ("x = 1", "x = 2 and x = 3", True),  # nothing matches the second
    ("x = 1", "x = 2 and x is null", True),
    ("x = 1", "x > 5 and x < 'a'", True),
    ("y = 1", "x like 'a%' and x like 'b%'", True),
    ("y = 1", "x matches 'a/+' and x matches '+/b/#' and x <> 'a/b'", True),
    ("y = 1", "x matches 'a/+' and x matches '+/b/#'", False),
    ("x < 'b'", "x <= 'a'", True),
    ("x <= 'a'", "x < 'a\0'", True),  # no string lies between 'a' and 'a' with a NUL appended
    ("x >= 'a' and x < 'b'", "x like 'a%'", True),
    ("x like 'a%'", "x >= 'a' and x < 'b'", True),
    ("x like 'a%'", "x like 'ab%'", True),
    ("x like 'ab%'", "x like 'a%'", False),
    ("x like '%a%'", "x like '%ba%c'", True),
    ("x like '%ab%'", "x like '%a%b%'", False),
    ("x like 'a%'", "x = 'abc'", True),
    ("x like 'a%'", "x in ('abc', 'b')", False),
    ("x not like 'a%'", "x = 'b'", True),
    ("x not like 'a%'", "x like 'b%'", True),
    ("x not like 'ab%'", "x not like 'a%'", True),
    ("x like '%'", "x <> 'a'", True),
    ("t matches 'a/#'", "t matches 'a/b/+'", True),
    ("t matches 'a/b/+'", "t matches 'a/#'", False),
    ("t matches 'a/#'", "t = 'a'", True),
    ("t matches '#'", "t = '$SYS/x'", False),
    ("t matches '#'", "t matches '$SYS/+'", False),
    ("t not matches 'a/#'", "t matches 'b/+'", True),
    ("t matches 'a/+'", "t matches 'a/#' and t not matches 'a/+/+/#' and t <> 'a'", True),
    ("t matches 'a/#'", "t like 'a/b%'", True),
    ("t like 'a/%'", "t matches 'a/+'", True),
    ("t like 'a/%'", "t matches 'a/#'", False),  # 'a' itself
    ("x = 1 or y = 2", "y = 2 and z = 3", True),
    ("x = 1 or y = 2", "y = 2 or x = 1", True),
    ("(x = 1 or y = 2) and z", "z and x = 1", True),
]

DISJOINT = [
    ("x = 1", "x = 2"),
    ("x = 1", "x = '1'"),
    ("x = 1", "x = true"),
    ("x", "not x"),
    ("x > 1", "x < 1"),
    ("x > 1", "x <= 1"),
    ("x is null", "x <> 1"),
    ("x > 'a'", "x < 'a\0'"),
    ("x in (1, 2)", "x not in (1, 2, 3)"),
    ("x not between 1 and 2", "x in (1, 2)"),
    ("x like 'a%'", "x like 'b%'"),
    ("x like 'a%'", "x > 'b'"),
    ("x like 'a%'", "x = 'ba'"),
    ("x like '_'", "x like '__%'"),
    ("t matches 'a/+'", "t matches 'b/#'"),
    ("t matches '+/b'", "t matches '$SYS/#'"),
    ("t matches 'a/+'", "t = 'a/b/c'"),
    ("t matches 'a/+'", "t like '%/%/%'"),
    ("false", "true"),
    ("x = 1 or x = 2", "x = 3 or y = 1 and x = 4"),
]

MEETING = [
    ("x > 1", "x < 1.5"),
    ("x > 1 and x < 2", "x is not null"),  # numbers are not taken as integers
    ("x = 1", "y = 2"),
    ("x >= 1", "x <= 1"),
    ("x is null", "y = 1"),
    ("x like '%a'", "x like 'b%'"),
    ("x <> 1", "x <> 2"),
    ("x <> 1", "x in (1, 2)"),
    ("t matches 'a/#'", "t matches '+/b'"),
    ("t matches 'a/+/c'", "t matches '+/b/+'"),
    ("", ""),
]


@pytest.mark.parametrize(("wide", "narrow", "expected"), COVERS)
def test_covers(wide: str, narrow: str, expected: bool) -> None:
    assert Filter(wide).covers(Filter(narrow)) is expected


@pytest.mark.parametrize(("one", "two"), DISJOINT)
def test_filters_without_common_events_do_not_overlap(one: str, two: str) -> None:
    assert not Filter(one).overlaps(Filter(two))
    assert not Filter(two).overlaps(Filter(one))


@pytest.mark.parametrize(("one", "two"), MEETING)
def test_filters_with_common_events_overlap(one: str, two: str) -> None:
    assert Filter(one).overlaps(Filter(two))
    assert Filter(two).overlaps(Filter(one))


# With literals 0, 1, 2, 'a' and 'b' these are all the values that a conjunction can tell apart.
POINTS: tuple[Scalar | None, ...] = (
    *(None, False, True),
    *(-1, 0, 0.5, 1, 1.5, 2, 3),
    *("", "a", "aa", "b", "bb"),
)
LITERALS = ("0", "1", "2", "'a'", "'b'", "true", "false")
POINT_EVENTS = [
    {name: value for name, value in (("x", x), ("y", y)) if value is not None} for x, y in product(POINTS, POINTS)
]


def conjunction(rng: Random) -> str:
    conditions = []
    for _ in range(rng.randint(1, 3)):
        name = rng.choice("xxy")
        # Mostly one kind for each attribute, or nearly all conjunctions would be empty.
        home = LITERALS[:3] if name == "x" else LITERALS[3:5]
        literals = rng.choices(home if rng.random() < 0.85 else LITERALS, k=3)
        conditions.append(
            rng.choice(
                (
                    f"{name} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {literals[0]}",
                    f"not {name} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {literals[0]}",
                    f"{name} between {literals[0]} and {literals[1]}",
                    f"not {name} between {literals[0]} and {literals[1]}",
                    f"{name} in ({', '.join(literals)})",
                    f"{name} not in ({literals[0]}, {literals[1]})",
                    f"{name} is {rng.choice(('', 'not '))}null",
                )
            )
        )
    return " and ".join(conditions)


def test_conjunctions_are_decided_exactly() -> None:
    rng = Random("conjunctions")
    seen = {(covers, overlaps): 0 for covers in (False, True) for overlaps in (False, True)}
    for _ in range(600):
        one = Filter(conjunction(rng))
        two = Filter(rng.choice((conjunction(rng), f"{one} and {conjunction(rng)}")))
        ours = [one.matches(event) for event in POINT_EVENTS]
        theirs = [two.matches(event) for event in POINT_EVENTS]
        covers = all(mine for mine, other in zip(ours, theirs, strict=True) if other)
        overlaps = any(mine and other for mine, other in zip(ours, theirs, strict=True))
        assert one.covers(two) is covers, (one, two)
        assert one.overlaps(two) is overlaps, (one, two)
        assert two.overlaps(one) is overlaps, (one, two)
        seen[covers, overlaps] += 1
    assert min(seen.values()) > 20, "each outcome must occur often enough to mean something"


def test_conjunctions_over_topics_are_decided_exactly() -> None:
    rng = Random("topics")
    levels = ("a", "b", "c", "", "$a", "z")
    topics = ["/".join(parts) for size in (1, 2, 3, 4) for parts in product(levels, repeat=size)]
    outcomes = {False: 0, True: 0}
    for _ in range(60):
        one, two = (
            Filter(" and ".join(topic_condition(rng) for _ in range(rng.randint(1, 2)))),
            Filter(" and ".join(topic_condition(rng) for _ in range(rng.randint(1, 3)))),
        )
        ours = {topic for topic in topics if one.matches({"topic": topic})}
        theirs = {topic for topic in topics if two.matches({"topic": topic})}
        assert one.covers(two) is (ours >= theirs), (one, two)
        assert one.overlaps(two) is bool(ours & theirs), (one, two)
        outcomes[ours >= theirs] += 1
    assert min(outcomes.values()) > 10


def test_the_answers_are_sound_for_any_filters() -> None:
    rng = Random("soundness")
    events = [random_attributes(rng) | {"topic": rng.choice(TOPICS)} for _ in range(150)]
    covered = disjoint = 0
    for _ in range(400):
        one = Filter(random_filter(rng, 2))
        other = rng.choice((random_filter(rng, 1), random_conjunction(rng), topic_condition(rng)))
        two = Filter(rng.choice((f"({one}) and ({other})", other, f"not ({one})")))
        for wide, narrow in ((one, two), (two, one)):
            if wide.covers(narrow):
                covered += 1
                assert not [event for event in events if narrow.matches(event) and not wide.matches(event)]
        if not one.overlaps(two):
            disjoint += 1
            assert not [event for event in events if one.matches(event) and two.matches(event)]
    assert covered > 50
    assert disjoint > 20


def test_patterns_are_decided_as_enumeration_decides_them() -> None:
    rng = Random("patterns")
    texts = ["".join(parts) for size in range(7) for parts in product("abz", repeat=size)]
    for _ in range(80):
        patterns = tuple(
            (parse_like("".join(rng.choices("ab%_", k=rng.randint(0, 3))), None), rng.random() < 0.4) for _ in range(3)
        )
        exists = any(all(make_like_matcher(p)(text) is not negated for p, negated in patterns) for text in texts)
        assert exists_string(ALL_STRINGS, patterns, Budget()) is exists, patterns


def test_too_many_alternatives_are_answered_on_the_safe_side() -> None:
    wide = Filter(" and ".join(f"(a{n} = 1 or b{n} = 2)" for n in range(7)))
    assert wide.boxes is None
    assert wide.covers(wide)
    assert Filter("").covers(wide)
    assert not wide.covers(Filter("a1 = 1"))
    assert not Filter("c = 1").covers(wide)
    assert wide.overlaps(Filter("c = 1"))
    assert not wide.overlaps(Filter("false"))
    assert not wide.covers(Filter("true"))
    assert wide.covers(Filter("false"))


def test_patterns_that_are_too_hard_are_answered_on_the_safe_side() -> None:
    # To know the n-th character from the end, an automaton must remember all of the last n.
    hard = Filter("x like '%a" + "_" * 40 + "' and x like '%b" + "_" * 41 + "%'")
    other = Filter("x not like '%b" + "_" * 39 + "' and x not like '%b" + "_" * 38 + "c%'")
    assert not other.covers(hard)
    assert hard.overlaps(other)
