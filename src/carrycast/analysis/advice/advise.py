"""Which protocol serves a fleet best: candidates raced on one part of its time, the best judged on another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.advice.bound import Bound, bound_of
from carrycast.analysis.advice.candidates import Candidate, LeftOut, candidates_for, with_protocol
from carrycast.analysis.advice.fleet import HELD_OUT_SEEDS, Parts, cut
from carrycast.analysis.advice.objective import Objective
from carrycast.analysis.advice.race import Found, Metrics, Race, means_of, race
from carrycast.analysis.spark.definition import Axis, Definition
from carrycast.analysis.spark.experiment import Experiment, Point
from carrycast.analysis.spark.records import METRICS, metric_bounds, metric_value
from carrycast.analysis.spark.session import session
from carrycast.analysis.spark.statistics import Bounds, Interval, confidence_interval, paired_differences
from carrycast.analysis.spark.sweep import sweep
from carrycast.errors import UserError, WorkError
from carrycast.sim.scenario.scenario import Scenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNNERS_UP = 3
MOST_RUNS = 1000


@dataclass(frozen=True)
class Judged:
    """A finalist on the part that was held out."""

    candidate: Candidate
    means: Mapping[str, Interval]
    differences: Mapping[str, Interval]
    """To the one that is recommended, seed by seed."""


@dataclass(frozen=True)
class Advice:
    """What is recommended, and why."""

    scenario: Scenario
    objective: Objective
    parts: Parts
    candidates: list[Candidate]
    left_out: list[LeftOut]
    race: Race
    judged: list[Judged]
    """The recommended one first, then its runners-up."""
    bound: Bound
    """Of the held-out part."""
    training_bound: Bound
    exhaustive: int
    """The runs that all candidates on all seeds would have taken."""

    @property
    def chosen(self) -> Judged:
        """What is recommended."""
        return self.judged[0]

    def kept(self, judged: Judged) -> bool | None:
        """Whether a finalist keeps the limits on what was held out; None if the intervals do not say."""
        verdicts = []
        for limit in self.objective.limits:
            found = judged.means[limit.metric]
            if found.mean is None:
                return False
            low = found.mean if found.low is None else found.low
            high = found.mean if found.high is None else found.high
            worst, best = (low, high) if limit.at_least else (high, low)
            verdicts.append(True if not limit.excess(worst) else False if limit.excess(best) else None)
        return False if False in verdicts else None if None in verdicts else True


def advise(
    scenario: Scenario,
    objective: Objective,
    out: Path,
    runs: int = 10,
    train: float = 0.6,
    named: str | None = None,
    master: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Advice:
    """Race the candidates and judge the best. What has run is kept in `out` and does not run again."""
    if not 2 <= runs <= MOST_RUNS:
        raise UserError(f"--runs {runs}: from 2 to {MOST_RUNS}; one run says nothing of how far it may be wrong")
    out.mkdir(parents=True, exist_ok=True)
    parts = cut(scenario, train, out / "parts")
    candidates, left_out = candidates_for(parts.training, named)
    spark = session("carrycast", master)
    seeds = list(range(1, runs + 1))

    def measure(chosen: Sequence[int], more: Sequence[int]) -> Found:
        say(f"{len(chosen)} candidates on {len(more)} {'seed' if len(more) == 1 else 'seeds'} more")
        return measured(parts.training, "training", candidates, chosen, more, out, spark)

    raced = race(len(candidates), seeds, objective, measure)
    finalists = raced.order[: 1 + RUNNERS_UP]
    held = [HELD_OUT_SEEDS + place for place in range(runs)]
    say(f"{len(finalists)} finalists on {runs} seeds of the held-out part")
    found = measured(parts.held_out, "held-out", candidates, finalists, held, out, spark)
    judged = [judge_candidate(candidates[one], found[one], found[finalists[0]]) for one in finalists]
    return Advice(
        scenario,
        objective,
        parts,
        candidates,
        left_out,
        raced,
        judged,
        bound_of(parts.held_out, held),
        bound_of(parts.training, seeds),
        len(candidates) * runs,
    )


def measured(
    scenario: Scenario,
    part: str,
    candidates: Sequence[Candidate],
    chosen: Sequence[int],
    seeds: Sequence[int],
    out: Path,
    spark: "SparkSession",
) -> dict[int, dict[int, Metrics]]:
    """Run some candidates on some seeds; of a run that failed there are no metrics, and if all failed no advice."""
    experiments = [_experiment(scenario, part, number, candidates[number], seeds) for number in chosen]
    records = sweep(experiments, out / part, spark, quiet=True)
    numbers = {experiment.name: number for experiment, number in zip(experiments, chosen, strict=True)}
    found: dict[int, dict[int, Metrics]] = {number: {} for number in chosen}
    for record in records:
        row = {metric: None if record["error"] else metric_value(record, metric) for metric in METRICS}
        found[numbers[str(record["experiment"])]][int(str(record["seed"]))] = row
    if records and all(record["error"] for record in records):
        raise WorkError(f"no run went well; the first: {records[0]['error']}")
    return found


def _experiment(scenario: Scenario, part: str, number: int, candidate: Candidate, seeds: Sequence[int]) -> Experiment:
    """One for each candidate, so that its runs are the same runs in every round."""
    definition = Definition(
        name=f"{part}-{number}",
        title=candidate.label,
        scenario=msgspec.to_builtins(scenario),
        axes=[Axis(name="protocol", values=[candidate.protocol], labels=[candidate.label])],
        seeds=list(seeds),
    )
    point = Point(
        name=candidate.label,
        labels={"protocol": candidate.label},
        values={"protocol": candidate.protocol},
        scenario=with_protocol(scenario, candidate),
    )
    return Experiment(definition, [point], list(seeds))


def judge_candidate(candidate: Candidate, rows: Mapping[int, Metrics], best: Mapping[int, Metrics]) -> Judged:
    """What a candidate did on the held-out seeds, and its paired differences to the best one."""
    means = {metric: _interval([row.get(metric) for row in rows.values()], metric_bounds(metric)) for metric in METRICS}
    differences = {
        metric: _interval(
            paired_differences(
                {seed: row.get(metric) for seed, row in rows.items()},
                {seed: row.get(metric) for seed, row in best.items()},
            ),
            metric_bounds(metric, difference=True),
        )
        for metric in METRICS
    }
    return Judged(candidate, means, differences)


def _interval(values: Sequence[float | None], bounds: Bounds | None) -> Interval:
    """The interval of a mean within what is possible. Runs that are all alike show no spread: only a mean is told."""
    found = confidence_interval(values, bounds)
    return found if found.bounds is None else Interval(found.n, found.mean, None, None)


def training_means(advice: Advice, number: int) -> dict[str, float | None]:
    """What a candidate did while it was in the race."""
    return means_of(advice.race.found[number], METRICS)
