"""The rows of runs.parquet: one per run, with its settings, its metrics and, if it failed, its error."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from carrycast.analysis.spark.statistics import DIFFERENCE_OF_SHARES, SHARE, Bounds
from carrycast.sim.scenario import METRIC_MEANINGS, SERIES
from carrycast.trace import ONE_METRICS, one_metric
from carrycast.version import read_metadata

if TYPE_CHECKING:
    import pyarrow as pa

Record: TypeAlias = dict[str, object]

REAL_METRICS = frozenset(
    {"delivery_ratio", "delay_mean_s", "delay_p50_s", "delay_p95_s", "hops_mean"},
)
"""Metrics that are means or shares. All others are counts."""

METRICS = tuple(METRIC_MEANINGS)

IDENTITY_COLUMNS = (
    ("experiment", "string"),
    ("point", "string"),
    ("parameters", "string"),
    ("seed", "int64"),
    ("protocol", "string"),
    ("run", "string"),
    ("key", "string"),
    ("fingerprint", "string"),
    ("engine", "string"),
    ("cpu_s", "double"),
)
"""`parameters` is a JSON object from axis to value, `run` the name of the run in its trace, and `key` a digest of
everything on which the outcome depends, code included. `engine` is the engine of the simulator; keys do not depend on
it, because the engines give the same results."""


def metric_bounds(metric: str, difference: bool = False) -> Bounds | None:
    """Return the bounds of a metric, or of the difference of two of its values, if it is a share; else None."""
    # The ONE's overhead ratio is no share: transfers beyond deliveries, for each delivery.
    if metric == "overhead_ratio" or not metric.endswith(("_ratio", "_share", "_prob")):
        return None
    return DIFFERENCE_OF_SHARES if difference else SHARE


MORE = "more"
"""The column with the additional metrics of an experiment: a JSON object, or null."""


def json_text(value: object, indent: int | None = None) -> str:
    """Encode settings as JSON with sorted keys. An infinite number is `Infinity`, which is not in the JSON standard,
    but Python, Spark and JSON5 read it."""
    return json.dumps(msgspec.to_builtins(value), sort_keys=indent is None, ensure_ascii=False, indent=indent)


def json_value(text: str | bytes) -> object:
    """Decode the output of `json_text`."""
    value: object = json.loads(text)
    return value


def record_columns() -> list[tuple[str, str]]:
    """Return the columns in their order, with Arrow's names of their types."""
    metrics = [(name, "double" if name in REAL_METRICS else "int64") for name in METRICS]
    return [*IDENTITY_COLUMNS, *metrics, (MORE, "string"), ("error", "string")]


def metric_columns(found: Mapping[str, object], series: Mapping[str, object] | None = None) -> Record:
    """Return the metrics and time series of a run as columns of its record."""
    usual = {name: value for name, value in found.items() if name in METRIC_MEANINGS}
    more = {name: value for name, value in found.items() if name not in METRIC_MEANINGS}
    if series:
        more[SERIES] = series
    return {**usual, MORE: msgspec.json.encode(more).decode() if more else None}


SCHEMA_VERSION = "1"
"""The version of runs.parquet and of the journals. It changes when a column changes its meaning."""
_VERSION_KEY = b"carrycast.runs"


def record_schema() -> "pa.Schema":
    """The Arrow schema of runs.parquet."""
    import pyarrow as pa

    columns = [(name, pa.type_for_alias(kind)) for name, kind in record_columns()]
    return pa.schema(columns, metadata={_VERSION_KEY: SCHEMA_VERSION.encode()})


def complete_records(table: "pa.Table") -> "pa.Table | None":
    """A table that was read, with all columns; None if it has others or another version.

    A table that states no version has version 1. Tables of carrycast 0.2 have no column `engine`, which is null then.
    """
    import pyarrow as pa

    schema, whole = table.schema, record_schema()
    if read_metadata(schema.metadata, _VERSION_KEY, b"1").decode() != SCHEMA_VERSION:
        return None
    place = whole.get_field_index("engine")
    if schema.equals(whole.remove(place)):
        table = table.add_column(place, whole.field(place), pa.nulls(len(table), pa.string()))
    return table if table.schema.equals(whole) else None


def record_ddl() -> str:
    """Return the same schema as a Spark DDL string."""
    spark = {"string": "string", "int64": "bigint", "double": "double"}
    return ", ".join(f"`{name}` {spark[kind]}" for name, kind in record_columns())


def record_table(records: list[Record]) -> "pa.Table":
    """Return records as an Arrow table; a column that a record lacks is null."""
    import pyarrow as pa

    schema = record_schema()
    return pa.table(
        {field.name: pa.array([record.get(field.name) for record in records], field.type) for field in schema},
        schema=schema,
    )


def metric_value(record: Mapping[str, object], metric: str) -> float | None:
    """Return a metric of a run, or None if the metric does not exist or the run failed. The ONE's names count too."""
    if metric in METRIC_MEANINGS:
        value = record.get(metric)
    elif metric in ONE_METRICS:
        value = one_metric(metric, {name: metric_value(record, name) for name in METRICS})
    else:
        written = record.get(MORE)
        more = msgspec.json.decode(written, type=dict[str, object]) if isinstance(written, str) else {}
        value = more.get(metric)
    return float(value) if isinstance(value, int | float) else None


def series_value(record: Mapping[str, object], metric: str) -> list[tuple[float, float | None]]:
    """Return the time series of a sampled metric of a run; an empty list if there is none or the run failed."""
    written = record.get(MORE)
    if not isinstance(written, str):
        return []
    return msgspec.json.decode(written, type=_Sampled).series.get(metric, [])


class _Sampled(msgspec.Struct):
    series: dict[str, list[tuple[float, float | None]]] = {}


MOST_REASONS = 5
_NUMBER = re.compile(r"\d+(\.\d+)?")


def failure_lines(records: Sequence[Record]) -> list[str]:
    """Return a line for each reason of failure, with the first run that had it and the number of such runs."""
    failed = [record for record in records if record["error"] is not None]
    if not failed:
        return []
    alike: dict[str, list[Record]] = {}
    for record in failed:
        # Errors that differ only in numbers, such as time, node and seed, have the same reason.
        alike.setdefault(_NUMBER.sub("#", str(record["error"])), []).append(record)
    lines = [f"{len(failed)} of {len(records)} runs failed"]
    for group in list(alike.values())[:MOST_REASONS]:
        first = group[0]
        more = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
        lines.append(f"{first['experiment']}, {first['point']}, seed {first['seed']}: {first['error']}{more}")
    if len(alike) > MOST_REASONS:
        lines.append(f"{len(alike) - MOST_REASONS} other reasons: runs.parquet has them all, in the column error")
    return lines
