"""Ids, metrics and the feasibility condition."""

import math

import pytest
from hypothesis import given, strategies as st

from carrycast.core.model import Event, EventId, Scalar
from carrycast.protocols.asp.broker import stream_filter
from carrycast.protocols.asp.rules import (
    aggregate_metrics,
    announcement_id,
    canonical_content,
    derive_subscriber,
    is_better,
    is_feasible,
    is_valid_metric,
    result_stream_id,
    stream_id,
)


def event(payload: bytes = b"", number: int = 1, **attributes: Scalar) -> Event:
    return Event(EventId(0, number), attributes, payload)


def test_an_announcement_id_depends_only_on_the_content() -> None:
    one = Event(EventId(1, 1), {"a": 1, "b": "x"}, time_s=1.0)
    other = Event(EventId(2, 9), {"b": "x", "a": 1}, time_s=2.0, lease_s=5.0)
    assert announcement_id(one, (), 3) == announcement_id(other, (), 3)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        (event(v=293.15), event(v=293.1500001), True),
        (event(v=293.15), event(v=293.151), False),
        (event(v=20.0), event(v=20), True),
        (event(v=0.0), event(v=-0.0), True),
        (event(v=1), event(v=True), False),
        (event(v="1"), event(v=1), False),
        (event(v=1), event(w=1), False),
        (event(b"x"), event(b"y"), False),
    ],
)
def test_floats_are_rounded_before_hashing(one: Event, other: Event, alike: bool) -> None:
    assert (canonical_content(one, 3) == canonical_content(other, 3)) is alike
    assert (announcement_id(one, (), 3) == announcement_id(other, (), 3)) is alike


def test_equal_messages_of_two_sources_have_different_ids() -> None:
    same = event(v=20.0)
    assert announcement_id(same, (1,), 3) != announcement_id(same, (2,), 3)


@given(st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_ids_fit_in_63_bits_and_are_never_0(a: int, b: int) -> None:
    for id in (stream_id(a, [b]), derive_subscriber(a, b), result_stream_id([a], "p", 0)):
        assert 0 < id < 2**63


def test_derived_subscriber_ids_differ_by_subscriber_and_result() -> None:
    assert len({7, derive_subscriber(7, 1), derive_subscriber(7, 2), derive_subscriber(8, 1)}) == 4


@pytest.mark.parametrize("metric_s", [-1e-9, math.nan, math.inf, -math.inf])
def test_negative_and_infinite_numbers_are_no_metrics(metric_s: float) -> None:
    assert not is_valid_metric(metric_s)


def test_a_rounding_error_is_no_better_path() -> None:
    assert not is_better(0.1 + 0.2, 0.3)
    assert not is_better(0.3, 0.1 + 0.2)
    assert is_better(0.29, 0.3)


def test_the_metric_of_several_inputs_is_their_sum_or_maximum() -> None:
    assert aggregate_metrics([0.1, 0.3], "sum") == pytest.approx(0.4)
    assert aggregate_metrics([0.1, 0.3], "max") == 0.3


def test_only_an_announcer_below_the_lowest_metric_is_feasible() -> None:
    assert is_feasible(0.1, 0.2)
    assert not is_feasible(0.2, 0.2)
    assert not is_feasible(0.3, 0.2)


@pytest.mark.parametrize(
    ("attributes", "text"),
    [
        ({"topic": "it's"}, "topic = 'it''s'"),
        ({"topic": -1.5e-7}, "topic < 0"),
        ({"topic": True}, "topic = true"),
        ({}, "topic is null"),
        ({"topic": "x" * 4096}, "true"),
    ],
)
def test_the_filter_of_a_stream_overlaps_filters_that_its_messages_match(
    attributes: dict[str, Scalar], text: str
) -> None:
    described = stream_filter(attributes, ("topic",))
    assert described.matches(attributes)
    assert described.overlaps(type(described)(text))
