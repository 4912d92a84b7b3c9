"""Check whether the runs of a report can be reproduced: repeat a sample of them and compare fingerprints.

A fingerprint covers every transmission, delivery and drop of a run. If the sample agrees, the tables of an earlier
version need not be computed again. The runs execute one after the other in this process, without Spark, each with the
other engine of the simulator where that covers it.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from carrycast.analysis.spark.plan import PlannedRun, execute_run, plan_runs
from carrycast.analysis.spark.reproduction import read_stored_experiments
from carrycast.analysis.spark.sweep import read_runs
from carrycast.errors import UserError
from carrycast.sim.engine import AUTO, NATIVE, PYTHON, VERSION, run as simulate_run, version_of
from carrycast.trace import Level


class VerifiedRun(msgspec.Struct, frozen=True):
    """A repeated run. `now` is its new fingerprint; if the run failed, `now` is None and `error` says why."""

    experiment: str
    point: str
    seed: int
    before: str
    now: str | None
    error: str | None = None
    engine: str | None = None
    """The engine of the new run."""

    @property
    def same(self) -> bool:
        """Whether the fingerprints are equal."""
        return self.now == self.before


class StoredRun(NamedTuple):
    """A run of a report: its fingerprint, and the engine that computed it."""

    planned: PlannedRun
    fingerprint: str
    engine: str


def sample_runs(out: Path, number: int, seed: int) -> list[StoredRun]:
    """Draw `number` successful runs of a report at random; all if there are fewer."""
    before = {
        (row["experiment"], row["point"], row["seed"]): (str(row["fingerprint"]), str(row["engine"] or PYTHON))
        for row in read_runs(out)
        if row["error"] is None
    }
    old = sorted({version_of(text) for text, _ in before.values()} - {VERSION})
    if old:
        raise UserError(
            f"{out}: its fingerprints have version {old[0]}, and this carrycast computes version {VERSION}: "
            "run the experiment again"
        )
    planned = [run for experiment in read_stored_experiments(out) for run in plan_runs(experiment)]
    known = [run for run in planned if (run.experiment, run.point, run.seed) in before]
    if not known:
        raise UserError(f"{out}: has no runs that succeeded")
    chosen = Random(seed).sample(known, min(number, len(known)))
    # Runs with the same movement follow each other, so that the movement is computed once.
    chosen.sort(key=lambda run: (run.movement, run.seed, run.point))
    return [StoredRun(run, *before[run.experiment, run.point, run.seed]) for run in chosen]


def verify_runs(out: Path, runs: list[StoredRun]) -> Iterator[VerifiedRun]:
    """Repeat the runs one by one, without writing anything, each with the other engine if that covers it."""
    for planned, before, engine in runs:
        other = PYTHON if engine == NATIVE else AUTO
        record = execute_run(
            msgspec.structs.replace(planned, trace=Level.METRICS), out, partial(simulate_run, engine=other)
        )
        now, error, used = (
            None if record.get(key) is None else str(record[key]) for key in ("fingerprint", "error", "engine")
        )
        yield VerifiedRun(planned.experiment, planned.point, planned.seed, before, now, error, used)
