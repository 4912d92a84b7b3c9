"""The three tables of traces, as Spark reads them."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.cluster.executors import check_shared_paths
from carrycast.trace import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = ("time_s", "part", "place")
"""Rows of one node stand in the files of a trace in the order in which they happened; equal times are told apart by it.
Numbers all: a file by its number, since a path in every row costs more than the row."""

_SPARK_TYPES = {"string": "string", "double": "double", "int64": "bigint", "int32": "int", "bool": "boolean"}


def read_tables(spark: "SparkSession", folders: list[Path]) -> tuple["DataFrame", "DataFrame", "DataFrame"]:
    """The tables `trace`, `events` and `subscriptions` of traces; `trace` with its rows' places."""
    trace, events, subscriptions = (
        read_parts(spark, table, [folder / table for folder in folders]) for table in TABLES
    )
    return trace, events, subscriptions


def read_parts(spark: "SparkSession", table: str, paths: Sequence[Path]) -> "DataFrame":
    """A table of traces from its folders, or from single parts of it; `trace` with its rows' places. A column that an
    older trace does not have is null."""
    from pyspark.sql import functions as f

    check_shared_paths(spark, *paths)
    # Spark's own folder is where it was started, which a program may have left since.
    rows = spark.read.schema(spark_schema(TABLES[table])).parquet(*(str(path.resolve()) for path in paths))
    if table != "trace":
        return rows
    part = f.regexp_extract("_metadata.file_name", r"(\d+)", 1).cast("int").alias("part")
    return rows.select("*", part, f.col("_metadata.row_index").alias("place"))


def spark_schema(columns: Sequence[tuple[str, str]]) -> str:
    """The columns of a table of traces, as Spark writes them."""
    return ", ".join(f"`{column}` {_SPARK_TYPES[kind]}" for column, kind in columns)
