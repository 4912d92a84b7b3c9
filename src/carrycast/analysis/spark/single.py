"""One planned run, done: its scenario read, its files looked at, its outcome as a row, its trace where it belongs."""

import gc
import shutil
import time
from functools import cache, lru_cache
from pathlib import Path
from typing import Protocol

from carrycast.analysis.spark.disk import FULL, cannot
from carrycast.analysis.spark.plan import PlannedRun
from carrycast.analysis.spark.records import Record, json_value, metric_columns
from carrycast.analysis.spark.results import TRACES_FOLDER
from carrycast.errors import WorkError
from carrycast.sim.engine.mishap import told
from carrycast.sim.engine.run import Run
from carrycast.sim.scenario.inputs import input_digest, input_files
from carrycast.sim.scenario.scenario import Scenario, scenario_from
from carrycast.trace import Level

# One less than the attempts that Spark gives a task: the last one passes over the run that ended all others.
DEADLY_ATTEMPTS = 3
# Of scenarios read: seeds of one point follow each other, or come back soon.
MOST_SCENARIOS = 256


class Simulate(Protocol):
    """What runs one row. A sweep over another world than the simulator brings its own."""

    def __call__(self, scenario: Scenario, seed: int, trace: Level, trace_directory: Path | None) -> Run:
        """One run."""


@cache
def settle() -> None:
    """Once in a worker's process: what it has imported stays, and need not be looked through again. Spark collects
    garbage after every task, which took 50 ms each time."""
    gc.collect()
    gc.freeze()


def done(planned: PlannedRun, out: Path, simulate: Simulate) -> Record:
    """The row of a run, which stands for an error if it raised one; a WorkError if there is no room for its trace."""
    level = Level(planned.trace)
    unfinished = out / TRACES_FOLDER / f".{planned.key}.tmp"
    began = time.process_time()
    try:
        scenario, has_files = _read(planned.scenario, planned.point)
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
        if isinstance(error, OSError) and error.errno in FULL:
            # The next run would find no room either.
            shutil.rmtree(unfinished, ignore_errors=True)
            raise WorkError(cannot(out, error)) from error
        return record_of(planned, error=told(error), cpu_s=time.process_time() - began)
    return record_of(
        planned,
        protocol=outcome.protocol,
        run=outcome.trace.run,
        fingerprint=outcome.fingerprint,
        cpu_s=time.process_time() - began,
        **metric_columns(outcome.metrics, outcome.series),
    )


@lru_cache(maxsize=MOST_SCENARIOS)
def _read(text: str, point: str) -> tuple[Scenario, bool]:
    """A scenario, and whether it names files."""
    scenario = scenario_of(text, point)
    return scenario, bool(input_files(scenario))


def scenario_of(text: str, point: str) -> Scenario:
    """The scenario of a planned run."""
    table = json_value(text)
    assert isinstance(table, dict)
    return scenario_from(table, point)


def _check_inputs(planned: PlannedRun, scenario: Scenario, has_files: bool) -> None:
    """A run whose files are not those that its key stands for would be kept under a wrong key."""
    if (input_digest(scenario) if has_files else "") != planned.inputs:
        raise WorkError("a file that the scenario names is not what it was when the sweep began; start it again")


def died(planned: PlannedRun) -> Record:
    """The row of a run that ended every process that tried it."""
    return record_of(planned, error=f"the worker died each of the {DEADLY_ATTEMPTS} times that this run was tried")


def record_of(planned: PlannedRun, **known: object) -> Record:
    """What is known of a run beforehand, and what else is said."""
    return {
        "experiment": planned.experiment,
        "point": planned.point,
        "parameters": planned.parameters,
        "seed": planned.seed,
        "key": planned.key,
        **known,
    }
