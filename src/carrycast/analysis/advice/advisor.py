"""Which protocol serves a fleet best: candidates raced on one part of its time, the best judged on another."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.advice.bound import DeliveryBound, delivery_bound
from carrycast.analysis.advice.fleet import HELD_OUT_SEEDS, FleetParts, split_fleet
from carrycast.analysis.advice.objective import Objective
from carrycast.analysis.advice.successive_halving import (
    HalvingResult,
    Metrics,
    MetricsBySeed,
    seed_means,
    successive_halving,
)
from carrycast.analysis.spark import (
    METRICS,
    Axis,
    Bounds,
    Definition,
    Experiment,
    Interval,
    Point,
    confidence_interval,
    metric_bounds,
    metric_value,
    paired_differences,
    run_sweep,
    session,
)
from carrycast.core.protocol import protocol_named, protocol_names
from carrycast.errors import UserError, WorkError
from carrycast.sim.scenario import Scenario, apply_overrides, parse_protocol, parse_protocols, protocol_label

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Of settings that trade gain for cost, some values, cheap to dear. The defaults run anyway.
SETTINGS_TO_TRY = (
    "gossip:p=0.3",
    "gossip:p=0.5",
    "gossip:p=0.9",
    "spray_and_wait:copies=2",
    "spray_and_wait:copies=4",
    "spray_and_wait:copies=16",
    "spray_and_wait:copies=32",
    "semi_probabilistic:tau=0.2",
    "semi_probabilistic:tau=0.6",
    "adaptive:tau=0.2",
    "adaptive:tau=0.6",
    "prophet:threshold=0.02",
    # These need nodes in a role, or a router, which any node can be or have.
    "tree:role=everybody",
    "tree/recovering:role=everybody",
)
SAME_AS_FLOODING = "processor_flooding"
"""Where a scenario has no processors."""


@dataclass(frozen=True)
class Candidate:
    """A protocol with its settings, and the scenario with it."""

    label: str
    protocol: dict[str, object]


@dataclass(frozen=True)
class ExcludedProtocol:
    """A protocol that cannot run on this fleet, and why not."""

    label: str
    reason: str


def find_candidates(scenario: Scenario, named: str | None = None) -> tuple[list[Candidate], list[ExcludedProtocol]]:
    """Those that can run, and those that cannot; of those named, if any are, each must."""
    tables = parse_protocols(named, "--candidates") if named is not None else _all_protocols()
    found: list[Candidate] = []
    left_out: list[ExcludedProtocol] = []
    for table in tables:
        label = protocol_label(table)
        if named is None and table["name"] == SAME_AS_FLOODING and not scenario.processors:
            left_out.append(ExcludedProtocol(label, "is flooding where there are no processors"))
            continue
        try:
            apply_overrides(scenario, {"protocol": table}, label)
        except UserError as error:
            if named is not None:
                raise
            left_out.append(ExcludedProtocol(label, str(error).removeprefix(f"{label}: ")))
            continue
        found.append(Candidate(label, table))
    if not found:
        raise UserError("no protocol can run on this fleet: " + "; ".join(one.reason for one in left_out[:2]))
    return found, left_out


def apply_candidate(scenario: Scenario, candidate: Candidate) -> Scenario:
    """A scenario in which every node runs a candidate."""
    return apply_overrides(scenario, {"protocol": candidate.protocol}, candidate.label)


def _all_protocols() -> Sequence[dict[str, object]]:
    tables: list[dict[str, object]] = []
    for name in protocol_names():
        tables.append({"name": name})
        tables += [{"name": name, "variant": variant} for variant in protocol_named(name).variants]
    for text in SETTINGS_TO_TRY:
        table = parse_protocol(text)
        if table["name"] in protocol_names():
            tables.append(table)
    return tables


RUNNERS_UP = 3
MOST_RUNS = 1000


@dataclass(frozen=True)
class EvaluatedCandidate:
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
    parts: FleetParts
    candidates: list[Candidate]
    left_out: list[ExcludedProtocol]
    search: HalvingResult
    evaluated: list[EvaluatedCandidate]
    """The recommended one first, then its runners-up."""
    bound: DeliveryBound
    """Of the held-out part."""
    training_bound: DeliveryBound
    exhaustive: int
    """The runs that all candidates on all seeds would have taken."""

    @property
    def chosen(self) -> EvaluatedCandidate:
        """What is recommended."""
        return self.evaluated[0]

    def keeps_limits(self, judged: EvaluatedCandidate) -> bool | None:
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
    parts = split_fleet(scenario, train, out / "parts")
    candidates, left_out = find_candidates(parts.training, named)
    spark = session("carrycast", master)
    seeds = list(range(1, runs + 1))

    def measure(chosen: Sequence[int], more: Sequence[int]) -> MetricsBySeed:
        say(f"{len(chosen)} candidates on {len(more)} {'seed' if len(more) == 1 else 'seeds'} more")
        return measure_candidates(parts.training, "training", candidates, chosen, more, out, spark)

    raced = successive_halving(len(candidates), seeds, objective, measure)
    finalists = raced.order[: 1 + RUNNERS_UP]
    held = [HELD_OUT_SEEDS + place for place in range(runs)]
    say(f"{len(finalists)} finalists on {runs} seeds of the held-out part")
    found = measure_candidates(parts.held_out, "held-out", candidates, finalists, held, out, spark)
    judged = [evaluate_candidate(candidates[one], found[one], found[finalists[0]]) for one in finalists]
    return Advice(
        scenario,
        objective,
        parts,
        candidates,
        left_out,
        raced,
        judged,
        delivery_bound(parts.held_out, held),
        delivery_bound(parts.training, seeds),
        len(candidates) * runs,
    )


def measure_candidates(
    scenario: Scenario,
    part: str,
    candidates: Sequence[Candidate],
    chosen: Sequence[int],
    seeds: Sequence[int],
    out: Path,
    spark: "SparkSession",
) -> dict[int, dict[int, Metrics]]:
    """Run some candidates on some seeds; of a run that failed there are no metrics, and if all failed no advice."""
    experiments = [_make_experiment(scenario, part, number, candidates[number], seeds) for number in chosen]
    records = run_sweep(experiments, out / part, spark, quiet=True)
    numbers = {experiment.name: number for experiment, number in zip(experiments, chosen, strict=True)}
    found: dict[int, dict[int, Metrics]] = {number: {} for number in chosen}
    for record in records:
        row = {metric: None if record["error"] else metric_value(record, metric) for metric in METRICS}
        found[numbers[str(record["experiment"])]][int(str(record["seed"]))] = row
    if records and all(record["error"] for record in records):
        raise WorkError(f"no run went well; the first: {records[0]['error']}")
    return found


def _make_experiment(
    scenario: Scenario, part: str, number: int, candidate: Candidate, seeds: Sequence[int]
) -> Experiment:
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
        scenario=apply_candidate(scenario, candidate),
    )
    return Experiment(definition, [point], list(seeds))


def evaluate_candidate(
    candidate: Candidate, rows: Mapping[int, Metrics], best: Mapping[int, Metrics]
) -> EvaluatedCandidate:
    """What a candidate did on the held-out seeds, and its paired differences to the best one."""
    means = {
        metric: _mean_interval([row.get(metric) for row in rows.values()], metric_bounds(metric)) for metric in METRICS
    }
    differences = {
        metric: _mean_interval(
            paired_differences(
                {seed: row.get(metric) for seed, row in rows.items()},
                {seed: row.get(metric) for seed, row in best.items()},
            ),
            metric_bounds(metric, difference=True),
        )
        for metric in METRICS
    }
    return EvaluatedCandidate(candidate, means, differences)


def _mean_interval(values: Sequence[float | None], bounds: Bounds | None) -> Interval:
    """The interval of a mean within what is possible. Runs that are all alike show no spread: only a mean is told."""
    found = confidence_interval(values, bounds)
    return found if found.bounds is None else Interval(found.n, found.mean, None, None)


def training_means(advice: Advice, number: int) -> dict[str, float | None]:
    """What a candidate did while it was in the race."""
    return seed_means(advice.search.found[number], METRICS)
