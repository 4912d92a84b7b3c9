"""The users' own metrics of the runs of a sweep: computed from its traces, put beside the others in runs.parquet."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.spark.experiment import Experiment
from carrycast.analysis.spark.output import TRACES_FOLDER
from carrycast.analysis.spark.own_metrics import values_of
from carrycast.analysis.spark.records import MORE, record_table
from carrycast.analysis.spark.sweep import read_runs, write_runs
from carrycast.analysis.spark.trace_tables import read_tables
from carrycast.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure(experiments: Sequence[Experiment], out: Path, spark: "SparkSession") -> None:
    """Compute them again, since a function may be another than it was. A run that failed has none."""
    asking = {experiment.name: experiment for experiment in experiments if experiment.own}
    if not asking:
        return
    records = read_runs(out)
    for name, experiment in asking.items():
        finished = {
            str(record["key"]): record for record in records if record["experiment"] == name and record["error"] is None
        }
        folders = [out / TRACES_FOLDER / key for key in finished]
        gone = [folder for folder in folders if not folder.is_dir()]
        if gone:
            raise UserError(f"{gone[0]}: the trace is gone, and {experiment.own[0].name} needs it; sweep again")
        if not folders:
            continue
        tables = read_tables(spark, folders)
        found = {own.name: values_of(own, *tables) for own in experiment.own}
        for record in finished.values():
            written = record[MORE]
            more = msgspec.json.decode(written, type=dict[str, object]) if isinstance(written, str) else {}
            more |= {name: values.get(str(record["run"])) for name, values in found.items()}
            record[MORE] = msgspec.json.encode(more).decode()
    write_runs(record_table(records), out)
