"""Successive halving on known metrics: which candidate it finds, and in how few runs."""

import math
from collections.abc import Sequence
from random import Random

import pytest

from carrycast.analysis.advice.objective import parse_objective
from carrycast.analysis.advice.successive_halving import (
    BUDGET,
    Measure,
    MetricsBySeed,
    break_ties,
    count_runs,
    plan_rounds,
    rank,
    successive_halving,
)

OBJECTIVE = parse_objective("delivery >= 0.9, least bytes")


def make_measure(
    truth: Sequence[tuple[float, float]], noise: float = 0.0, calls: list[tuple[int, ...]] | None = None
) -> Measure:
    """Candidates with given delivery and bytes; most of a seed's noise is common to all."""

    def measure(candidates: Sequence[int], seeds: Sequence[int]) -> MetricsBySeed:
        if calls is not None:
            calls.extend((candidate, seed) for candidate in candidates for seed in seeds)
        found: dict[int, dict[int, dict[str, float | None]]] = {}
        for candidate in candidates:
            delivery, size = truth[candidate]
            for seed in seeds:
                rng = Random(seed)
                common, own = rng.gauss(0, noise), Random(seed * 1000 + candidate).gauss(0, noise / 4)
                row = {"delivery_ratio": min(1.0, delivery + common + own), "total_bytes": size * (1 + common + own)}
                found.setdefault(candidate, {})[seed] = dict(row)
        return found

    return measure


@pytest.mark.parametrize("candidates", [1, 2, 3, 5, 12, 27, 60])
@pytest.mark.parametrize("runs", [1, 2, 3, 6, 8, 10, 20])
def test_rounds_get_smaller_and_end_with_all_seeds(candidates: int, runs: int) -> None:
    rounds = plan_rounds(candidates, runs)
    assert rounds[0][0] == candidates
    assert rounds[-1][1] == runs
    assert [size for size, _ in rounds] == sorted((size for size, _ in rounds), reverse=True)
    assert [seeds for _, seeds in rounds] == sorted({seeds for _, seeds in rounds})
    assert all(size >= min(3, candidates) for size, _ in rounds)
    if candidates >= 12 and runs >= 8:
        assert count_runs(rounds) <= BUDGET * candidates * runs


def test_the_cheapest_that_keeps_the_limit_is_found_without_running_all() -> None:
    truth = [(0.5 + 0.02 * place, 1000.0 + 100 * place) for place in range(24)]
    calls: list[tuple[int, ...]] = []
    found = successive_halving(24, list(range(1, 11)), OBJECTIVE, make_measure(truth, calls=calls))
    assert found.order[0] == 20, "0.5 + 0.02 * 20 = 0.9"
    assert found.runs == len(calls) == len(set(calls)) == count_runs(plan_rounds(24, 10))
    assert found.runs <= BUDGET * 240


def test_with_nothing_that_keeps_the_limit_the_nearest_is_first() -> None:
    found = successive_halving(
        6, [1, 2, 3], OBJECTIVE, make_measure([(0.1 * place, 1000.0 - place) for place in range(6)])
    )
    assert found.order[0] == 5


def test_who_has_no_value_at_all_comes_last() -> None:
    found: MetricsBySeed = {
        0: {1: {"delivery_ratio": None, "total_bytes": None}},
        1: {1: {"delivery_ratio": 0.2, "total_bytes": 5.0}},
        2: {},
    }
    assert rank([0, 1, 2], found, OBJECTIVE) == [1, 0, 2]


def test_who_may_still_keep_the_limit_stays_in_the_race() -> None:
    """One candidate is by far the cheapest, keeps the limit, and is unlucky on the first two seeds."""
    truth = [(0.905, 100.0)] + [(0.97, 1000.0 + place) for place in range(11)]

    def measure(candidates: Sequence[int], seeds: Sequence[int]) -> MetricsBySeed:
        found: dict[int, dict[int, dict[str, float | None]]] = {}
        for candidate in candidates:
            for seed in seeds:
                delivery = truth[candidate][0] + (-0.02 if seed <= 2 else 0.01) + 0.02 * (seed % 2 - 0.5)
                found.setdefault(candidate, {})[seed] = {"delivery_ratio": delivery, "total_bytes": truth[candidate][1]}
        return found

    assert successive_halving(12, list(range(1, 11)), OBJECTIVE, measure).order[0] == 0


def test_under_noise_it_finds_the_winner_of_all_runs_or_a_near_tie_nearly_always() -> None:
    hits = 0
    for case in range(60):
        rng = Random(case)
        truth = [(rng.uniform(0.5, 1.0), rng.uniform(1e5, 2e6)) for _ in range(27)]
        measure = make_measure(truth, noise=0.02)
        seeds = [case * 100 + place for place in range(10)]
        everything = measure(range(27), seeds)
        best = rank(range(27), everything, OBJECTIVE)[0]
        pick = successive_halving(27, seeds, OBJECTIVE, measure).order[0]
        hits += pick == best or math.isclose(truth[pick][1], truth[best][1], rel_tol=0.02)
    assert hits >= 57


def test_where_nobody_keeps_the_limit_chance_does_not_decide_on_the_cost() -> None:
    """The first delivers more by chance alone and costs twice as much; the last is clearly worse, and cheap."""
    noise = (0.02, -0.018, 0.01, -0.012, 0.015, -0.004)
    found: MetricsBySeed = {
        0: {seed: {"delivery_ratio": 0.5 + one, "total_bytes": 2000.0} for seed, one in enumerate(noise)},
        1: {seed: {"delivery_ratio": 0.5, "total_bytes": 1000.0} for seed in range(len(noise))},
        2: {seed: {"delivery_ratio": 0.4 + one, "total_bytes": 10.0} for seed, one in enumerate(noise)},
    }
    order = rank([0, 1, 2], found, OBJECTIVE)
    assert order == [0, 1, 2]
    assert break_ties(order, found, OBJECTIVE) == [1, 0, 2]
    # A candidate that keeps the limit is first, whatever it costs.
    assert break_ties(order, found, parse_objective("delivery >= 0.5, least bytes")) == [0, 1, 2]
    # Candidates without a metric keep their order.
    nothing: MetricsBySeed = {0: {1: {}}, 1: {1: {}}}
    assert break_ties([0, 1], nothing, OBJECTIVE) == [0, 1]


@pytest.mark.parametrize(("behind", "order"), [(0.004, [1, 0]), (0.02, [0, 1])])
def test_a_limit_that_nobody_keeps_is_not_counted_to_its_third_digit(behind: float, order: list[int]) -> None:
    rows = {seed: {"delivery_ratio": 0.3 + 0.001 * seed, "total_bytes": 110.0} for seed in range(5)}
    cheaper = {seed: {"delivery_ratio": 0.3 + 0.001 * seed - behind, "total_bytes": 100.0 + seed} for seed in rows}
    found: MetricsBySeed = {0: rows, 1: cheaper}
    assert break_ties(rank([0, 1], found, OBJECTIVE), found, OBJECTIVE) == order
