"""SQL views of the contents of folders: `runs` of sweeps; `trace`, `events`, `subscriptions` and `metrics` of
traces."""

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from carrycast.analysis.spark.cluster.executors import check_shared_paths
from carrycast.analysis.spark.output import RUNS_FILE
from carrycast.analysis.spark.spark_errors import query_error
from carrycast.analysis.spark.sweep import read_runs_table
from carrycast.analysis.spark.trace_metrics import folder_metrics, folds_for
from carrycast.analysis.spark.trace_tables import read_tables
from carrycast.errors import UserError, WorkError
from carrycast.trace import TABLES, Level, check_trace, find_traces, trace_level

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RUNS = "runs"
METRICS_VIEW = "metrics"
"""The view with the metrics of each traced run. It is computed only if a query names it, because that reads all
frames."""
# Only statements that change nothing are accepted.
_READ_ONLY = re.compile(r"\s*\(*\s*(select|with|from|values|table|describe|desc|show|explain)\b", re.IGNORECASE)


class FolderContents(NamedTuple):
    """The contents of some folders: files of runs, and folders of traces."""

    runs: list[str]
    traces: list[Path]

    @property
    def views(self) -> list[str]:
        """The names of the views over these contents."""
        return [*([RUNS] if self.runs else []), *((*TABLES, METRICS_VIEW) if self.traces else [])]


def find_contents(folders: Sequence[Path]) -> FolderContents:
    """Find runs and traces in folders; raise a UserError if one has neither, or has unreadable files."""
    found = FolderContents([], [])
    for folder in folders:
        has_runs, traces = (folder / RUNS_FILE).is_file(), _find_traces(folder)
        if not has_runs and not traces:
            raise UserError(f"{folder}: holds neither a {RUNS_FILE} nor a trace; give what sweep or --trace wrote")
        if has_runs:
            read_runs_table(folder)
            found.runs.append(str((folder / RUNS_FILE).resolve()))
        found.traces.extend(one for one in traces if one not in found.traces)
    return found


def register_views(spark: "SparkSession", contents: FolderContents, with_metrics: bool = False) -> None:
    """Register the views of some contents in a session. A view has the rows of all folders. The column `run` of the
    view `runs` is that of the traces beside it."""
    for name in (RUNS, *TABLES, METRICS_VIEW):
        spark.catalog.dropTempView(name)
    if contents.runs:
        check_shared_paths(spark, *map(Path, contents.runs))
        spark.read.parquet(*contents.runs).createOrReplaceTempView(RUNS)
    if contents.traces:
        for name, frame in zip(TABLES, read_tables(spark, contents.traces), strict=True):
            frame.createOrReplaceTempView(name)
        if with_metrics:
            full = all(trace_level(folder) == Level.FULL for folder in contents.traces)
            metrics = folder_metrics(spark, contents.traces, folds_for(contents.traces, not full))
            metrics.createOrReplaceTempView(METRICS_VIEW)


def run_query(folders: Sequence[Path], question: str, start: Callable[[], "SparkSession"]) -> "DataFrame":
    """Run a SQL query over the contents of folders. Queries that are not read-only are rejected before Spark starts."""
    from pyspark.errors import AnalysisException

    if not _READ_ONLY.match(question):
        raise UserError("a question begins with select or with, show, describe or explain; nothing is changed here")
    contents = find_contents(folders)
    # PySpark also writes some of its errors to standard error, a page each.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    spark = start()
    register_views(spark, contents, METRICS_VIEW in re.findall(r"\w+", question.lower()))
    try:
        return spark.sql(question)
    except AnalysisException as error:
        # Syntax errors are AnalysisExceptions too.
        raise UserError(f"{query_error(error)}; there are {', '.join(contents.views)}") from None


def fetch_rows(frame: "DataFrame", most: int) -> tuple[list[tuple[object, ...]], bool]:
    """Fetch the first rows of a result, and whether there are more."""
    from pyspark.errors import PySparkException

    try:
        table = frame.limit(most + 1).toArrow()
    except PySparkException as error:
        raise WorkError(f"the question failed: {query_error(error)}") from None
    # Two columns of a result may have the same name, so rows are not dictionaries.
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return rows[:most], len(rows) > most


def _find_traces(folder: Path) -> list[Path]:
    if not folder.exists():
        raise UserError(f"{folder}: there is no such file or folder")
    try:
        found = find_traces([folder])
    except UserError:
        return []
    for one in found:
        check_trace(one, Level.DELIVERIES)
    return found
