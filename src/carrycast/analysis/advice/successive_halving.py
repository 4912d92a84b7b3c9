"""The search: all candidates run on a few seeds, the better half on more, until a few have run on all of them.

Successive halving with paired seeds: in each round everybody left has run on the same seeds, so on the same movement
and the same events. After a few seeds a mean says little about a limit, so half of those who go on are the best by
their means, and half the best by what their means may still become.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from carrycast.analysis.advice.objective import Objective
from carrycast.analysis.spark import confidence_interval, paired_differences

BUDGET = 0.4
"""Of the runs that all candidates on all seeds would take."""
FINALISTS = 3
"""How many run on all seeds at the least: a recommendation has runners-up."""
SHARES = (1.0, 1 / 2, 1 / 4, 1 / 6)
"""Of the candidates, in each round."""
SEEDS = ((2, 3, 5), (1, 2, 4), (1, 2))
"""In the rounds before the last, which has all; the first of these that keeps to the budget is taken."""
DEVIATIONS = 2.0
"""How many standard errors a mean may be wrong by, when it is asked what it may become."""
NEAR = 0.01
"""Of a limit: where nobody keeps it, missing it by so little more than the best does is as good. A limit is written in
two digits, and its third is no reason to spend a tenth more of something else."""

Metrics: TypeAlias = Mapping[str, float | None]
MetricsBySeed: TypeAlias = Mapping[int, Mapping[int, Metrics]]
"""By candidate and seed."""
Measure: TypeAlias = Callable[[Sequence[int], Sequence[int]], MetricsBySeed]
"""Candidates and seeds in, their metrics out."""


@dataclass(frozen=True)
class HalvingRound:
    """Who ran, on how many seeds."""

    candidates: tuple[int, ...]
    seeds: int


@dataclass(frozen=True)
class HalvingResult:
    """How it went: the finalists, the best first, and all that was measured on the way."""

    order: list[int]
    rounds: list[HalvingRound]
    found: dict[int, dict[int, Metrics]]
    runs: int


def plan_rounds(candidates: int, runs: int) -> list[tuple[int, int]]:
    """How many candidates run on how many seeds in each round."""
    plans = []
    for early in SEEDS:
        seeds = [count for count in early if count < runs] + [runs]
        shares = [*SHARES[: len(seeds) - 1], SHARES[-1]] if len(seeds) > 1 else [1.0]
        sizes = [max(min(candidates, FINALISTS), math.ceil(candidates * share)) for share in shares]
        plans.append(list(zip(sizes, seeds, strict=True)))
    fitting = [plan for plan in plans if count_runs(plan) <= BUDGET * candidates * runs]
    return fitting[0] if fitting else min(plans, key=count_runs)


def count_runs(rounds: Sequence[tuple[int, int]]) -> int:
    """The runs of some rounds: what has run on a seed does not run on it again."""
    done = 0
    total = 0
    for candidates, seeds in rounds:
        total += candidates * (seeds - done)
        done = seeds
    return total


def successive_halving(candidates: int, seeds: Sequence[int], objective: Objective, measure: Measure) -> HalvingResult:
    """Find the best candidates, by their numbers."""
    left = list(range(candidates))
    found: dict[int, dict[int, Metrics]] = {candidate: {} for candidate in left}
    rounds: list[HalvingRound] = []
    done = runs = 0
    for size, count in plan_rounds(candidates, len(seeds)):
        left = left if size >= len(left) else _select(left, found, objective, size)
        new = list(seeds[done:count])
        for candidate, rows in measure(left, new).items():
            found[candidate].update(rows)
        runs += len(left) * len(new)
        rounds.append(HalvingRound(tuple(left), count))
        left = rank(left, found, objective)
        done = count
    return HalvingResult(break_ties(left, found, objective), rounds, found, runs)


def break_ties(order: Sequence[int], found: MetricsBySeed, objective: Objective) -> list[int]:
    """The last word on an order. Where nobody keeps the limits, those who miss them by hardly more than the first, as
    far as the runs can tell, are ordered by the goal: chance does not decide what twice the cost is spent on."""
    first, *others = order
    missed = objective.excess(seed_means(found[first], objective.metrics))
    if not 0.0 < missed < math.inf:
        return list(order)
    equal = [first, *(one for one in others if not _misses_more(found[one], found[first], objective))]
    costs = {one: objective.cost(seed_means(found[one], [objective.goal])[objective.goal]) for one in equal}
    return [*sorted(equal, key=costs.__getitem__), *(one for one in others if one not in costs)]


def _misses_more(rows: Mapping[int, Metrics], other: Mapping[int, Metrics], objective: Objective) -> bool:
    """Whether the limits are missed by clearly more than another does, seed by seed, and by more than a little."""
    mine, theirs = ({seed: objective.excess(row) for seed, row in one.items()} for one in (rows, other))
    if not all(map(math.isfinite, [*mine.values(), *theirs.values()])):
        return True
    apart = confidence_interval(paired_differences(mine, theirs))
    least = apart.mean if apart.low is None else apart.low
    return least is None or least > NEAR


def rank(candidates: Sequence[int], found: MetricsBySeed, objective: Objective, hopeful: bool = False) -> list[int]:
    """The best first: who keeps the limits, by the goal; then the others, by how far they are from the limits.

    `hopeful`: a limit is kept if it is not clear that it is not. Who is equal keeps the order.
    """
    spread = _seed_deviations(candidates, found, objective) if hopeful else {}

    def key(candidate: int) -> tuple[float, float]:
        means = seed_means(found[candidate], objective.metrics)
        if hopeful:
            means = {**means, **_optimistic_means(means, spread, objective, len(found[candidate]))}
        return objective.excess(means), objective.cost(means.get(objective.goal))

    return sorted(candidates, key=key)


def seed_means(rows: Mapping[int, Metrics], metrics: Sequence[str]) -> dict[str, float | None]:
    """Over seeds; None where it exists at no seed."""
    means: dict[str, float | None] = {}
    for metric in metrics:
        known = [value for row in rows.values() if (value := row.get(metric)) is not None]
        means[metric] = math.fsum(known) / len(known) if known else None
    return means


def _select(candidates: Sequence[int], found: MetricsBySeed, objective: Objective, size: int) -> list[int]:
    certain = rank(candidates, found, objective)
    hopeful = rank(candidates, found, objective, hopeful=True)
    kept = dict.fromkeys(certain[: math.ceil(size / 2)])
    for candidate in [*hopeful, *certain]:
        if len(kept) < size:
            kept[candidate] = None
    return list(kept)


def _optimistic_means(
    means: Metrics, spread: Mapping[str, float], objective: Objective, seeds: int
) -> dict[str, float]:
    """The means on which limits are judged, moved to their better side by what they may be wrong."""
    moved: dict[str, float] = {}
    for limit in objective.limits:
        mean = means.get(limit.metric)
        if mean is not None and limit.metric != objective.goal:
            slack = DEVIATIONS * spread[limit.metric] / math.sqrt(max(1, seeds))
            moved[limit.metric] = mean + slack if limit.at_least else mean - slack
    return moved


def _seed_deviations(candidates: Sequence[int], found: MetricsBySeed, objective: Objective) -> dict[str, float]:
    """The standard deviation between seeds of each limited metric: the median over candidates.

    From one seed nothing is known; then a tenth of the limit is taken.
    """
    spreads: dict[str, float] = {}
    for limit in objective.limits:
        deviations = []
        for candidate in candidates:
            known = [value for row in found[candidate].values() if (value := row.get(limit.metric)) is not None]
            if len(known) > 1:
                mean = math.fsum(known) / len(known)
                deviations.append(math.sqrt(math.fsum((one - mean) ** 2 for one in known) / (len(known) - 1)))
        deviations.sort()
        spreads[limit.metric] = deviations[len(deviations) // 2] if deviations else abs(limit.value) / 10
    return spreads
