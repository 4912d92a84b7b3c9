"""Plan the runs of a sweep, partition them into tasks, and execute one run."""

import gc
import hashlib
import math
import shutil
import time
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import groupby
from pathlib import Path
from typing import Protocol

import msgspec

from carrycast.analysis.spark.code import code_digest
from carrycast.analysis.spark.experiment import Experiment, Point
from carrycast.analysis.spark.journal import TaskJournal
from carrycast.analysis.spark.output import DISK_FULL, TRACES_FOLDER, write_error
from carrycast.analysis.spark.records import Record, json_text, json_value, metric_columns
from carrycast.errors import WorkError
from carrycast.sim.engine import RunResult, describe_error
from carrycast.sim.scenario import Scenario, input_digest, input_files, parse_scenario, used_plugins
from carrycast.trace import Level

# Tasks per core: enough for cores to finish at about the same time, few enough for a negligible cost of starting.
TASKS_PER_CORE = 8
# On a cluster, results reach the driver when a task ends; an executor that is lost loses unsent results.
TASKS_PER_CORE_REMOTE = 32
# The traces of a task stay in memory until the task ends.
TRACED_PER_TASK = 4


class PlannedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the sweep's DataFrame: everything that an executor needs for a run, as text and numbers."""

    experiment: str
    point: str
    parameters: str
    scenario: str
    seed: int
    trace: str
    inputs: str
    """A digest of the files that the scenario names. The run fails if the executor finds other contents."""
    key: str
    movement: str


def plan_runs(experiment: Experiment) -> list[PlannedRun]:
    """Return a planned run for every point and seed."""
    return [run for number, point in enumerate(experiment.points) for run in _plan_point(experiment, number, point)]


def plugin_modules(scenario: Scenario) -> list[str]:
    """Return the modules of the plug-ins that a run uses."""
    return [plugin.__module__ for plugin in used_plugins(scenario)]


