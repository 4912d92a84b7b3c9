"""The grammar of filters, and the position and correction in each error."""

import pickle

import pytest

from carrycast.core.matching import Filter, FilterError
from carrycast.errors import UserError

ERRORS = [
    # (text, position counted from 1, what was expected there)
    ("speed > ", 9, "a value"),
    ("speed >", 8, "a value"),
    ("speed > limit", 9, "a value"),
    ("speed > > 5", 9, "a value"),
    ("speed = null", 9, "a value (absence is tested with 'is null')"),
    ("speed = - x", 11, "a number"),
    ("speed 5", 7, "'and', 'or' or the end"),
    ("speed > 5 and", 14, "a condition"),
    ("and speed > 5", 1, "a condition"),
    ("not", 4, "a condition"),
    ("()", 2, "a condition"),
    ("(speed > 5", 11, "'and', 'or' or ')'"),
    ("speed > 5)", 10, "'and', 'or' or the end"),
    ("5", 2, "a comparison"),
    ("'a' = 'a'", 7, "an attribute"),
    ("true = 5", 8, "an attribute"),
    ("speed between 1, 2", 16, "'and'"),
    ("speed between 1 and", 20, "a value"),
    ("speed in 1", 10, "'('"),
    ("speed in ()", 11, "a value"),
    ("speed in (1 2)", 13, "',' or ')'"),
    ("speed in (1, road)", 14, "a value"),
    ("speed not > 5", 11, "'between', 'in', 'like' or 'matches'"),
    ("speed is 5", 10, "'null' or 'not null'"),
    ("speed is not 5", 14, "'null'"),
    ("road like A", 11, "a pattern in quotes"),
    ("road like 5", 11, "a pattern in quotes"),
    ("road like 'a' escape 'xy'", 22, "one character in quotes"),
    ("road like 'a' escape", 21, "one character in quotes"),
    ("road like 'a!b' escape '!'", 11, "'%', '_' or '!' after each escape character '!' of the pattern"),
    ("road like 'a!' escape '!'", 11, "'%', '_' or '!' after each escape character '!' of the pattern"),
    ("topic matches a", 15, "a topic filter in quotes"),
    ("topic matches ''", 15, "a topic filter of at least one character"),
    ("topic matches 'a#'", 15, "a topic filter with '#' only as its whole last level"),
    ("topic matches 'a/#/b'", 15, "a topic filter with '#' only as its whole last level"),
    ("topic matches 'a+/b'", 15, "a topic filter with '+' only as a whole level"),
    ("topic matches 'a\0'", 15, "a topic filter without the null character"),
    ("road = 'A1", 11, "a closing ' of the string"),
    ("road = 'it''s", 14, "a closing ' of the string"),
    ('"road = 1', 10, 'a closing " of the name'),
    ('"" = 1', 2, "an attribute name"),
    ("speed > 5a", 10, "the end of the number"),
    ("speed > 1.2.3", 12, "the end of the number"),
    ("speed > 1e", 10, "the end of the number"),
    ("speed > 9223372036854775808", 9, "an integer of at most 64 bits (or a decimal: append '.0')"),
    ("speed > 99999999999999999999", 9, "an integer of at most 64 bits (or a decimal: append '.0')"),
    ("speed > -9223372036854775809", 10, "an integer of at most 64 bits (or a decimal: append '.0')"),
    ("speed > 1e309", 9, "a number below 1.8e308"),
    ("speed & 5", 7, "an attribute, a value or an operator instead of '&'"),
    ("größe > 5", 3, "an attribute, a value or an operator instead of 'ö'"),
    ("road = '\ud800'", 9, "a valid Unicode character"),
]


@pytest.mark.parametrize(("text", "position", "expected"), ERRORS)
def test_an_error_has_the_exact_position_and_what_was_expected(text: str, position: int, expected: str) -> None:
    with pytest.raises(FilterError) as raised:
        Filter(text)
    assert raised.value.position == position
    assert raised.value.expected == expected
    assert f"expected {expected}" in str(raised.value)
    assert f" at position {position}: " in str(raised.value)


