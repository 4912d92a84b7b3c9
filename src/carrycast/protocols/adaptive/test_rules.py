"""The equations of adaptive routing, by tables worked by hand."""

import pytest

from carrycast.core.model import EventId
from carrycast.protocols.adaptive.rules import (
    change_degree,
    draw_interest,
    is_carrier,
    link_table,
    link_utilities,
    update_interval_s,
    visible_utilities,
    weighted_sum,
)


@pytest.mark.parametrize(
    ("reached", "table"),
    [([{"i": 0.4}, {"i": 0.6, "j": 0.1}], {"i": 0.6, "j": 0.1}), ([{"i": 1.0}], {"i": 1.0}), ([], {})],
)
def test_equation_2_is_the_maximum_over_the_nodes_of_a_link(
    reached: list[dict[str, float]], table: dict[str, float]
) -> None:
    assert link_table(reached) == table


@pytest.mark.parametrize(
    ("change", "near", "utility"),
    # [004 eq. 5] with both weights 0.5.
    [(0.0, 0.0, 0.0), (1.0, 1.0, 1.0), (0.6, 0.0, 0.3), (0.13, 1.0, 0.565), (0.61, 0.2, 0.405)],
)
def test_equations_3_and_5_sum_by_weight(change: float, near: float, utility: float) -> None:
    weights = {"change_degree": 0.5, "colocation": 0.5}
    assert weighted_sum(weights, {"change_degree": change, "colocation": near}) == pytest.approx(utility)


def test_an_attribute_without_a_prediction_yet_adds_nothing() -> None:
    assert weighted_sum({"change_degree": 0.25, "colocation": 0.75}, {"change_degree": 1.0}) == 0.25


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        (set(), {1, 2}, 1.0),
        ({1, 2}, set(), 1.0),
        ({1, 2}, {1, 2}, 0.0),
        # One came, one went, one stayed: two of three.
        ({1, 2}, {2, 3}, 2 / 3),
        ({1, 2, 3}, {1, 2, 3, 4}, 1 / 4),
        ({1}, {2}, 1.0),
    ],
)
def test_equation_6_is_the_share_that_came_or_went(before: set[int], now: set[int], change: float) -> None:
    assert change_degree(before, now) == pytest.approx(change)


def test_equation_6_has_no_value_without_neighbors() -> None:
    assert change_degree(set(), set()) is None


@pytest.mark.parametrize(
    ("hops", "seen"),
    [
        (2, {"i": 0.9, "j": 0.2, "k": 0.7}),
        # Inside the horizon only the node's own utilities count.
        (1, {"i": 0.5, "j": 0.2}),
    ],
)
def test_equation_8_uses_neighborhood_utilities_only_at_the_horizon(hops: int, seen: dict[str, float]) -> None:
    assert visible_utilities({"i": 0.5, "j": 0.2}, {"i": 0.9, "k": 0.7}, [], hops, horizon=2) == seen


def test_ignored_neighborhood_utilities_are_left_out() -> None:
    assert visible_utilities({"i": 0.5}, {"i": 0.9, "k": 0.7, "l": 1.0}, ["i", "k"], 1, 1) == {"i": 0.5, "l": 1.0}


@pytest.mark.parametrize(
    ("change", "interval_s"), [(0.0, 60.0), (1.0, 10.0), (0.5, 20.0), (0.25, 40.0), (1 / 6, 60.0), (0.01, 60.0)]
)
def test_equation_9_shortens_the_interval_with_the_change(change: float, interval_s: float) -> None:
    assert update_interval_s(change, 10.0, 60.0) == pytest.approx(interval_s)


@pytest.mark.parametrize(("as_carrier", "sigma", "stored"), [(0.6, 0.6, True), (0.59, 0.6, False), (0.0, 0.0, True)])
def test_a_carrier_stores_from_the_threshold_on(as_carrier: float, sigma: float, stored: bool) -> None:
    assert is_carrier(as_carrier, sigma) == stored


def test_the_utility_of_a_link_for_an_event_is_the_maximum_over_its_interests() -> None:
    links = [[{"i": 0.2, "j": 0.9}, {"i": 0.5}, {"k": 0.1, "j": 0.3}], [{"k": 0.4}]]
    for interests in (["i"], ["i", "j"], ["k", "x"], ["x"]):
        by_hand = [
            max((table[interest] for table in tables for interest in interests if interest in table), default=0.0)
            for tables in links
        ]
        assert link_utilities(dict(enumerate(map(link_table, links))), range(2), interests) == by_hand


def test_the_drawn_interest_does_not_depend_on_other_known_interests() -> None:
    interests = ["a = 1", "b = 1", "c = 1", "d = 1"]
    drawn = {}
    for number in range(400):
        id = EventId(3, number)
        chosen = drawn[number] = draw_interest(id, interests)
        assert draw_interest(id, interests[::-1]) == chosen
        for left_out in interests:
            if left_out != chosen:
                assert draw_interest(id, [interest for interest in interests if interest != left_out]) == chosen
    shares = [list(drawn.values()).count(interest) for interest in interests]
    assert all(70 < share < 130 for share in shares)
