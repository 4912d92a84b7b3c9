"""The values of an attribute that a filter allows, if they can be listed."""

import pytest
from hypothesis import given, strategies as st

from carrycast.core.matching import Filter, pinned_values
from carrycast.core.model import Scalar


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("topic = 'a'", ("a",)),
        ("topic = 'a' and speed > 3", ("a",)),
        ("topic in ('a', 'b') and topic <> 'b'", ("a",)),
        ("topic = 1", (1.0,)),
        ("topic = true", (True,)),
        ("topic in (1, '1') or topic = true", (True, 1.0, "1")),
        ("(topic = 'a' and speed > 3) or (topic = 'b' and speed < 1)", ("b", "a")),
        ("topic matches 'city/north'", ("city/north",)),
        ("topic in ('ab', 'b') and topic like 'a%'", ("ab",)),
        ("topic between 2 and 2", (2.0,)),
        ("topic = 'a' and topic = 'b'", ()),
        ("false", ()),
        ("true", None),
        ("", None),
        ("speed > 3", None),
        ("topic = 'a' or speed > 3", None),
        ("topic like 'a%'", None),
        ("topic matches 'city/+'", None),
        ("topic > 3", None),
        ("topic is null", None),
        ("topic <> 'a'", None),
    ],
)
def test_what_follows_from_a_filter(text: str, values: tuple[Scalar, ...] | None) -> None:
    found = pinned_values(Filter(text), "topic")
    assert found == values
    assert [type(value) for value in found or ()] == [type(value) for value in values or ()]


def test_too_many_alternatives_to_look_at_pin_nothing() -> None:
    wide = " and ".join(f"(a{n} = 1 or b{n} = 1)" for n in range(10))
    assert pinned_values(Filter(f"topic = 'a' and {wide}"), "topic") is None


TOPICS = st.sampled_from(["a", "b", "c", 1, 2])
PARTS = st.one_of(
    TOPICS.map(lambda topic: f"topic = {topic!r}"),
    TOPICS.map(lambda topic: f"topic <> {topic!r}"),
    st.sampled_from(["speed > 1", "speed <= 1", "topic in ('a', 1)", "topic like 'a%'", "topic is not null"]),
)
FILTERS = st.recursive(
    PARTS,
    lambda inner: st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=6,
)


@given(FILTERS, TOPICS, st.integers(0, 2))
def test_whatever_matches_has_one_of_the_pinned_values(text: str, topic: Scalar, speed: int) -> None:
    filter = Filter(text)
    values = pinned_values(filter, "topic")
    if values is not None and filter.matches({"topic": topic, "speed": speed}):
        assert topic in values
    if values is not None:
        assert not filter.matches({"speed": speed}), "without a topic nothing matches"
