"""Equivalent filters have the same canonical text, which parses to the same filter."""

import copy
import pickle
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.matching import Filter
from carrycast.core.matching.canonical import canonicalize
from carrycast.core.matching.parser import parse
from carrycast.core.matching.terms import Compare, Literal, Operator, ValueKind
from tests.unit.matching.generators import random_filter, topic_condition

TEXTS = [
    # (as written, canonical)
    ("", "true"),
    ("  \n", "true"),
    ("TRUE", "true"),
    ("not true", "false"),
    ("armed", "armed = true"),
    ("NOT armed", "armed <> true"),
    ("x != 1", "x <> 1"),
    ("x=1.0", "x = 1"),
    ("x = 1e3", "x = 1000"),
    ("x = -0.0", "x = 0"),
    ("x = +.5", "x = 0.5"),
    ("x = - 2", "x = -2"),
    ("x = 1e300", "x = 1e+300"),
    ("x = -9223372036854775808", "x = -9223372036854775808"),
    ("5 < x", "x > 5"),
    ("5 >= x", "x <= 5"),
    ("true = x", "x = true"),
    ("not x < 5", "x >= 5"),
    ("not x between 1 and 2", "x not between 1 and 2"),
    ("not x not in (2, 1)", "x in (1, 2)"),
    ("x in (1)", "x = 1"),
    ("x not in (1, 1.0)", "x <> 1"),
    ("x in ('b', 2, true, 'a', 2)", "x in (true, 2, 'a', 'b')"),
    ("not x is null", "x is not null"),
    ("x like 'abc'", "x = 'abc'"),
    ("x not like 'a!%' escape '!'", "x <> 'a%'"),
    ("x like '%%_a%_'", "x like '_%a_%'"),
    (r"x like '5\%%' escape '\'", "x like '5!%%' escape '!'"),
    ("x like 'a!%'", "x like 'a!%'"),
    ("topic matches 'a/b'", "topic = 'a/b'"),
    ("topic matches '+/#'", "topic matches '#'"),
    ("not topic matches 'it''s/+'", "topic not matches 'it''s/+'"),
    ("b = 1 and a = 2", "a = 2 and b = 1"),
    ("a and (b and (c and a))", "a = true and b = true and c = true"),
    ("a and (b or c)", "(b = true or c = true) and a = true"),
    ("(a and b) or c", "a = true and b = true or c = true"),
    ("not (a and not (b or c))", "a <> true or b = true or c = true"),
    ("a and true", "a = true"),
    ("a and false", "false"),
    ("a or true", "true"),
    ("a or false or a", "a = true"),
    ('"a" = 1', "a = 1"),
    ('"AND" = 1', '"AND" = 1'),
    ('"a b" = 1', '"a b" = 1'),
    ('"é" = 1', '"é" = 1'),
    ('".a" = 1', '".a" = 1'),
    ("a.b = 'it''s'", "a.b = 'it''s'"),
]


@pytest.mark.parametrize(("written", "text"), TEXTS)
def test_a_filter_has_one_canonical_text(written: str, text: str) -> None:
    assert Filter(written).text == text
    assert Filter(text) == Filter(written)


@given(st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_the_canonical_text_parses_back_to_the_same_terms(rng: Random) -> None:
    written = Filter(f"({random_filter(rng)}) {rng.choice(('and', 'or'))} {topic_condition(rng)}")
    assert Filter(written.text) == written
    assert Filter(written.text).text == written.text
    assert canonicalize(parse(written.text)) == written.node


@given(st.text(), st.text(min_size=1))
def test_any_string_and_any_name_survive(value: str, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + "\" = '" + value.replace("'", "''") + "'"
    assert Filter(Filter(quoted).text).node == Compare(name, Operator.EQ, Literal(ValueKind.STRING, value))
    assert Filter(quoted).matches({name: value})


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**63), 2**63 - 1))
def test_any_number_survives(value: float) -> None:
    assert Filter(Filter(f"x = {value!r}").text).matches({"x": value})


def test_true_and_one_are_different_filters() -> None:
    assert Filter("x = true") != Filter("x = 1")
    assert Filter("x = true").node != Filter("x = 1").node


def test_equal_filters_are_one_key() -> None:
    assert len({Filter("a and b"), Filter("B = 1"), Filter("b AND a")}) == 2
    assert Filter("a") != "a = true"


def test_a_filter_survives_pickling_and_copying() -> None:
    original = Filter("speed > 30 and topic matches 'a/#'")
    for twin in (pickle.loads(pickle.dumps(original)), copy.deepcopy(original)):
        assert twin == original
        assert twin.matches({"speed": 31, "topic": "a/b"})


def test_a_filter_shows_itself() -> None:
    assert repr(Filter("a=1")) == "Filter('a = 1')"
    assert str(Filter("a=1")) == "a = 1"