def partition_runs(runs: Sequence[PlannedRun], cores: int, remote: bool = False) -> list[list[PlannedRun]]:
    """Partition runs into tasks. Runs with the same movement are in one task, so that it is computed once.

    If they are too many for one task, they form several groups. Tasks of a cluster (`remote`) are smaller.
    """
    ordered = sorted(runs, key=lambda run: (run.movement, run.seed))
    wanted = cores * (TASKS_PER_CORE_REMOTE if remote else TASKS_PER_CORE)
    if remote and any(run.trace != Level.METRICS for run in runs):
        wanted = max(wanted, math.ceil(len(runs) / TRACED_PER_TASK))
    most = max(1, len(ordered) // wanted)
    groups: list[list[PlannedRun]] = []
    for _, group in groupby(ordered, key=lambda run: (run.movement, run.seed)):
        alike = list(group)
        groups += [alike[first : first + most] for first in range(0, len(alike), most)]
    count = min(len(groups), wanted)
    # Neighboring groups, such as the seeds of one setting, cost about the same: distribute them round robin.
    return [[run for group in groups[task::count] for run in group] for task in range(count)]


def _plan_point(experiment: Experiment, number: int, point: Point) -> list[PlannedRun]:
    # The name also names the trace. It does not affect any random stream.
    named = msgspec.structs.replace(point.scenario, name=f"{experiment.name}/{number}")
    scenario, trace, inputs = json_text(named), str(experiment.definition.trace), input_digest(named)
    parameters, movement = json_text(point.values), movement_key(point.scenario)
    # The location of the input files is not part of the key; `inputs` covers their contents.
    placeless = json_text(msgspec.structs.replace(named, base="."))
    decisive = (code_digest(*plugin_modules(named)), experiment.name, point.name, placeless, trace, inputs)
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
    """Return a digest that is equal for scenarios with the same movement and contacts at equal seeds."""
    relevant = (scenario.mobility, scenario.contacts, scenario.base, scenario.nodes, scenario.area_m)
    return _digest(json_text((relevant, scenario.duration_s, scenario.radio_model().range_m)))


def _digest(*parts: str) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(f"{len(part)}:".encode() + part.encode())
    return hashed.hexdigest()


# One less than Spark's attempts per task: the last attempt skips the run that crashed the others.
MAX_WORKER_CRASHES = 3
# Size of the cache of parsed scenarios. The seeds of one point follow each other closely.
MOST_SCENARIOS = 256


class Simulate(Protocol):
    """The function that executes one run. A sweep over another environment than the simulator passes its own."""

    def __call__(self, scenario: Scenario, seed: int, trace: Level, trace_directory: Path | None) -> RunResult:
        """Execute one run."""


@cache
def freeze_imports() -> None:
    """Exclude imported modules from garbage collection, once per worker process. PySpark collects garbage after every
    task, which takes 50 ms with them."""
    gc.collect()
    gc.freeze()


def execute_run(planned: PlannedRun, out: Path, simulate: Simulate) -> Record:
    """Execute a run and return its record, which holds the error of a failed run; raise a WorkError on a full disk."""
    level = Level(planned.trace)
    unfinished = out / TRACES_FOLDER / f".{planned.key}.tmp"
    began = time.process_time()
    try:
        scenario, has_files = _parse_cached(planned.scenario, planned.point)
        _check_inputs(planned, scenario, has_files)
        if level is Level.METRICS:
            outcome = simulate(scenario, planned.seed, level, None)
        else:
            shutil.rmtree(unfinished, ignore_errors=True)
            outcome = simulate(scenario, planned.seed, level, unfinished)
            outcome.trace.save(unfinished)
            shutil.rmtree(out / TRACES_FOLDER / planned.key, ignore_errors=True)
            unfinished.rename(out / TRACES_FOLDER / planned.key)
        _check_inputs(planned, scenario, has_files)
    except Exception as error:
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            # Further runs would fail as well.
            shutil.rmtree(unfinished, ignore_errors=True)
            raise WorkError(write_error(out, error)) from error
        return make_record(planned, error=describe_error(error), cpu_s=time.process_time() - began)
    return make_record(
        planned,
        protocol=outcome.protocol,
        run=outcome.trace.run,
        fingerprint=outcome.fingerprint,
        engine=outcome.engine,
        cpu_s=time.process_time() - began,
        **metric_columns(outcome.metrics, outcome.series),
    )


@lru_cache(maxsize=MOST_SCENARIOS)
def _parse_cached(text: str, point: str) -> tuple[Scenario, bool]:
    """Return a parsed scenario, and whether it names files."""
    scenario = parse_planned_scenario(text, point)
    return scenario, bool(input_files(scenario))


def parse_planned_scenario(text: str, point: str) -> Scenario:
    """Parse the scenario of a planned run."""
    table = json_value(text)
    assert isinstance(table, dict)
    return parse_scenario(table, point)


def _check_inputs(planned: PlannedRun, scenario: Scenario, has_files: bool) -> None:
    """Raise a WorkError if the input files have changed: the result would be stored under a wrong key."""
    if (input_digest(scenario) if has_files else "") != planned.inputs:
        raise WorkError("a file that the scenario names is not what it was when the sweep began; start it again")


def execute_once(planned: PlannedRun, journal: TaskJournal, out: Path, simulate: Simulate) -> Record:
    """Execute a run unless the task's journal has it already, or it has crashed too many workers."""
    if planned.key in journal.done:
        return journal.done[planned.key]
    if journal.crashes.get(planned.key, 0) >= MAX_WORKER_CRASHES:
        record = lost_worker_record(planned)
    else:
        journal.start(planned.key)
        try:
            record = execute_run(planned, out, simulate)
        except WorkError:
            journal.give_up(planned.key)
            raise
    journal.add(record)
    return record


def lost_worker_record(planned: PlannedRun) -> Record:
    """Return the record of a run that crashed every worker that tried it."""
    return make_record(planned, error=f"the worker died each of the {MAX_WORKER_CRASHES} times that this run was tried")


def make_record(planned: PlannedRun, **known: object) -> Record:
    """Return the record of a run: the columns of its plan, and the given ones."""
    return {
        "experiment": planned.experiment,
        "point": planned.point,
        "parameters": planned.parameters,
        "seed": planned.seed,
        "key": planned.key,
        **known,
    }
