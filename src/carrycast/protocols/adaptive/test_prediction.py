"""From what a node sees around itself to what it is worth as a carrier."""

import pytest

from carrycast.core.parts.interests import EVERYTHING
from carrycast.core.parts.kalman import steady_variance
from carrycast.protocols.adaptive.context import ObservedContext
from carrycast.protocols.adaptive.prediction import CarrierPredictor
from carrycast.protocols.adaptive.settings import AdaptiveSettings
from carrycast.sim.testing import IsolatedHost


def around(
    before: set[int] | None = None, now: set[int] | None = None, near: tuple[str, ...] = (), free: float = 1.0
) -> ObservedContext:
    return ObservedContext(0.0, IsolatedHost(), now or set(), before or set(), dict.fromkeys(near), free)


def predictions(predictability: bool = True, **weights: float) -> CarrierPredictor:
    return CarrierPredictor(AdaptiveSettings(weights=weights, predictability=predictability))


def test_the_first_observations_are_taken_as_they_are() -> None:
    utilities = predictions(change_degree=0.5, colocation=0.5)
    utilities.sample(around({1, 2}, {2, 3, 4}, near=("i",)))
    # Three of four changed; a subscriber to i is near.
    assert utilities.utility("i") == pytest.approx(0.5 * 0.75 + 0.5)
    assert utilities.utility("unknown") == pytest.approx(0.5 * 0.75)


def test_a_subscriber_met_later_counts_by_the_gain_of_the_filter() -> None:
    utilities = predictions(colocation=1.0)
    utilities.sample(around())
    utilities.sample(around(near=("i",)))
    variance = steady_variance(0.01, 0.1)
    assert utilities.utility("i") == pytest.approx(variance / (variance + 0.1)), "the steady-state gain"


def test_an_interest_whose_subscribers_are_gone_is_one_day_forgotten() -> None:
    utilities = predictions(colocation=1.0)
    utilities.sample(around(near=("i",)))
    values = []
    while "i" in utilities.utilities:
        values.append(utilities.utility("i"))
        utilities.sample(around())
    assert values == sorted(values, reverse=True)
    assert values[-1] >= 0.01
    assert 8 < len(values) < 40


def test_alone_the_prediction_of_change_stands() -> None:
    utilities = predictions(change_degree=1.0)
    utilities.sample(around({1}, {2}))
    for _ in range(5):
        utilities.sample(around())
    assert utilities.utility(EVERYTHING) == 1.0


def test_free_buffer_space_is_an_attribute_like_the_others() -> None:
    utilities = predictions(free_buffer=0.5, colocation=0.5)
    utilities.sample(around(free=0.25, near=("i",)))
    assert utilities.utilities == pytest.approx({EVERYTHING: 0.125, "i": 0.625})


def test_a_series_that_cannot_be_predicted_is_found_out() -> None:
    utilities = predictions(change_degree=1.0)
    for period in range(30):
        utilities.sample(around({1}, {2} if period % 2 else {1}))
    assert not utilities.are_reliable(["i", EVERYTHING])


def test_a_steady_series_is_reliable() -> None:
    utilities = predictions(change_degree=0.5, colocation=0.5)
    for _ in range(30):
        utilities.sample(around({1, 2}, {2, 3}, near=("i",)))
    assert utilities.are_reliable(["i", EVERYTHING])


def test_one_reliable_interest_is_enough() -> None:
    utilities = predictions(colocation=1.0)
    for period in range(30):
        utilities.sample(around(near=("steady", "jumpy") if period % 2 else ("steady",)))
    assert not utilities.are_reliable(["jumpy", EVERYTHING])
    assert utilities.are_reliable(["jumpy", "steady", EVERYTHING])
    assert utilities.are_reliable(["never met", EVERYTHING])


def test_the_test_can_be_turned_off() -> None:
    utilities = predictions(predictability=False, change_degree=1.0)
    for period in range(30):
        utilities.sample(around({1}, {2} if period % 2 else {1}))
    assert utilities.are_reliable(["i", EVERYTHING])
