"""Patterns of `like`."""

import re
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.matching import Filter
from carrycast.core.matching.patterns import make_like_matcher, parse_like
from tests.unit.matching.kleene import like_expression

CASES = [
    ("'%'", "", True),
    ("'%'", "a\nb", True),
    ("'_'", "\n", True),
    ("'_'", "\U0001f600", True),
    ("'a%'", "abc", True),
    ("'a%'", "ba", False),
    ("'%a'", "ba", True),
    ("'a%a'", "a", False),
    ("'a%a'", "aa", True),
    ("'%b%'", "abc", True),
    ("'a_c'", "abc", True),
    ("'a_c'", "ac", False),
    ("'%a_c%'", "xxabcxx", True),
    ("'%ab%ab'", "abab", True),
    ("'%ab%ab'", "aab", False),
    ("'a%b%c'", "abbc", True),
    ("'A%'", "abc", False),
    ("'.*'", "ab", False),
    ("'5!%' escape '!'", "5%", True),
    ("'5!%' escape '!'", "50", False),
    ("'%!_%' escape '!'", "a_b", True),
    ("'%!_%' escape '!'", "ab", False),
    ("'a!!%' escape '!'", "a!b", True),
    ("'%%' escape '%'", "%", True),
]


@pytest.mark.parametrize(("pattern", "text", "expected"), CASES)
def test_patterns_match_as_in_sql(pattern: str, text: str, expected: bool) -> None:
    assert Filter(f"x like {pattern}").matches({"x": text}) is expected
    assert Filter(f"x not like {pattern}").matches({"x": text}) is not expected


@given(st.text("ab%_", max_size=8), st.text("ab", max_size=8))
@settings(max_examples=400)
def test_patterns_match_what_the_regular_expression_matches(pattern: str, text: str) -> None:
    plain = re.escape(pattern).replace("%", ".*").replace("_", ".")
    parsed = parse_like(pattern, None)
    assert make_like_matcher(parsed)(text) is (re.fullmatch(plain, text) is not None)
    assert like_expression(parsed) == like_expression(parse_like(parsed.to_sql()[1:-1], None))


def test_a_hostile_pattern_takes_no_exponential_time() -> None:
    # As a backtracking expression this would not end in the age of the universe.
    rng = Random(1)
    hostile = Filter("x like '" + "%a" * 120 + "%b'")
    assert not hostile.matches({"x": "a" * 4000})
    assert hostile.matches({"x": "a" * 4000 + "b"})
    assert not hostile.matches({"x": "".join(rng.choice("ac") for _ in range(4000))})
