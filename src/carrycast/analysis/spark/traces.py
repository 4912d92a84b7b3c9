"""Traces judged, on Spark."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.own_metrics import OwnMetric, values_of
from carrycast.analysis.spark.records import METRICS
from carrycast.analysis.spark.session import session
from carrycast.analysis.spark.trace_judge import folder_metrics
from carrycast.analysis.spark.trace_metrics import OF_DELIVERIES, read_tables
from carrycast.analysis.telemetry.minutes import deliveries_by_minute, drops_by_minute, load_by_minute
from carrycast.analysis.telemetry.picture import Minute, put_together
from carrycast.trace import Level
from carrycast.trace.files import check_trace, find_traces

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def judged(
    paths: Sequence[Path], deliveries: bool = False, master: str | None = None, own: Sequence[OwnMetric] = ()
) -> dict[str, dict[str, object]]:
    """The metrics of each run in some traces, by its name. The traces of the nodes of one network are one run.

    `deliveries` is content with what deliveries tell, of traces that keep no more too; `own` are metrics besides.
    """
    folders = _found(paths, deliveries)
    metrics = OF_DELIVERIES if deliveries else METRICS
    spark = session("carrycast", master)
    rows = sorted(folder_metrics(spark, folders).collect(), key=lambda row: str(row["run"]))
    found: dict[str, dict[str, object]] = {row["run"]: {metric: row[metric] for metric in metrics} for row in rows}
    for one in own:
        values = values_of(one, *read_tables(spark, folders))
        for run, known in found.items():
            known[one.name] = values.get(run)
    return found


def judged_by_minute(paths: Sequence[Path], deliveries: bool = False, master: str | None = None) -> list[Minute]:
    """Each minute of each run: what became of the events published in it, and frames and drops that happened in it.

    `deliveries` is content with the former.
    """
    tables = read_tables(session("carrycast", master), _found(paths, deliveries))
    published = _rows(deliveries_by_minute(*tables))
    if deliveries:
        return put_together([], published, [])
    return put_together(_rows(load_by_minute(tables[0])), published, _rows(drops_by_minute(tables[0])))


def _rows(frame: "DataFrame") -> list[Minute]:
    return [row.asDict() for row in frame.collect()]


def _found(paths: Sequence[Path], deliveries: bool) -> list[Path]:
    folders = find_traces(paths)
    for folder in folders:
        check_trace(folder, Level.DELIVERIES if deliveries else Level.FULL)
    return folders
