"""The error of a filter is one short line with the position, the correction and an excerpt of the text."""

import pickle

import pytest

from carrycast.core.matching.errors import (
    EXCERPT_CHARACTERS,
    FilterError,
    escape_unprintable,
    excerpt,
    expected_error,
    filter_error,
    quote_token,
)


def test_an_expectation_names_the_position_counted_from_one() -> None:
    found = expected_error("a ==", 2, "a literal", "=")
    assert str(found) == "filter: expected a literal after '=' at position 3: a =="
    assert (found.position, found.expected) == (3, "a literal")
    assert str(expected_error("", 0, "a condition")) == "filter: expected a condition at position 1: "


def test_a_problem_names_the_position_counted_from_one() -> None:
    found = filter_error("a = 1", 4, "a number too large")
    assert str(found) == "filter: a number too large at position 5: a = 1"
    assert (found.position, found.expected) == (5, "a number too large")


def test_an_error_survives_pickling() -> None:
    found = pickle.loads(pickle.dumps(expected_error("a ==", 2, "a literal", "=")))
    assert isinstance(found, FilterError)
    assert (str(found), found.position, found.expected) == (
        "filter: expected a literal after '=' at position 3: a ==",
        3,
        "a literal",
    )


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("and", "'and'"),
        ("'text'", "'text'"),
        ('"name"', '"name"'),
        ("x" * 24, "'" + "x" * 24 + "'"),
        ("x" * 25, "'" + "x" * 21 + "...'"),
        ("'" + "x" * 30, "'" + "x" * 20 + "..."),
        ("a\n", "'a\\n'"),
        ("", "''"),
    ],
)
def test_a_token_is_short_and_in_quotes(token: str, shown: str) -> None:
    assert quote_token(token) == shown


def test_a_text_that_fits_is_shown_whole() -> None:
    assert excerpt("a = 1", 3) == "a = 1"
    whole = "".join(chr(ord("a") + place % 26) for place in range(EXCERPT_CHARACTERS))
    assert excerpt(whole, 70) == whole


@pytest.mark.parametrize(
    ("offset", "start", "head", "tail"),
    [
        (0, 0, "", "..."),
        (36, 0, "", "..."),
        (37, 1, "...", "..."),
        (100, 64, "...", "..."),
        (163, 127, "...", "..."),
        (164, 128, "...", ""),
        (199, 128, "...", ""),
    ],
)
def test_of_a_long_text_the_part_around_the_position_is_shown(offset: int, start: int, head: str, tail: str) -> None:
    text = "".join(chr(ord("a") + place % 26) for place in range(200))
    assert excerpt(text, offset) == head + text[start : start + 72] + tail


def test_control_characters_are_written_as_escapes() -> None:
    assert escape_unprintable("a\tb\x00c\u2028é") == "a\\tb\\x00c\\u2028é"
    assert excerpt("a\n= 1", 0) == "a\\n= 1"
    assert excerpt("\n" * 100, 0) == "\\n" * 72 + "..."
