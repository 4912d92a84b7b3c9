"""The rows of runs.parquet: one per run, with its settings, its metrics and, if it failed, its error."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from carrycast.analysis.spark.statistics import DIFFERENCE_OF_SHARES, SHARE, Bounds
from carrycast.sim.scenario import METRIC_MEANINGS, SERIES
from carrycast.version import read_metadata

if TYPE_CHECKING:
    import pyarrow as pa

Record: TypeAlias = dict[str, object]

REAL_METRICS = frozenset(
    {"delivery_ratio", "delay_mean_s", "delay_p50_s", "delay_p95_s", "hops_mean"},
)
"""Means and shares; all others are counts."""

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
    ("cpu_s", "double"),
)
"""`parameters` is a JSON object, axis to value; `run` is the run's name in its trace; `key` stands for all that decides
its outcome, code included."""


def metric_bounds(metric: str, difference: bool = False) -> Bounds | None:
    """Between which values a metric, or the difference of two of its values, must lie; shares know bounds."""
    if not metric.endswith(("_ratio", "_share")):
        return None
    return DIFFERENCE_OF_SHARES if difference else SHARE


MORE = "more"
"""The column of the metrics that an experiment asked for besides the usual ones: a JSON object, or null."""


def json_text(value: object, indent: int | None = None) -> str:
    """Settings as JSON in one certain order. An infinite number is `Infinity`, as Python, Spark and JavaScript's JSON5
    read it: the bare standard has no such number, and nothing else means the same."""
    return json.dumps(msgspec.to_builtins(value), sort_keys=indent is None, ensure_ascii=False, indent=indent)


def json_value(text: str | bytes) -> object:
    """What `json_text` wrote."""
    value: object = json.loads(text)
    return value


def record_columns() -> list[tuple[str, str]]:
    """The columns in their order, with Arrow's names of their types."""
    metrics = [(name, "double" if name in REAL_METRICS else "int64") for name in METRICS]
    return [*IDENTITY_COLUMNS, *metrics, (MORE, "string"), ("error", "string")]


def metric_columns(found: Mapping[str, object], series: Mapping[str, object] | None = None) -> Record:
    """The metrics of a run as its record has them, and its samples over time."""
    usual = {name: value for name, value in found.items() if name in METRIC_MEANINGS}
    more = {name: value for name, value in found.items() if name not in METRIC_MEANINGS}
    if series:
        more[SERIES] = series
    return {**usual, MORE: msgspec.json.encode(more).decode() if more else None}


SCHEMA_VERSION = "1"
"""Of runs.parquet and of the files of a ledger; another meaning of a column is another version."""
_VERSION_KEY = b"carrycast.runs"


def record_schema() -> "pa.Schema":
    """The Arrow schema of runs.parquet."""
    import pyarrow as pa

    columns = [(name, pa.type_for_alias(kind)) for name, kind in record_columns()]
    return pa.schema(columns, metadata={_VERSION_KEY: SCHEMA_VERSION.encode()})


def is_record_schema(schema: "pa.Schema") -> bool:
    """Whether a table has these columns in this version; one that says nothing of its version is of the first."""
    written = read_metadata(schema.metadata, _VERSION_KEY, b"1").decode()
    return written == SCHEMA_VERSION and bool(schema.equals(record_schema()))


def record_ddl() -> str:
    """The same schema as Spark writes it."""
    spark = {"string": "string", "int64": "bigint", "double": "double"}
    return ", ".join(f"`{name}` {spark[kind]}" for name, kind in record_columns())


def record_table(records: list[Record]) -> "pa.Table":
    """Records as an Arrow table; a column that a record lacks is null."""
    import pyarrow as pa

    schema = record_schema()
    return pa.table(
        {field.name: pa.array([record.get(field.name) for record in records], field.type) for field in schema},
        schema=schema,
    )


def metric_value(record: Mapping[str, object], metric: str) -> float | None:
    """A metric of a run, or None where it does not exist or the run failed."""
    if metric in METRIC_MEANINGS:
        value = record.get(metric)
    else:
        written = record.get(MORE)
        more = msgspec.json.decode(written, type=dict[str, object]) if isinstance(written, str) else {}
        value = more.get(metric)
    return float(value) if isinstance(value, int | float) else None


def series_value(record: Mapping[str, object], metric: str) -> list[tuple[float, float | None]]:
    """The samples over time behind a metric of a run; none where they do not exist or the run failed."""
    written = record.get(MORE)
    if not isinstance(written, str):
        return []
    return msgspec.json.decode(written, type=_Sampled).series.get(metric, [])


class _Sampled(msgspec.Struct):
    series: dict[str, list[tuple[float, float | None]]] = {}


MOST_REASONS = 5
_NUMBER = re.compile(r"\d+(\.\d+)?")


def failure_lines(records: Sequence[Record]) -> list[str]:
    """A line for each reason, with the first run that had it and how many did; nothing if no run failed."""
    failed = [record for record in records if record["error"] is not None]
    if not failed:
        return []
    alike: dict[str, list[Record]] = {}
    for record in failed:
        # Time, node and seed differ from run to run; what went wrong does not.
        alike.setdefault(_NUMBER.sub("#", str(record["error"])), []).append(record)
    lines = [f"{len(failed)} of {len(records)} runs failed"]
    for group in list(alike.values())[:MOST_REASONS]:
        first = group[0]
        more = f" (and {len(group) - 1} more like it)" if len(group) > 1 else ""
        lines.append(f"{first['experiment']}, {first['point']}, seed {first['seed']}: {first['error']}{more}")
    if len(alike) > MOST_REASONS:
        lines.append(f"{len(alike) - MOST_REASONS} other reasons: runs.parquet has them all, in the column error")
    return lines
