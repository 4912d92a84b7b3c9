"""The runs of a sweep, in the order and the tasks in which they cost least."""

import hashlib
import math
from collections.abc import Sequence
from itertools import groupby

import msgspec

from carrycast.analysis.spark.code import code_digest
from carrycast.analysis.spark.experiment import Experiment, Point
from carrycast.analysis.spark.records import json_text
from carrycast.core.folders import PROTOCOLS, ROUTERS
from carrycast.sim.scenario.inputs import input_digest
from carrycast.sim.scenario.scenario import Scenario
from carrycast.trace import Level

# A core gets this many tasks: enough that the last ones end together, few enough that starting them costs nothing.
TASKS_PER_CORE = 8
# On a cluster results come home by the task, and an executor that dies takes with it what it has not sent.
TASKS_PER_CORE_AWAY = 32
# A task's traces wait in its worker's memory until it ends.
TRACED_PER_TASK = 4


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the sweep's DataFrame: everything that a worker needs to know of a run, as text and numbers."""

    experiment: str
    point: str
    parameters: str
    scenario: str
    seed: int
    trace: str
    inputs: str
    """A digest of the files that the scenario names. A worker that finds others there does not run."""
    key: str
    movement: str


def planned_runs(experiment: Experiment) -> list[PlannedRun]:
    """A run for every point and seed."""
    return [run for number, point in enumerate(experiment.points) for run in _planned(experiment, number, point)]


def machines(scenario: Scenario) -> list[str]:
    """The packages of the protocol and the router that its nodes run."""
    if not scenario.protocol:
        return []
    plan = scenario.stack_plan()
    return [f"{PROTOCOLS}.{plan.protocol.name}"] + ([] if plan.router is None else [f"{ROUTERS}.{plan.router.name}"])


def tasks(runs: Sequence[PlannedRun], cores: int, away: bool = False) -> list[list[PlannedRun]]:
    """Runs on the same movement follow each other in one task, so that it is computed once.

    Unless there are so many of them that a core would wait for the others: then they are several groups. Those of a
    cluster (`away`) are smaller.
    """
    ordered = sorted(runs, key=lambda run: (run.movement, run.seed))
    wanted = cores * (TASKS_PER_CORE_AWAY if away else TASKS_PER_CORE)
    if away and any(run.trace != Level.METRICS for run in runs):
        wanted = max(wanted, math.ceil(len(runs) / TRACED_PER_TASK))
    most = max(1, len(ordered) // wanted)
    groups: list[list[PlannedRun]] = []
    for _, group in groupby(ordered, key=lambda run: (run.movement, run.seed)):
        alike = list(group)
        groups += [alike[first : first + most] for first in range(0, len(alike), most)]
    count = min(len(groups), wanted)
    # Neighboring groups, such as the seeds of one setting, cost about the same: deal them out.
    return [[run for group in groups[task::count] for run in group] for task in range(count)]


def _planned(experiment: Experiment, number: int, point: Point) -> list[PlannedRun]:
    # The name is the trace's too and has no influence on any draw.
    named = msgspec.structs.replace(point.scenario, name=f"{experiment.name}/{number}")
    scenario, trace, inputs = json_text(named), str(experiment.definition.trace), input_digest(named)
    parameters, movement = json_text(point.values), movement_key(point.scenario)
    # Where its files are decides nothing; what is in them does.
    placeless = json_text(msgspec.structs.replace(named, base="."))
    decisive = (code_digest(*machines(named)), experiment.name, point.name, placeless, trace, inputs)
    return [
        PlannedRun(
            experiment=experiment.name,
            point=point.name,
            parameters=parameters,
            scenario=scenario,
            seed=seed,
            trace=trace,
            inputs=inputs,
            key=_digest(*decisive, str(seed)),
            movement=movement,
        )
        for seed in experiment.seeds_at(point)
    ]


def movement_key(scenario: Scenario) -> str:
    """The same for scenarios in which nodes meet at the same times, given the seed."""
    relevant = (scenario.mobility, scenario.contacts, scenario.base, scenario.nodes, scenario.area_m)
    return _digest(json_text((relevant, scenario.duration_s, scenario.radio.range_m)))


def _digest(*parts: str) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(f"{len(part)}:".encode() + part.encode())
    return hashed.hexdigest()
