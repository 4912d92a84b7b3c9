"""Fair tuning: before protocols are compared, the main settings of each are tuned in the same network, on other seeds.

Each protocol declares its main settings and their values (`search_grid`). All combinations run in a search by
successive halving, as in `advise`. Training seeds are far from those of comparisons and of held-out parts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from carrycast.analysis.advice.advisor import MOST_RUNS, Candidate, measure_candidates, setting_combinations
from carrycast.analysis.advice.objective import Objective, parse_objective
from carrycast.analysis.advice.successive_halving import HalvingResult, MetricsBySeed, successive_halving
from carrycast.analysis.spark import Definition, Experiment, LazySession, Point, axis_labels
from carrycast.errors import UserError
from carrycast.sim.scenario import Scenario, apply_overrides, protocol_label

TUNING_SEEDS = 2_000_001
TUNING_OBJECTIVE = "delivery >= 1, least bytes"
"""As much delivery as possible; of combinations that deliver equally, the one with the fewest bytes."""
TUNED = " (tuned)"


@dataclass(frozen=True)
class TunedProtocol:
    """A protocol as it was given, and with the best settings that were found."""

    given: Candidate
    best: Candidate
    tried: int
    """The number of combinations of settings."""
    search: HalvingResult | None
    """None if there was nothing to tune."""

    @property
    def is_changed(self) -> bool:
        """Whether other settings than the given ones are best."""
        return self.best.protocol != self.given.protocol

    @property
    def sentence(self) -> str:
        """What the tuning found."""
        if self.search is None:
            return f"{self.given.label}: has no settings to tune"
        found = f"{self.best.label} is best" if self.is_changed else "the given settings are best"
        return f"{self.given.label}: {found} of {self.tried} combinations, in {self.search.runs} runs"


def tune_protocols(
    scenario: Scenario,
    protocols: Sequence[Mapping[str, object]],
    out: Path,
    runs: int,
    objective: Objective | None = None,
    master: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[TunedProtocol]:
    """Tune the main settings of each protocol on `runs` training seeds. Finished runs in `out` are not repeated."""
    if not 1 <= runs <= MOST_RUNS:
        raise UserError(f"--tune {runs}: from 1 to {MOST_RUNS} training seeds")
    goal = parse_objective(TUNING_OBJECTIVE) if objective is None else objective
    spark = LazySession(master)
    return [_tune_protocol(scenario, table, out, runs, goal, spark, say) for table in protocols]


def _tune_protocol(
    scenario: Scenario,
    table: Mapping[str, object],
    out: Path,
    runs: int,
    objective: Objective,
    spark: LazySession,
    say: Callable[[str], None],
) -> TunedProtocol:
    given = Candidate(protocol_label(table), dict(table))
    candidates = [given, *_runnable(scenario, setting_combinations(table)[1:])]
    if len(candidates) == 1:
        return TunedProtocol(given, given, 1, None)
    out.mkdir(parents=True, exist_ok=True)
    part = "".join(character if character.isalnum() else "-" for character in given.label).strip("-").lower()

    def measure(chosen: Sequence[int], more: Sequence[int]) -> MetricsBySeed:
        say(f"tune {given.label}: {len(chosen)} combinations on {len(more)} training seeds")
        return measure_candidates(scenario, part, candidates, chosen, more, out, spark)

    seeds = list(range(TUNING_SEEDS, TUNING_SEEDS + runs))
    found = successive_halving(len(candidates), seeds, objective, measure)
    return TunedProtocol(given, candidates[found.order[0]], len(candidates), found)


def add_tuned_rivals(
    scenario: Scenario,
    protocols: Sequence[dict[str, object]],
    out: Path,
    runs: int,
    master: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> list[dict[str, object]]:
    """The protocols of a comparison with a tuned row below each rival: all but the first, which is the reference."""
    rows = list(protocols[:1])
    for tuned in tune_protocols(scenario, protocols[1:], out, runs, master=master, say=say):
        say(tuned.sentence)
        rows.append(tuned.given.protocol)
        if tuned.best.protocol not in [*rows, *protocols]:
            rows.append(tuned.best.protocol)
    return rows


def _runnable(scenario: Scenario, tables: Sequence[dict[str, object]]) -> list[Candidate]:
    """The combinations that the settings and the scenario permit."""
    found = []
    for table in tables:
        label = protocol_label(table)
        try:
            apply_overrides(scenario, {"protocol": table}, label)
        except UserError:
            continue
        found.append(Candidate(label, table))
    return found


def tune_experiment(
    experiment: Experiment,
    out: Path,
    runs: int,
    reference: str = "drift",
    axis: str = "protocol",
    master: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Experiment:
    """Return an experiment in which each point of a rival has a second one with tuned settings, in its own network.

    Points of the reference protocol are not tuned. The labels of the others get the suffix `TUNED`.
    """
    if axis not in (one.name for one in experiment.definition.axes):
        raise UserError(f"{experiment.name}: has no axis {axis!r} whose protocols could be tuned")
    added: list[Point] = []
    for point in experiment.points:
        table = dict(point.scenario.protocol)
        if table["name"] == reference:
            continue
        # The name of a point is unique in its experiment, so runs of other networks are not mixed up.
        network = out / "".join(character if character.isalnum() else "-" for character in point.name)
        [tuned] = tune_protocols(point.scenario, [table], network, runs, master=master, say=say)
        if tuned.is_changed:
            added.append(_tuned_point(point, axis, tuned))
    return replace(experiment, definition=_add_labels(experiment, axis, added), points=[*experiment.points, *added])


def _tuned_point(point: Point, axis: str, tuned: TunedProtocol) -> Point:
    label = f"{point.labels[axis]}{TUNED}"
    return Point(
        name=f"{point.name}{TUNED}",
        labels={**point.labels, axis: label},
        values={**point.values, axis: tuned.best.protocol},
        scenario=apply_overrides(point.scenario, {"protocol": tuned.best.protocol}, label),
    )


def _add_labels(experiment: Experiment, axis: str, added: Sequence[Point]) -> Definition:
    """The definition with the labels of the tuned points. Different networks may have different best settings, so the
    value of such a label is its protocol with the settings of one of them."""
    values = {point.labels[axis]: point.values[axis] for point in added}
    axes = [
        msgspec.structs.replace(one, values=[*one.values, *values.values()], labels=[*axis_labels(one), *values])
        if one.name == axis
        else one
        for one in experiment.definition.axes
    ]
    return msgspec.structs.replace(experiment.definition, axes=axes)
