"""Filters give the same results as SQL."""

import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from carrycast.core.matching import Filter
from carrycast.core.matching.parser import parse
from carrycast.core.model import Scalar
from tests.unit.matching.generators import SCHEMA, TOPICS, random_attributes, random_filter, topic_condition
from tests.unit.matching.kleene import evaluate

ROWS = 200


def duckdb_selects(events: list[dict[str, Scalar]], conditions: list[str]) -> list[list[int]]:
    """For each condition the numbers of the events that DuckDB selects by it."""
    rows = [[number, *(event.get(name) for name in SCHEMA)] for number, event in enumerate(events)]
    question = json.dumps({"schema": SCHEMA, "rows": rows, "conditions": conditions})
    script = Path(__file__).with_name("duckdb_oracle.py")
    answer = subprocess.run([sys.executable, script], input=question, stdout=subprocess.PIPE, text=True, check=True)
    numbers: list[list[int]] = json.loads(answer.stdout)
    return [sorted(selected) for selected in numbers]


@pytest.fixture(scope="module")
def events() -> list[dict[str, Scalar]]:
    rng = Random("events for the comparison with SQL")
    return [random_attributes(rng) for _ in range(ROWS)]


def test_filters_select_the_rows_that_duckdb_selects(events: list[dict[str, Scalar]]) -> None:
    rng = Random("filters for the comparison with SQL")
    texts = [random_filter(rng) for _ in range(300)]
    conditions = [*texts, *(f"not ({text})" for text in texts)]
    for condition, selected in zip(conditions, duckdb_selects(events, conditions), strict=True):
        matched = [number for number, event in enumerate(events) if Filter(condition).matches(event)]
        assert matched == selected, condition


def test_the_canonical_text_selects_the_same_rows_in_duckdb(events: list[dict[str, Scalar]]) -> None:
    rng = Random("canonical texts for the comparison with SQL")
    texts = [random_filter(rng) for _ in range(150)]
    answers = duckdb_selects(events, [*texts, *(Filter(text).text for text in texts)])
    for text, written, canonical in zip(texts, answers[:150], answers[150:], strict=True):
        assert canonical == written, text


@given(st.randoms(use_true_random=False))
@settings(max_examples=150, deadline=None)
def test_filters_match_exactly_where_three_valued_logic_says_true(rng: Random) -> None:
    text = f"({random_filter(rng)}) {rng.choice(('and', 'or'))} {topic_condition(rng)}"
    for _ in range(10):
        attributes = random_attributes(rng) | {"topic": rng.choice(TOPICS)}
        assert Filter(text).matches(attributes) is (evaluate(parse(text), attributes) is True)
        assert Filter(f"not ({text})").matches(attributes) is (evaluate(parse(text), attributes) is False)


MIXED = [
    # (condition, value of x or None if absent, truth)
    ("x = 1", "1", None),
    ("x = '1'", 1, None),
    ("x <> 1", "a", None),
    ("x <> 'a'", 1, None),
    ("x = true", 1, None),
    ("x = 1", True, None),
    ("x <> 1", True, None),
    ("x = 0", False, None),
    ("x in (0, 1)", True, None),
    ("x", "true", None),
    ("x", 1, None),
    ("x", True, True),
    ("x", False, False),
    ("x < true", False, True),
    ("x >= false", True, True),
    ("x = 1", 1.0, True),
    ("x = 1.0", 1, True),
    ("x < 9007199254740993", 9007199254740992.0, True),
    ("x = 9007199254740993", 9007199254740992.0, False),
    ("x > 9223372036854775807", 9.3e18, True),
    ("x < 'b'", 0, None),
    ("x like '%'", 5, None),
    ("x not like 'a'", 5, None),
    ("x matches '#'", 5, None),
    ("x not matches 'a'", 5, None),
    ("x in (1, 'a')", 1, True),
    ("x in (1, 'a')", 2, None),
    ("x not in (1, 'a')", 2, None),
    ("x not in (1, 'a')", 1, False),
    ("x not in (1, 2)", 3, True),
    ("x not in (1, 2)", "a", None),
    ("x not in (1, 2)", True, None),
    ("x not in (true)", False, True),
    ("x between 1 and 'a'", 0, False),
    ("x between 1 and 'a'", 2, None),
    ("x not between 1 and 'a'", 0, True),
    ("x not between 1 and 'a'", "b", True),
    ("x not between 1 and 'a'", 2, None),
    ("x between 3 and 1", 2, False),
    ("x not between 3 and 1", 2, True),
    ("x is null", None, True),
    ("x is null", False, False),
    ("x is not null", "", True),
    ("x = 1 or x <> 1", None, None),
    ("x = 1 or x is null", None, True),
    ("x = 1 and false", None, False),
    ("x = 1 or true", None, True),
    ("x", None, None),
    ("x like 'a'", None, None),
    ("x in (1)", None, None),
    ("x < 'é'", "z", True),
    ("x < '\uffff'", "\U00010000", False),
    ("", None, True),
    ("true", "a", True),
    ("false", "a", False),
]


@pytest.mark.parametrize(("condition", "value", "truth"), MIXED)
def test_kinds_do_not_compare_and_absent_is_unknown(condition: str, value: Scalar | None, truth: bool | None) -> None:
    attributes = {} if value is None else {"x": value}
    assert Filter(condition).matches(attributes) is (truth is True)
    if condition:
        assert Filter(f"not ({condition})").matches(attributes) is (truth is False)


def test_attribute_names_are_case_sensitive() -> None:
    assert Filter("Speed > 1").matches({"Speed": 2})
    assert not Filter("Speed > 1").matches({"speed": 2})


def test_quoted_names_reach_any_attribute() -> None:
    assert Filter('"in" = 1 and "say ""hi""" = 2 and "1st" = 3').matches({"in": 1, 'say "hi"': 2, "1st": 3})
    assert Filter("engine.load > 1").matches({"engine.load": 2})
