"""GPS logs in CSV and Parquet. Spark reads them in parallel, with memory that does not grow with the files."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from carrycast.analysis.fleets.columns import (
    DATE,
    DECIMAL_COMMA,
    TIME_OF_DAY,
    ZONE,
    choose_columns,
    plain_name,
    refuse_ambiguous,
    refuse_commas,
    refuse_times,
    refuse_unnamed,
    require_names,
    require_positions,
)
from carrycast.analysis.fleets.inputs import FleetFile, file_stem
from carrycast.analysis.fleets.points import TIME_UNITS, UNIT_FROM, ReadOptions
from carrycast.analysis.fleets.schema import RAW
from carrycast.analysis.fleets.text import (
    BLANKS,
    detect_delimiter,
    not_text_error,
    read_start,
    sample_columns,
    split_header,
)
from carrycast.analysis.fleets.workers import spark_path
from carrycast.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

NANOSECONDS = "spark.sql.legacy.parquet.nanosAsLong"
"""Makes Spark read timestamps in nanoseconds, as pandas writes them, as numbers: Spark has no such type."""
_BROKEN = "_broken"
_SAMPLE_ROWS = 1000
DAY_US = 86_400_000_000
# A full date is required: Spark reads a lone year as January 1, and a time of day as today.
_FULL_DATE = r"^\s*\d{4,6}-\d{1,2}-\d{1,2}([ T].*)?$"


class LogRows(NamedTuple):
    """The rows of some files, with the columns of RAW."""

    rows: "DataFrame"
    records: dict[str, int]
    """The rows of each file, counted independently of parsing."""
    unsaid: FleetFile | None
    """A file whose columns x and y are assumed to be meters."""
    zoneless: bool
    """Whether there are dates without a time zone."""


class TableLayout(NamedTuple):
    """The columns of a table and their meanings."""

    columns: tuple[str, ...]
    chosen: Mapping[str, str]
    time_unit: str | None
    """The unit of numeric times; None if their magnitude decides."""
    zoneless: bool
    """Whether dates name no time zone."""


def read_csv_logs(spark: "SparkSession", inputs: Sequence[FleetFile], source: ReadOptions) -> LogRows:
    """Read CSV files. Files with the same header are one table; `source.header` is for files without a header."""
    found: dict[tuple[str, ...], list[FleetFile]] = {}
    for one in inputs:
        start = read_start(one.path, source.encoding)
        columns = tuple(source.header) if source.header is not None else tuple(split_header(start))
        if source.encoding is None and any("\ufffd" in column for column in columns):
            # Said before any other message shows such a name.
            raise UserError(not_text_error(one.path, "UTF-8"))
        delimiter = detect_delimiter(start)
        found.setdefault(("\t" if delimiter == BLANKS else delimiter, *columns), []).append(one)
    tables, unsaid, zoneless = [], None, False
    for (delimiter, *named), same in found.items():
        where = str(same[0].path)
        if len(set(named)) < len(named):
            require_names(named, where)
            raise UserError(f"{where}: two of its columns have the same name; rename one in its first line")
        for one in same:
            layout = _find_layout(
                named, sample_columns(read_start(one.path, source.encoding), source.header), source, str(one.path)
            )
        unsaid = unsaid or (same[0] if _is_assumed_meters(layout, source) else None)
        zoneless = zoneless or layout.zoneless
        schema = ", ".join(f"{_quote_name(column)} string" for column in (*layout.columns, _BROKEN))
        table = (
            spark.read.schema(schema)
            .options(sep=delimiter, header=source.header is None, mode="PERMISSIVE", columnNameOfCorruptRecord=_BROKEN)
            .options(enforceSchema=True, ignoreLeadingWhiteSpace=True, ignoreTrailingWhiteSpace=True)
            .csv([spark_path(one.plain) for one in same])
        )
        tables.append(_raw_rows(table, layout, same, source))
    return LogRows(_union_tables(tables), _count_lines(spark, inputs, source), unsaid, zoneless)


def _count_lines(spark: "SparkSession", inputs: Sequence[FleetFile], source: ReadOptions) -> dict[str, int]:
    """Count the rows of each file by its lines. A UserError for text that is not UTF-8.

    Decoding it with replacement characters could make different names equal.
    """
    from pyspark.sql import functions as f

    text = spark.read.text([spark_path(one.plain) for one in inputs])
    lines = text.select("value", f.col("_metadata.file_name").alias("file")).where(
        f.rlike("value", f.lit(r"[^\x00-\x20]"))
    )
    counted = lines.groupBy("file").agg(f.count(f.lit(1)), f.count_if(~f.is_valid_utf8("value"))).collect()
    found = {row[0]: (int(row[1]), int(row[2])) for row in counted}
    records = {}
    for one in inputs:
        rows, broken = found.get(one.plain.name, (0, 0))
        if broken:
            raise UserError(not_text_error(one.path, "UTF-8"))
        records[one.name] = max(rows - (source.header is None), 0)
    return records


def read_parquet_logs(spark: "SparkSession", inputs: Sequence[FleetFile], source: ReadOptions) -> LogRows:
    """Read Parquet files. Files with the same columns are one table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[tuple[str, ...], list[FleetFile]] = {}
    records = {}
    for one in inputs:
        try:
            file = pq.ParquetFile(one.path)
        except (pa.ArrowException, OSError) as error:
            raise UserError(f"{one.path}: not Parquet, or cut off: {str(error).splitlines()[0]}") from None
        records[one.name] = file.metadata.num_rows
        found.setdefault(tuple(f"{column.name}\0{column.type}" for column in file.schema_arrow), []).append(one)
    spark.conf.set(NANOSECONDS, "true")
    tables, unsaid, zoneless = [], None, False
    for same in found.values():
        file = pq.ParquetFile(same[0].path)
        batch = next(file.iter_batches(_SAMPLE_ROWS), None)
        sample = {} if batch is None else batch.to_pydict()
        layout = _find_layout(file.schema_arrow.names, sample, source, str(same[0].path))
        for meaning in ("time", "date"):
            if meaning in layout.chosen and pa.types.is_time(file.schema_arrow.field(layout.chosen[meaning]).type):
                raise UserError(f"{same[0].path}: its time is one of day; write date and time into one column")
        kind = file.schema_arrow.field(layout.chosen["time"]).type
        if pa.types.is_timestamp(kind):
            layout = layout._replace(zoneless=kind.tz is None)
            if kind.unit == "ns":
                layout = layout._replace(time_unit="ns")
        zoneless = zoneless or layout.zoneless
        unsaid = unsaid or (same[0] if _is_assumed_meters(layout, source) else None)
        tables.append(_raw_rows(spark.read.parquet(*(spark_path(one.plain) for one in same)), layout, same, source))
    return LogRows(_union_tables(tables), records, unsaid, zoneless)


