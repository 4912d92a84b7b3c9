"""Residuals that are small or noise are forgiven; others are not."""

import numpy as np

from carrycast.core.parts.kalman import WARM_UP, ResidualMonitor

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
