"""Read the three tables of traces as Spark DataFrames."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.cluster.executors import check_shared_paths
from carrycast.trace import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDER = ("time_s", "part", "place")
"""The columns by which the rows of a trace are sorted. Rows of equal time keep the order of the files: `part` is the
number of the file and `place` the row in it. The path of the file is not used, because it is longer than the row."""

_SPARK_TYPES = {"string": "string", "double": "double", "int64": "bigint", "int32": "int", "bool": "boolean"}


def read_tables(spark: "SparkSession", folders: list[Path]) -> tuple["DataFrame", "DataFrame", "DataFrame"]:
    """Return the tables `trace`, `events` and `subscriptions` of some traces; `trace` has the columns of `ORDER`."""
    trace, events, subscriptions = (
        read_parts(spark, table, [folder / table for folder in folders]) for table in TABLES
    )
    return trace, events, subscriptions


def read_parts(spark: "SparkSession", table: str, paths: Sequence[Path]) -> "DataFrame":
    """Read a table of traces from its folders or from single files. A column that an older trace lacks is null."""
    from pyspark.sql import functions as f

    check_shared_paths(spark, *paths)
    # Spark resolves relative paths against the folder where it was started, which may not be the current one.
    rows = spark.read.schema(spark_schema(TABLES[table])).parquet(*(str(path.resolve()) for path in paths))
    if table != "trace":
        return rows
    part = f.regexp_extract("_metadata.file_name", r"(\d+)", 1).cast("int").alias("part")
    return rows.select("*", part, f.col("_metadata.row_index").alias("place"))


def spark_schema(columns: Sequence[tuple[str, str]]) -> str:
    """Return the columns of a table of traces as a Spark schema string."""
    return ", ".join(f"`{column}` {_SPARK_TYPES[kind]}" for column, kind in columns)
