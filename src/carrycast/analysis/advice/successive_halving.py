"""Successive halving (Jamieson and Talwalkar, AISTATS 2016) with paired seeds.

All candidates run on a few seeds, the better half on more, until a few candidates have run on all seeds. In each round
all remaining candidates run on the same seeds, so on the same movement and the same events. After a few seeds, a mean
says little about a limit. So half of the candidates that continue are the best by their means, and half are the best
by optimistic means.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from carrycast.analysis.advice.objective import Objective
from carrycast.analysis.spark import confidence_interval, paired_differences

BUDGET = 0.4
"""The share of the runs of an exhaustive search that the search may take."""
FINALISTS = 3
"""The least number of candidates that run on all seeds: a recommendation has runners-up."""
SHARES = (1.0, 1 / 2, 1 / 4, 1 / 6)
"""The share of the candidates in each round."""
SEEDS = ((2, 3, 5), (1, 2, 4), (1, 2))
"""Seeds in the rounds before the last, which has all seeds; the first plan within the budget is used."""
DEVIATIONS = 2.0
"""An optimistic mean is better than the measured mean by this number of standard errors."""
NEAR = 0.01
"""If no candidate keeps the limits, those within this share of a limit of the best count as equally good. Limits are
written with two digits; a difference in the third does not justify a higher cost."""

Metrics: TypeAlias = Mapping[str, float | None]
MetricsBySeed: TypeAlias = Mapping[int, Mapping[int, Metrics]]
"""Metrics by candidate and seed."""
Measure: TypeAlias = Callable[[Sequence[int], Sequence[int]], MetricsBySeed]
"""Runs candidates on seeds and returns their metrics."""


@dataclass(frozen=True)
class HalvingRound:
    """The candidates of a round, and the seeds on which they have run."""

    candidates: tuple[int, ...]
    seeds: int


@dataclass(frozen=True)
class HalvingResult:
    """The finalists, the best first, and all measurements of the search."""

    order: list[int]
    rounds: list[HalvingRound]
    found: dict[int, dict[int, Metrics]]
    runs: int


def plan_rounds(candidates: int, runs: int) -> list[tuple[int, int]]:
    """Plan the number of candidates and seeds of each round."""
    plans = []
    for early in SEEDS:
        seeds = [count for count in early if count < runs] + [runs]
        shares = [*SHARES[: len(seeds) - 1], SHARES[-1]] if len(seeds) > 1 else [1.0]
        sizes = [max(min(candidates, FINALISTS), math.ceil(candidates * share)) for share in shares]
        plans.append(list(zip(sizes, seeds, strict=True)))
    fitting = [plan for plan in plans if count_runs(plan) <= BUDGET * candidates * runs]
    return fitting[0] if fitting else min(plans, key=count_runs)


def count_runs(rounds: Sequence[tuple[int, int]]) -> int:
    """The number of runs of some rounds: no candidate runs twice on a seed."""
    done = 0
    total = 0
    for candidates, seeds in rounds:
        total += candidates * (seeds - done)
        done = seeds
    return total


def successive_halving(candidates: int, seeds: Sequence[int], objective: Objective, measure: Measure) -> HalvingResult:
    """Search for the best candidates, which are identified by number."""
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
    """Reorder candidates if none keeps the limits.

    Those that do not miss the limits by clearly more than the first are ordered by the goal, so that chance does not
    decide in favor of a much higher cost.
    """
    first, *others = order
    missed = objective.excess(seed_means(found[first], objective.metrics))
    if not 0.0 < missed < math.inf:
        return list(order)
    equal = [first, *(one for one in others if not _misses_more(found[one], found[first], objective))]
    costs = {one: objective.cost(seed_means(found[one], [objective.goal])[objective.goal]) for one in equal}
    return [*sorted(equal, key=costs.__getitem__), *(one for one in others if one not in costs)]


def _misses_more(rows: Mapping[int, Metrics], other: Mapping[int, Metrics], objective: Objective) -> bool:
    """Whether a candidate misses the limits by more than `NEAR` beyond another, by paired seeds."""
    mine, theirs = ({seed: objective.excess(row) for seed, row in one.items()} for one in (rows, other))
    if not all(map(math.isfinite, [*mine.values(), *theirs.values()])):
        return True
    apart = confidence_interval(paired_differences(mine, theirs))
    least = apart.mean if apart.low is None else apart.low
    return least is None or least > NEAR


def rank(candidates: Sequence[int], found: MetricsBySeed, objective: Objective, hopeful: bool = False) -> list[int]:
    """Sort the best first: candidates that keep the limits by the goal, then the others by their violation.

    With `hopeful`, limits are checked against optimistic means. Equal candidates keep their order.
    """
    spread = _seed_deviations(candidates, found, objective) if hopeful else {}

    def key(candidate: int) -> tuple[float, float]:
        means = seed_means(found[candidate], objective.metrics)
        if hopeful:
            means = {**means, **_optimistic_means(means, spread, objective, len(found[candidate]))}
        return objective.excess(means), objective.cost(means.get(objective.goal))

    return sorted(candidates, key=key)


def seed_means(rows: Mapping[int, Metrics], metrics: Sequence[str]) -> dict[str, float | None]:
    """The mean of each metric over the seeds; None without any value."""
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
    """The means of limited metrics, moved to their better side by `DEVIATIONS` standard errors."""
    moved: dict[str, float] = {}
    for limit in objective.limits:
        mean = means.get(limit.metric)
        if mean is not None and limit.metric != objective.goal:
            slack = DEVIATIONS * spread[limit.metric] / math.sqrt(max(1, seeds))
            moved[limit.metric] = mean + slack if limit.at_least else mean - slack
    return moved


def _seed_deviations(candidates: Sequence[int], found: MetricsBySeed, objective: Objective) -> dict[str, float]:
    """The standard deviation between seeds of each limited metric: the median over candidates.

    One seed gives no deviation; then it is a tenth of the limit.
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