def _find_layout(
    columns: Sequence[str], values: Mapping[str, list[object]], source: ReadOptions, where: str
) -> TableLayout:
    """Find the meaning of each column; a UserError if it is ambiguous."""
    chosen = choose_columns(columns, source.columns, where)
    require_positions(chosen, columns, where)
    refuse_ambiguous(values, {meaning: one for meaning, one in chosen.items() if meaning not in source.columns}, where)
    if not source.single:
        refuse_unnamed(values, chosen, where)
    if not source.decimal_comma:
        refuse_commas(values, chosen, where)
    if source.time_format is None:
        refuse_times(values, chosen, where)
    ends = plain_name(chosen["time"]).rpartition("_")[2]
    named = tuple(column or f"_column_{k}" for k, column in enumerate(columns))
    zoneless = _names_no_zone(values.get(chosen["time"], ()), source)
    return TableLayout(named, chosen, source.time_unit or (ends if ends in TIME_UNITS else None), zoneless)


def _names_no_zone(times: Sequence[object], source: ReadOptions) -> bool:
    """Whether times are dates, or parts of dates, without a time zone. Numbers count from 1970 in UTC."""
    if source.time_format is not None:
        # The letters of a time zone in a pattern, outside of quoted text.
        return not re.search("[VzOXxZ]", re.sub("'[^']*'", "", source.time_format))
    texts = [str(time) for time in times if time not in (None, "")]
    return any(":" in text and not re.search(ZONE, text) for text in texts)


def _is_assumed_meters(layout: TableLayout, source: ReadOptions) -> bool:
    """Whether x and y are taken as meters although neither the user nor the column names say so."""
    if {"longitude", "latitude"} <= layout.chosen.keys() or source.columns_of_degrees() is not None:
        return False
    return plain_name(layout.chosen["x"]) == "x" and plain_name(layout.chosen["y"]) == "y"


def _union_tables(tables: "Sequence[DataFrame]") -> "DataFrame":
    whole = tables[0]
    for table in tables[1:]:
        whole = whole.unionByName(table)
    return whole


def _raw_rows(table: "DataFrame", layout: TableLayout, inputs: Sequence[FleetFile], source: ReadOptions) -> "DataFrame":
    """Convert a table to the columns of RAW. An invalid number or time is null, and the row keeps its text."""
    from pyspark.sql import functions as f

    chosen = layout.chosen

    def value(meaning: str) -> "Column":
        return f.col(_quote_name(chosen[meaning])) if meaning in chosen else f.lit(None)

    broken = f.col(_BROKEN) if _BROKEN in table.columns else f.lit(None).cast("string")
    # Spark sees the names of the prepared files.
    known = {one.plain.name: one.name for one in inputs}
    file = _lookup(known, f.col("_metadata.file_name"))
    # Without a node column, a file is the log of one node, which is named after the file.
    stem = _lookup({plain: file_stem(name) for plain, name in known.items()}, f.col("_metadata.file_name"))
    longitude, latitude = ("latitude", "longitude") if source.swap else ("longitude", "latitude")
    numbers = {
        # Degrees have no thousands, so a comma is a decimal comma.
        "longitude": _number_column(value(longitude), True),
        "latitude": _number_column(value(latitude), True),
        "x_m": _number_column(value("x"), source.decimal_comma),
        "y_m": _number_column(value("y"), source.decimal_comma),
    }
    clock_s = _clock_column(table, layout, source)
    # If a table has degrees and meters, degrees are used: receivers measure degrees.
    if {"longitude", "latitude"} <= chosen.keys():
        numbers |= {"x_m": f.lit(None).cast("double"), "y_m": f.lit(None).cast("double")}
        read = numbers["longitude"].isNotNull() & numbers["latitude"].isNotNull()
    else:
        numbers |= {"longitude": f.lit(None).cast("double"), "latitude": f.lit(None).cast("double")}
        read = numbers["x_m"].isNotNull() & numbers["y_m"].isNotNull()
    node = value("node").cast("string") if "node" in chosen else stem
    whole = read & clock_s.isNotNull() & node.isNotNull() & (node != "") & broken.isNull()
    text = f.coalesce(broken, f.to_json(f.struct(*(f.col(_quote_name(column)) for column in layout.columns))))
    if _BROKEN in table.columns:
        # Spark reads blocks of a file in any order, and the rows of a block in sequence. A block has fewer rows than
        # bytes, so block start plus row number rises with the order in the file.
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