SPELLINGS = [
    # (text, position counted from 1, correction)
    ("speed == 5", 7, "write = for equality"),
    ("speed==5", 6, "write = for equality"),
    ("speed === 5", 7, "write = for equality"),
    ("5 == speed", 3, "write = for equality"),
    ("speed > 5 && armed", 11, "write and"),
    ("speed > 5 || armed", 11, "write or"),
    ("!armed", 1, "write not"),
    ("a and !(b = 1)", 7, "write not"),
    ("!!armed", 1, "write not"),
    ('road = "A1"', 8, "write text in single quotes"),
    ('road = ""', 8, "write text in single quotes"),
    ('road <> "A1"', 9, "write text in single quotes"),
    ("road in ('A1', \"A2\")", 16, "write text in single quotes"),
    ('road between "A" and "B"', 14, "write text in single quotes"),
    ('road like "A%"', 11, "write text in single quotes"),
    ("road like 'A!%' escape \"!\"", 24, "write text in single quotes"),
    ('topic matches "a/#"', 15, "write text in single quotes"),
]


@pytest.mark.parametrize(("text", "position", "correction"), SPELLINGS)
def test_a_spelling_of_another_language_is_corrected(text: str, position: int, correction: str) -> None:
    with pytest.raises(FilterError) as raised:
        Filter(text)
    assert str(raised.value) == f"filter: {correction} at position {position}: {text}"
    assert (raised.value.position, raised.value.expected) == (position, correction)


def test_operators_of_other_languages_are_plain_text_in_strings_and_names() -> None:
    assert Filter("a = '== && || !'").matches({"a": "== && || !"})
    assert Filter('"a==b" != 1').matches({"a==b": 2})


def test_the_message_is_one_line_that_shows_the_filter() -> None:
    with pytest.raises(UserError) as raised:
        Filter("speed > ")
    assert str(raised.value) == "filter: expected a value after '>' at position 9: speed > "


def test_control_characters_do_not_break_the_line() -> None:
    with pytest.raises(FilterError) as raised:
        Filter("a >\n\n")
    assert str(raised.value) == r"filter: expected a value after '>' at position 6: a >\n\n"


def test_a_long_filter_is_shown_around_the_error() -> None:
    text = "a = 1 and " * 20 + "b ? 2" + " and c = 3" * 20
    with pytest.raises(FilterError) as raised:
        Filter(text)
    assert raised.value.position == 203
    excerpt = str(raised.value).partition(" at position 203: ")[2]
    assert "b ? 2" in excerpt
    assert len(excerpt) < 80


def test_an_error_survives_pickling() -> None:
    with pytest.raises(FilterError) as raised:
        Filter("speed >")
    copy = pickle.loads(pickle.dumps(raised.value))
    assert (str(copy), copy.position, copy.expected) == (str(raised.value), 8, "a value")


def test_the_length_is_bounded() -> None:
    assert Filter("x = '" + "a" * 4090 + "'").matches({"x": "a" * 4090})
    with pytest.raises(FilterError, match="at most 4096"):
        Filter("x = '" + "a" * 4091 + "'")


def test_a_text_whose_canonical_form_would_be_too_long_is_refused() -> None:
    # Canonical text has spaces around operators, and it must parse again at the other end.
    with pytest.raises(FilterError, match="at most 4096"):
        Filter("x='" + "a" * 4092 + "'")


def test_the_depth_is_bounded() -> None:
    assert Filter("(" * 32 + "x" + ")" * 32) == Filter("x")
    assert Filter("not " * 32 + "x") == Filter("x")
    for text in ("(" * 33 + "x" + ")" * 33, "not " * 33 + "x", "not (" * 17 + "x" + ")" * 17):
        with pytest.raises(FilterError, match="nested deeper than 32 levels"):
            Filter(text)


def test_the_number_of_terms_is_bounded() -> None:
    assert Filter(" or ".join(["x = 1"] * 256)) == Filter("x = 1")
    with pytest.raises(FilterError, match="more than 256 terms"):
        Filter(" or ".join(["x = 1"] * 257))
    assert Filter("x in (" + ",".join(str(n) for n in range(256)) + ")").matches({"x": 255})
    with pytest.raises(FilterError, match="more than 256 terms"):
        Filter("x in (" + ",".join(str(n) for n in range(257)) + ")")


def test_and_binds_tighter_than_or_and_not_tighter_than_both() -> None:
    assert Filter("a or b and c") == Filter("a or (b and c)")
    assert Filter("not a and b") == Filter("(not a) and b")
    assert Filter("not a = 1 or b") == Filter("(not (a = 1)) or b")


@pytest.mark.parametrize("other", [5, None, 2.5, b"a = 1", ["a = 1"], Filter("a = 1")])
def test_a_filter_is_made_of_text(other: object) -> None:
    with pytest.raises(TypeError, match="a filter is written as text"):
        Filter(other)  # type: ignore[arg-type]
