"""GPS logs as tables, CSV and Parquet, read by Spark itself: parallel, and in memory that does not grow with them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from driftcast.errors import UserError
from driftcast.pipeline.fleets.columns import chosen_columns, require_positions
from driftcast.pipeline.fleets.formats import delimiter_of, split_header, start_of
from driftcast.pipeline.fleets.schema import RAW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

# Numbers this large are no seconds since 1970 but thousandths and millionths of them: as seconds they would lie
# beyond the year 5000.
MILLISECONDS_FROM = 1e11
MICROSECONDS_FROM = 1e14
_BROKEN = "_broken"


def csv_rows(
    spark: "SparkSession",
    paths: Sequence[Path],
    said: Mapping[str, str],
    header: Sequence[str] | None = None,
    time_format: str | None = None,
) -> "DataFrame":
    """The rows of CSV files as RAW. Files with the same first line are one table; `header` is for files without."""
    found: dict[tuple[str, ...], list[Path]] = {}
    for path in paths:
        start = start_of(path)
        columns = tuple(header) if header is not None else tuple(split_header(start))
        found.setdefault((delimiter_of(start), *columns), []).append(path)
    tables = []
    for (delimiter, *named), same in found.items():
        columns = tuple(named)
        if len(set(columns)) < len(columns):
            raise UserError(f"{same[0]}: two of its columns have the same name; rename one in its first line")
        chosen = chosen_columns(columns, said, str(same[0]))
        require_positions(chosen, columns, str(same[0]))
        schema = ", ".join(f"`{column.replace('`', '``')}` string" for column in (*columns, _BROKEN))
        table = (
            spark.read.schema(schema)
            .options(sep=delimiter, header=header is None, mode="PERMISSIVE", columnNameOfCorruptRecord=_BROKEN)
            .options(enforceSchema=True, ignoreLeadingWhiteSpace=True, ignoreTrailingWhiteSpace=True)
            .csv([str(path) for path in same])
        )
        tables.append(_raw(table, columns, chosen, time_format))
    return _all_of(tables)


def parquet_rows(spark: "SparkSession", paths: Sequence[Path], said: Mapping[str, str]) -> "DataFrame":
    """The rows of Parquet files as RAW. Files with the same columns are one table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[tuple[str, ...], list[Path]] = {}
    for path in paths:
        try:
            columns = pq.read_schema(path)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{path}: not Parquet, or cut off: {str(error).splitlines()[0]}") from None
        found.setdefault(tuple(f"{one.name}\0{one.type}" for one in columns), []).append(path)
    tables = []
    for typed, same in found.items():
        names = [column.partition("\0")[0] for column in typed]
        chosen = chosen_columns(names, said, str(same[0]))
        require_positions(chosen, names, str(same[0]))
        tables.append(_raw(spark.read.parquet(*map(str, same)), names, chosen, None))
    return _all_of(tables)


def _all_of(tables: "Sequence[DataFrame]") -> "DataFrame":
    whole = tables[0]
    for table in tables[1:]:
        whole = whole.unionByName(table)
    return whole


def _raw(table: "DataFrame", columns: Sequence[str], chosen: Mapping[str, str], time_format: str | None) -> "DataFrame":
    """A table with the columns of RAW. What is no number, or no time, is null, and the row then keeps its text."""
    from pyspark.sql import functions as f

    def value(meaning: str) -> "Column":
        return f.col(_quoted(chosen[meaning])) if meaning in chosen else f.lit(None)

    broken = f.col(_BROKEN) if _BROKEN in table.columns else f.lit(None).cast("string")
    file = f.col("_metadata.file_name")
    # Without a column for it, a file is the log of one node and named after it.
    stem = f.regexp_replace(file, r"(\.gz)$|(\.\w+(\.gz)?)$", "")
    numbers = {
        "longitude": value("longitude").try_cast("double"),
        "latitude": value("latitude").try_cast("double"),
        "x_m": value("x").try_cast("double"),
        "y_m": value("y").try_cast("double"),
    }
    clock_s = _seconds(value("time"), dict(table.dtypes)[chosen["time"]], time_format)
    # Degrees count before meters where a table has both: they are what was measured.
    if {"longitude", "latitude"} <= chosen.keys():
        numbers |= {"x_m": f.lit(None).cast("double"), "y_m": f.lit(None).cast("double")}
        read = numbers["longitude"].isNotNull() & numbers["latitude"].isNotNull()
    else:
        read = numbers["x_m"].isNotNull() & numbers["y_m"].isNotNull()
    node = value("node").cast("string") if "node" in chosen else stem
    whole = read & clock_s.isNotNull() & node.isNotNull() & (node != "") & broken.isNull()
    text = f.coalesce(broken, f.to_json(f.struct(*(f.col(_quoted(column)) for column in columns))))
    if _BROKEN in table.columns:
        # Parts of a file are read in any order, the rows of a part in theirs; no part of text has more rows than bytes.
        nth = f.monotonically_increasing_id().bitwiseAND(f.lit((1 << 33) - 1))
        place = f.col("_metadata.file_block_start") + nth
    else:
        place = f.col("_metadata.row_index")
    made = table.select(
        file.alias("file"),
        place.alias("place"),
        value("fleet").cast("string").alias("fleet"),
        node.alias("node"),
        clock_s.alias("clock_s"),
        *(column.alias(name) for name, column in numbers.items()),
        f.lit(None).cast("bigint").alias("stated"),
        f.when(~f.coalesce(whole, f.lit(False)), text).alias("text"),
    )
    return made.select(*(column.name for column in RAW))


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _seconds(time: "Column", kind: str, time_format: str | None) -> "Column":
    """Seconds since 1970 of a number or a date; a number may count milliseconds or microseconds."""
    from pyspark.sql import functions as f

    if kind.startswith("timestamp"):
        return f.unix_micros(time.cast("timestamp")) / 1e6
    if time_format is not None:
        return f.unix_micros(f.try_to_timestamp(time, f.lit(time_format))) / 1e6
    number = time.try_cast("double")
    seconds = (
        f.when(f.abs(number) >= MICROSECONDS_FROM, number / 1e6)
        .when(f.abs(number) >= MILLISECONDS_FROM, number / 1e3)
        .otherwise(number)
    )
    if kind != "string":
        return seconds
    return f.coalesce(seconds, f.unix_micros(time.try_cast("timestamp")) / 1e6)
