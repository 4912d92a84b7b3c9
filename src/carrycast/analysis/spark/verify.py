"""Check whether the runs of a report are reproducible: a sample of them runs again, and fingerprints are compared.

A fingerprint covers every transmission, delivery and drop of a run. If the sample agrees, the tables of an earlier
version need not be computed again. The runs execute one after the other in this process, without Spark.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from carrycast.analysis.spark.plan import PlannedRun, execute_run, plan_runs
from carrycast.analysis.spark.reproduction import read_stored_experiments
from carrycast.analysis.spark.sweep import read_runs
from carrycast.errors import UserError
from carrycast.sim.engine import VERSION, run as simulate_run, version_of
from carrycast.trace import Level


class VerifiedRun(msgspec.Struct, frozen=True):
    """A run that was done again: `now` is its fingerprint, or None and the error that there is instead."""

    experiment: str
    point: str
    seed: int
    before: str
    now: str | None
    error: str | None = None

    @property
    def same(self) -> bool:
        """Whether everything happened as before."""
        return self.now == self.before


def sample_runs(out: Path, number: int, seed: int = 1) -> list[tuple[PlannedRun, str]]:
    """As many runs of a report's directory with their fingerprints, by chance; all if there are fewer."""
    before = {
        (row["experiment"], row["point"], row["seed"]): str(row["fingerprint"])
        for row in read_runs(out)
        if row["error"] is None
    }
    old = sorted({version_of(text) for text in before.values()} - {VERSION})
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
    # Runs on the same movement follow each other, so that it is computed once.
    chosen.sort(key=lambda run: (run.movement, run.seed, run.point))
    return [(run, before[run.experiment, run.point, run.seed]) for run in chosen]


def verify_runs(out: Path, runs: list[tuple[PlannedRun, str]]) -> Iterator[VerifiedRun]:
    """Do them again, one by one; nothing is written."""
    for planned, before in runs:
        record = execute_run(msgspec.structs.replace(planned, trace=Level.METRICS), out, simulate_run)
        now, error = (None if record.get(key) is None else str(record[key]) for key in ("fingerprint", "error"))
        yield VerifiedRun(planned.experiment, planned.point, planned.seed, before, now, error)
