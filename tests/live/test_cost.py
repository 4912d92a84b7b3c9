"""Measured link costs are smoothed, and change only when the average differs by a factor."""

from itertools import pairwise

from carrycast.node.link.cost import CHANGE, LinkCosts


def test_the_setting_counts_until_something_was_measured_and_again_after_the_link_has_gone() -> None:
    costs = LinkCosts(0.001)
    assert costs.cost_s(5) == 0.001
    assert costs.observe(5, 0.01)
    assert (costs.cost_s(5), costs.cost_s(6)) == (0.01, 0.001)
    costs.forget(5)
    costs.forget(5)
    assert costs.cost_s(5) == 0.001


def test_times_that_vary_about_a_mean_change_nothing() -> None:
    costs = LinkCosts(0.001)
    costs.observe(5, 0.01)
    assert not any(costs.observe(5, time_s) for time_s in [0.005, 0.015, 0.02, 0.002, 0.013, 0.007] * 50)
    assert costs.cost_s(5) == 0.01


def test_a_lasting_change_is_told_in_steps_of_the_factor() -> None:
    costs = LinkCosts(0.01)
    told = [costs.cost_s(5) for _ in range(100) if costs.observe(5, 0.01) or costs.observe(5, 0.1)]
    assert told == sorted(told)
    assert all(after >= CHANGE * before for before, after in pairwise(told))
    assert 1 <= len(told) <= 6


def test_a_link_that_was_said_to_cost_nothing_can_be_measured() -> None:
    costs = LinkCosts(0.0)
    assert not costs.observe(5, 0.0)
    assert costs.observe(5, 0.001)
