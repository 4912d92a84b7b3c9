"""Prediction of the utility as a carrier from the observed context."""

import pytest

from carrycast.core.parts.interests import EVERYTHING
from carrycast.core.parts.kalman import steady_variance
from carrycast.protocols.adaptive.context import ObservedContext
from carrycast.protocols.adaptive.prediction import CarrierPredictor
from carrycast.protocols.adaptive.settings import AdaptiveSettings
from carrycast.sim.testing import IsolatedHost


def make_context(
    before: set[int] | None = None, now: set[int] | None = None, near: tuple[str, ...] = (), free: float = 1.0
) -> ObservedContext:
    return ObservedContext(0.0, IsolatedHost(), now or set(), before or set(), dict.fromkeys(near), free)


def make_predictor(predictability: bool = True, **weights: float) -> CarrierPredictor:
    return CarrierPredictor(AdaptiveSettings(weights=weights, predictability=predictability))


def test_the_first_observations_are_taken_as_they_are() -> None:
    predictor = make_predictor(change_degree=0.5, colocation=0.5)
    predictor.sample(make_context({1, 2}, {2, 3, 4}, near=("i",)))
    # Three of four neighbors changed; a subscriber to i is a neighbor.
    assert predictor.utility("i") == pytest.approx(0.5 * 0.75 + 0.5)
    assert predictor.utility("unknown") == pytest.approx(0.5 * 0.75)


def test_a_subscriber_met_later_counts_by_the_gain_of_the_filter() -> None:
    predictor = make_predictor(colocation=1.0)
    predictor.sample(make_context())
    predictor.sample(make_context(near=("i",)))
    variance = steady_variance(0.01, 0.1)
    assert predictor.utility("i") == pytest.approx(variance / (variance + 0.1)), "the steady-state gain"


def test_an_interest_without_subscribers_is_forgotten_in_the_end() -> None:
    predictor = make_predictor(colocation=1.0)
    predictor.sample(make_context(near=("i",)))
    values = []
    while "i" in predictor.utilities:
        values.append(predictor.utility("i"))
        predictor.sample(make_context())
    assert values == sorted(values, reverse=True)
    assert values[-1] >= 0.01
    assert 8 < len(values) < 40


def test_without_neighbors_the_prediction_of_change_stays() -> None:
    predictor = make_predictor(change_degree=1.0)
    predictor.sample(make_context({1}, {2}))
    for _ in range(5):
        predictor.sample(make_context())
    assert predictor.utility(EVERYTHING) == 1.0


def test_free_buffer_space_is_an_attribute_like_the_others() -> None:
    predictor = make_predictor(free_buffer=0.5, colocation=0.5)
    predictor.sample(make_context(free=0.25, near=("i",)))
    assert predictor.utilities == pytest.approx({EVERYTHING: 0.125, "i": 0.625})


def test_an_unpredictable_series_is_unreliable() -> None:
    predictor = make_predictor(change_degree=1.0)
    for period in range(30):
        predictor.sample(make_context({1}, {2} if period % 2 else {1}))
    assert not predictor.are_reliable(["i", EVERYTHING])


def test_a_steady_series_is_reliable() -> None:
    predictor = make_predictor(change_degree=0.5, colocation=0.5)
    for _ in range(30):
        predictor.sample(make_context({1, 2}, {2, 3}, near=("i",)))
    assert predictor.are_reliable(["i", EVERYTHING])


def test_one_reliable_interest_is_enough() -> None:
    predictor = make_predictor(colocation=1.0)
    for period in range(30):
        predictor.sample(make_context(near=("steady", "jumpy") if period % 2 else ("steady",)))
    assert not predictor.are_reliable(["jumpy", EVERYTHING])
    assert predictor.are_reliable(["jumpy", "steady", EVERYTHING])
    assert predictor.are_reliable(["never met", EVERYTHING])


def test_the_test_can_be_turned_off() -> None:
    predictor = make_predictor(predictability=False, change_degree=1.0)
    for period in range(30):
        predictor.sample(make_context({1}, {2} if period % 2 else {1}))
    assert predictor.are_reliable(["i", EVERYTHING])
