"""Traces judged, on Spark."""

from collections.abc import Sequence
from pathlib import Path

from driftcast.pipeline.records import METRICS
from driftcast.pipeline.session import session
from driftcast.pipeline.trace_judge import folder_metrics
from driftcast.pipeline.trace_metrics import OF_DELIVERIES
from driftcast.trace import Level
from driftcast.trace.files import check_trace, find_traces


def judged(paths: Sequence[Path], deliveries: bool = False, master: str | None = None) -> dict[str, dict[str, object]]:
    """The metrics of each run in some traces, by its name. The traces of the nodes of one network are one run.

    `deliveries` is content with what deliveries tell, of traces that keep no more too.
    """
    folders = find_traces(paths)
    for folder in folders:
        check_trace(folder, Level.DELIVERIES if deliveries else Level.FULL)
    metrics = OF_DELIVERIES if deliveries else METRICS
    rows = folder_metrics(session("driftcast", master), folders).collect()
    return {row["run"]: {metric: row[metric] for metric in metrics} for row in sorted(rows, key=lambda row: row["run"])}
