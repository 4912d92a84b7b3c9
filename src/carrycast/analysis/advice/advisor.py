"""The advisor: searches the candidates on one part of a fleet's time and evaluates the best on another part."""

import itertools
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
    LazySession,
    Point,
    confidence_interval,
    metric_bounds,
    metric_value,
    paired_differences,
    run_sweep,
    session,
)
from carrycast.core.protocol import find_protocol, protocol_names
from carrycast.errors import UserError, WorkError
from carrycast.sim.scenario import Scenario, apply_overrides, parse_protocols, protocol_label

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAME_AS_FLOODING = "processor_flooding"
"""Without processors in the scenario, this protocol is the same as flooding."""


@dataclass(frozen=True)
class Candidate:
    """A protocol with its settings."""

    label: str
    protocol: dict[str, object]


@dataclass(frozen=True)
class ExcludedProtocol:
    """A protocol that cannot run on this fleet, with the reason."""

    label: str
    reason: str


def find_candidates(scenario: Scenario, named: str | None = None) -> tuple[list[Candidate], list[ExcludedProtocol]]:
    """Find the protocols that can run, and those that cannot. Protocols that the user names must all run."""
    tables = parse_protocols(named, "--protocols") if named is not None else _all_protocols()
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
    """Return the scenario with a candidate as its protocol."""
    return apply_overrides(scenario, {"protocol": candidate.protocol}, candidate.label)


def _all_protocols() -> Sequence[dict[str, object]]:
    tables: list[dict[str, object]] = []
    for name in protocol_names():
        tables.append({"name": name})
        tables += [{"name": name, "variant": variant} for variant in find_protocol(name).variants]
    # Each value of the search grids alone: the search is over all protocols, and their products would be too many.
    grids = [(table, key, values) for table in tables for key, values in _grid_of(table).items()]
    return [*tables, *({**table, key: value} for table, key, values in grids for value in values)]


def _grid_of(table: Mapping[str, object]) -> Mapping[str, tuple[object, ...]]:
    """The search grid of a protocol, without the settings that its variant sets."""
    protocol = find_protocol(str(table["name"]))
    fixed = protocol.variants.get(str(table.get("variant")), {})
    return {key: values for key, values in protocol.search_grid.items() if key not in fixed}


def setting_combinations(table: Mapping[str, object]) -> list[dict[str, object]]:
    """The settings that fair tuning tries: those of a protocol's table first, then all others of its search grid."""
    grid = _grid_of(table)
    choices = [[None, *(value for value in values if value != table.get(key))] for key, values in grid.items()]
    found = []
    for chosen in itertools.product(*choices):
        changed = {key: value for key, value in zip(grid, chosen, strict=True) if value is not None}
        found.append({**table, **changed})
    return found


RUNNERS_UP = 3
MOST_RUNS = 1000


@dataclass(frozen=True)
class EvaluatedCandidate:
    """The results of a finalist on the held-out part."""

    candidate: Candidate
    means: Mapping[str, Interval]
    differences: Mapping[str, Interval]
    """Paired differences to the recommended candidate, by seed."""


@dataclass(frozen=True)
class Advice:
    """The recommendation and the measurements behind it."""

    scenario: Scenario
    objective: Objective
    parts: FleetParts
    candidates: list[Candidate]
    left_out: list[ExcludedProtocol]
    search: HalvingResult
    evaluated: list[EvaluatedCandidate]
    """The recommended candidate first, then its runners-up."""
    bound: DeliveryBound
    """The delivery bound of the held-out part."""
    training_bound: DeliveryBound
    exhaustive: int
    """The number of runs of an exhaustive search: all candidates on all seeds."""

    @property
    def chosen(self) -> EvaluatedCandidate:
        """The recommended candidate."""
        return self.evaluated[0]

    def keeps_limits(self, finalist: EvaluatedCandidate) -> bool | None:
        """Whether a finalist keeps the limits on the held-out part; None if the intervals leave it open."""
        verdicts = []
        for limit in self.objective.limits:
            found = finalist.means[limit.metric]
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
    """Search the candidates and evaluate the best. Finished runs are stored in `out` and not repeated."""
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

    search = successive_halving(len(candidates), seeds, objective, measure)
    finalists = search.order[: 1 + RUNNERS_UP]
    held = [HELD_OUT_SEEDS + place for place in range(runs)]
    say(f"{len(finalists)} finalists on {runs} seeds of the held-out part")
    found = measure_candidates(parts.held_out, "held-out", candidates, finalists, held, out, spark)
    evaluated = [evaluate_candidate(candidates[one], found[one], found[finalists[0]]) for one in finalists]
    return Advice(
        scenario,
        objective,
        parts,
        candidates,
        left_out,
        search,
        evaluated,
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
    spark: "SparkSession | LazySession",
) -> dict[int, dict[int, Metrics]]:
    """Run candidates on seeds and return their metrics, None for a failed run. A WorkError if all runs failed."""
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
    """Make one experiment for each candidate, so that rounds reuse its finished runs."""
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
    """Compute a candidate's means on the held-out seeds, and its paired differences to the best candidate."""
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
    """The confidence interval of a mean within its bounds. Equal runs show no spread, so they have no interval."""
    found = confidence_interval(values, bounds)
    return found if found.bounds is None else Interval(found.n, found.mean, None, None)


def training_means(advice: Advice, number: int) -> dict[str, float | None]:
    """The means of a candidate over its runs on the training part."""
    return seed_means(advice.search.found[number], METRICS)