def _quote_name(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _lookup(names: Mapping[str, str], key: "Column") -> "Column":
    from pyspark.sql import functions as f

    return f.create_map(*(f.lit(text) for pair in names.items() for text in pair))[key]


def _number_column(written: "Column", decimal_comma: bool) -> "Column":
    from pyspark.sql import functions as f

    if decimal_comma:
        written = f.regexp_replace(written.cast("string"), f"^{DECIMAL_COMMA}$", "$1.$2")
    return written.try_cast("double")


def _clock_column(table: "DataFrame", layout: TableLayout, source: ReadOptions) -> "Column":
    """Seconds since 1970 from a number or a date, or from a date and a time of day in two columns."""
    from pyspark.sql import functions as f

    kinds = dict(table.dtypes)
    time, kind = f.col(_quote_name(layout.chosen["time"])), kinds[layout.chosen["time"]]
    if kind.startswith("timestamp") or kind == "date":
        return _to_utc(f.unix_micros(time.cast("timestamp")), source, kind != "timestamp") / 1e6
    words = time.cast("string")
    day = None
    if "date" in layout.chosen:
        day = f.trim(f.col(_quote_name(layout.chosen["date"])).cast("string"))
    if source.time_format is not None:
        written = words if day is None else f.concat_ws(" ", day, f.trim(words))
        moment = f.unix_micros(f.try_to_timestamp(written, f.lit(source.time_format)))
        return _to_utc(moment, source, layout.zoneless) / 1e6
    seconds = _seconds_column(_number_column(time, source.decimal_comma), layout.time_unit)
    if kind != "string":
        # Nanoseconds of pandas arrive as numbers, also those of a local clock.
        return _to_utc((seconds * 1e6).cast("bigint"), source, True) / 1e6 if layout.zoneless else seconds
    dated = f.when(f.rlike(words, f.lit(_FULL_DATE)), f.replace(words, f.lit(","), f.lit(".")))
    if day is not None:
        plain = f.regexp_replace(day, f"^{DATE}$", "$1-$3$5-$4$6")
        clock = f.replace(f.trim(words), f.lit(","), f.lit("."))
        dated = f.when(f.rlike(f.trim(words), f.lit(f"^{TIME_OF_DAY}$")), f.concat_ws(" ", plain, clock)).otherwise(
            dated
        )
    moment = f.unix_micros(dated.try_cast("timestamp"))
    local = _to_utc(moment, source, True)
    return f.coalesce(seconds, f.when(f.rlike(words, f.lit(ZONE)), moment).otherwise(local) / 1e6)


def _to_utc(local_us: "Column", source: ReadOptions, zoneless: bool) -> "Column":
    """Convert a time of the user's zone, in microseconds; null if the zone skips or repeats it.

    The offset that holds is the one of the day before or of the day after, unless the zone changes twice in two days.
    """
    from pyspark.sql import functions as f

    zone = source.time_zone
    if zone is None or not zoneless:
        return local_us

    def offset_us(at_us: "Column") -> "Column":
        return f.unix_micros(f.from_utc_timestamp(f.timestamp_micros(at_us), zone)) - at_us

    early, late = (local_us - offset_us(local_us + sign * DAY_US) for sign in (-1, 1))
    early, late = (f.when(one + offset_us(one) == local_us, one) for one in (early, late))
    return f.when(early.isNull() | late.isNull() | (early == late), f.coalesce(early, late))


def _seconds_column(number: "Column", unit: str | None) -> "Column":
    """Convert numbers to seconds from a unit, or from the unit that their magnitude suggests."""
    from pyspark.sql import functions as f

    if unit is not None:
        return number / round(1 / TIME_UNITS[unit])
    seconds = number
    for name, least in reversed(list(UNIT_FROM.items())):
        seconds = f.when(f.abs(number) >= least, number / round(1 / TIME_UNITS[name])).otherwise(seconds)
    return seconds
