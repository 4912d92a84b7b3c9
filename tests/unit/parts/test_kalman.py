"""The level filter against a batch solution, against its closed form, and without observations."""

import numpy as np
import pytest

from carrycast.core.parts.kalman import WARM_UP, LevelFilter, ResidualMonitor, steady_variance


def batch_estimate(observed: list[float | None], drift: float, noise: float) -> tuple[float, float]:
    """The last level and the variance of the next prediction, by least squares over the whole series at once.

    An independent way to the same answer: the most likely levels minimize the squared noise and the squared steps, each
    by its variance, and the inverse of that problem's matrix is their covariance. Nothing is known before the first.
    """
    count = len(observed)
    matrix, right = np.zeros((count, count)), np.zeros(count)
    for place, value in enumerate(observed):
        if value is not None:
            matrix[place, place] += 1 / noise
            right[place] += value / noise
    for place in range(count - 1):
        step = np.array([[1, -1], [-1, 1]]) / drift
        matrix[place : place + 2, place : place + 2] += step
    levels = np.linalg.solve(matrix, right)
    return float(levels[-1]), float(np.linalg.inv(matrix)[-1, -1] + drift)


def filtered(observed: list[float | None], drift: float, noise: float) -> LevelFilter:
    first = observed[0]
    assert first is not None
    level = LevelFilter(first, drift, noise)
    for value in observed[1:]:
        if value is None:
            level.skip()
        else:
            level.observe(value)
    return level


@pytest.mark.parametrize(("drift", "noise"), [(0.01, 0.1), (0.1, 0.1), (0.001, 0.5)])
def test_step_by_step_gives_what_all_at_once_gives(drift: float, noise: float) -> None:
    series: list[float | None] = [float(value) for value in np.random.default_rng(4).random(40)]
    for count in (1, 2, 7, 40):
        level = filtered(series[:count], drift, noise)
        assert (level.level, level.variance) == pytest.approx(batch_estimate(series[:count], drift, noise))


def test_without_observations_the_prediction_stays_and_is_less_sure() -> None:
    series: list[float | None] = [0.2, 0.8, None, None, 0.5, None]
    level = filtered(series, 0.01, 0.1)
    assert (level.level, level.variance) == pytest.approx(batch_estimate(series, 0.01, 0.1))
    before = level.level, level.variance
    level.skip()
    assert level.level == before[0]
    assert level.variance == pytest.approx(before[1] + 0.01)


@pytest.mark.parametrize(("ratio", "gain"), [(0.01, 0.095), (0.1, 0.27), (1.0, 0.618)])
def test_the_steady_gain_has_a_closed_form(ratio: float, gain: float) -> None:
    variance = steady_variance(ratio, 1.0)
    assert variance / (variance + 1.0) == pytest.approx(gain, abs=5e-4)


def test_the_filter_settles_at_its_steady_state() -> None:
    level = LevelFilter(0.0, 0.01, 0.1)
    for _ in range(200):
        level.observe(1.0)
    assert level.variance == pytest.approx(steady_variance(0.01, 0.1))
    residual_before = 1.0 - level.level
    residual = level.observe(1.0)
    assert residual == pytest.approx(residual_before)
    gain = steady_variance(0.01, 0.1) / (steady_variance(0.01, 0.1) + 0.1)
    assert 1.0 - level.level == pytest.approx(residual * (1 - gain))


def test_the_second_of_two_observations_counts_more_than_half() -> None:
    # By hand: variance 0.11 before it, gain 0.11 / 0.21.
    level = LevelFilter(0.0, 0.01, 0.1)
    assert level.observe(1.0) == 1.0
    assert level.level == pytest.approx(0.11 / 0.21)
    assert level.variance == pytest.approx(0.11 - 0.11 * 0.11 / 0.21 + 0.01)


def test_predictions_of_shares_stay_shares() -> None:
    level = LevelFilter(1.0, 0.3, 0.1)
    for value in np.random.default_rng(5).integers(0, 2, 300).tolist():
        level.observe(float(value))
        assert 0.0 <= level.level <= 1.0


BOUNDS = (0.35, 0.1, 0.05)


def judged(residuals: list[float]) -> bool:
    monitor = ResidualMonitor()
    for residual in residuals:
        monitor.add(residual)
    return monitor.is_reliable(*BOUNDS)


def test_nothing_is_held_against_a_series_with_few_residuals() -> None:
    assert judged([1.0] * (WARM_UP - 1))
    assert not judged([1.0] * WARM_UP)


def test_white_noise_within_the_bound_is_reliable_nearly_always() -> None:
    rng = np.random.default_rng(3)
    verdicts = [judged(rng.normal(0, 0.2, 60).tolist()) for _ in range(300)]
    assert 0.85 < np.mean(verdicts) <= 1.0


def test_large_residuals_are_unreliable_though_they_are_noise() -> None:
    assert not judged(np.random.default_rng(3).normal(0, 0.6, 60).tolist())


def test_residuals_to_one_side_are_unreliable() -> None:
    assert not judged([0.2, 0.15] * 20)


def test_residuals_that_follow_from_each_other_are_unreliable() -> None:
    assert not judged([0.3, -0.3] * 20)
    assert not judged(([0.3] * 5 + [-0.3] * 5) * 4)


def test_what_is_accurate_may_follow_any_pattern() -> None:
    assert judged([0.04, -0.04] * 20)
    assert judged([0.0] * 40)


def test_a_bad_past_is_forgotten() -> None:
    assert not judged([1.0] * 20)
    assert judged([1.0] * 20 + [0.01] * 80)
