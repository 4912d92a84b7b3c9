"""Partitioning of rows by node: a partition has all rows of some nodes, and one worker cleans it in memory.

A partition is one batch in each Arrow file that `Partitioner.partition` writes. The files store names as numbers, and
`NOTHING` for a missing number.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carrycast.analysis.fleets.cleaning import (
    CODES,
    DAY_S,
    FINE,
    MAX_CLOCK_ERROR_DAYS,
    MAX_COORDINATE_M,
    NOTHING,
    REASONS,
    CleaningRules,
    FleetRows,
    clean_rows,
)
from carrycast.analysis.fleets.schema import RAW, column_names, spark_ddl
from carrycast.analysis.fleets.survey import FleetNaming, Log, float_column, log_indices, raw_batches
from carrycast.sim.mobility import Floats, Integers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

PARTITION_ROWS = 400_000
LOGS_FILE = "logs.parquet"


class LogTable(NamedTuple):
    """All logs, numbered in the order of fleet, node and file."""

    names: list[Log]
    node: Integers
    """The node number of each log."""
    partition: Integers


def number_logs(found: Mapping[Log, int]) -> tuple[LogTable, int]:
    """Number the logs and assign their nodes to partitions. Also returns the number of rows of the largest node."""
    names = sorted(found, key=lambda log: (log[0], log[1] is not None, log[1] or "", log[2]))
    owner = np.array([names[k][:2] != names[k - 1][:2] if k else False for k in range(len(names))], dtype=np.int64)
    node = np.cumsum(owner)
    rows = np.bincount(node, weights=[found[log] for log in names]).astype(np.int64)
    # Fill one partition after the other with whole nodes.
    partition = (np.cumsum(rows) - rows) // PARTITION_ROWS
    _, partition = np.unique(partition, return_inverse=True)
    return LogTable(names, node, partition[node]), int(rows.max(initial=0))


def save_logs(logs: LogTable, folder: Path) -> None:
    """Write the logs to a file for the workers."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    fleet, name, file = zip(*logs.names, strict=True)
    columns = {"fleet": pa.array(fleet, pa.string()), "node": pa.array(name, pa.string())}
    numbers = {"file": pa.array(file, pa.string()), "owner": logs.node, "partition": logs.partition}
    pq.write_table(pa.table({**columns, **numbers}), folder / LOGS_FILE)


def load_logs(folder: Path) -> LogTable:
    """Read the logs that `save_logs` wrote."""
    import pyarrow.parquet as pq

    table = pq.read_table(folder / LOGS_FILE, partitioning=None)
    named = (table[name].to_pylist() for name in ("fleet", "node", "file"))
    return LogTable(list(zip(*named, strict=True)), table["owner"].to_numpy(), table["partition"].to_numpy())


class Partitioner(NamedTuple):
    """Marks rows that are wrong regardless of others, and writes each row to the partition of its node."""

    scratch: Path
    naming: FleetNaming
    median_s: float
    crs: str | None

    def partition(self, item: list[Any]) -> dict[str, Any]:
        """Partition the rows of a file. Returns the time span of each log and the number of unreadable rows."""
        number, path = int(item[0]), Path(item[1])
        logs = load_logs(self.scratch)
        known = {log: k for k, log in enumerate(logs.names)}
        low_s, high_s = np.full(len(known), np.inf), np.full(len(known), -np.inf)
        unread: list[pa.Table] = []
        for part, batch in enumerate(raw_batches(path)):
            rows = mark_rows(batch, known, self.naming, self.median_s, self.crs)
            timed = (rows.reason != CODES["unreadable"]) & (
                (np.abs(rows.clock_s - self.median_s) <= MAX_CLOCK_ERROR_DAYS * DAY_S) | (rows.stated != NOTHING)
            )
            np.minimum.at(low_s, rows.log[timed], rows.clock_s[timed])
            np.maximum.at(high_s, rows.log[timed], rows.clock_s[timed])
            self._write(rows, logs, self.scratch / "partitions" / f"{number:05}-{part:05}.arrow")
            unread += self._collect_unreadable(rows, batch, logs)
        if unread:
            write_rejected(unread, self.scratch.parent / "rejected" / f"unread-{number:05}.parquet")
        seen = np.flatnonzero(low_s < np.inf)
        spans = [[k, low_s[k], high_s[k]] for k in seen.tolist()]
        return {"spans": spans, "unreadable": sum(one.num_rows for one in unread)}

    def _write(self, rows: FleetRows, logs: LogTable, to: Path) -> None:
        """Write a file with a batch for each partition."""
        import pyarrow as pa

        partition = logs.partition[rows.log]
        order = np.argsort(partition, kind="stable")
        ends = np.searchsorted(partition[order], np.arange(int(logs.partition.max()) + 2))
        write_batches(pa.table(rows.take(order)._asdict()), ends, to)

    def _collect_unreadable(self, rows: FleetRows, batch: "pa.RecordBatch", logs: LogTable) -> "list[pa.Table]":
        """The unreadable rows with their text; no later step sees them."""
        chosen = np.flatnonzero(rows.reason == CODES["unreadable"])
        return [rejected_table(rows.take(chosen), logs, batch["text"].take(chosen))] if len(chosen) else []


def mark_rows(
    batch: "pa.RecordBatch", known: Mapping[Log, int], naming: FleetNaming, median_s: float, crs: str | None
) -> FleetRows:
    """Convert a batch of RAW to rows, with a reason for those that are wrong regardless of others.

    `known` numbers the logs. Degrees are projected to `crs`.
    """
    place, names, _ = log_indices(batch, naming)
    log = np.array([known[name] for name in names], dtype=np.int64)[place]
    columns: dict[str, Any] = {
        name: float_column(batch[name]) for name in ("clock_s", "x_m", "y_m", "longitude", "latitude")
    }
    given = batch["longitude"].is_valid().to_numpy(zero_copy_only=False)
    if crs is not None:
        _project_columns(columns, given, crs)
    stated = batch["stated"].fill_null(NOTHING).to_numpy(zero_copy_only=False)
    text = batch["text"].is_valid().to_numpy(zero_copy_only=False)
    longitude, latitude = columns["longitude"], columns["latitude"]
    on_earth = (np.abs(longitude) <= 180) & (np.abs(latitude) <= 90) & ((longitude != 0) | (latitude != 0))
    on_map = (np.abs(columns["x_m"]) <= MAX_COORDINATE_M) & (np.abs(columns["y_m"]) <= MAX_COORDINATE_M)
    near = np.abs(columns["clock_s"] - median_s) <= MAX_CLOCK_ERROR_DAYS * DAY_S
    reason = np.select(
        [text, ~(np.where(given, on_earth, True) & on_map), ~near & (stated == NOTHING)],
        [CODES["unreadable"], CODES["no_place"], CODES["clock"]],
        FINE,
    )
    others = {"log": log, "place": batch["place"].to_numpy(), "stated": stated, "reason": reason.astype(np.int64)}
    return FleetRows(**others, **columns)


def _project_columns(columns: dict[str, Floats], given: "np.ndarray[Any, np.dtype[np.bool_]]", crs: str) -> None:
    """Project degrees to meters; infinite where the projection is undefined."""
    import pyproj

    there = pyproj.Transformer.from_crs("EPSG:4326", crs, always_xy=True)
    for name, made in zip(("x_m", "y_m"), there.transform(columns["longitude"], columns["latitude"]), strict=True):
        # Tenths of a millimeter: far below the accuracy of receivers, and equal on every machine.
        columns[name] = np.where(given, np.round(made, 4), columns[name])


def write_batches(table: "pa.Table", ends: Integers, to: Path) -> None:
    """Write an Arrow file with a batch of rows between each two consecutive `ends`."""
    import pyarrow as pa

    with pa.OSFile(str(to), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            part = table.slice(begin, end - begin).combine_chunks().to_batches()
            writer.write_batch(part[0] if part else pa.RecordBatch.from_pylist([], schema=table.schema))


def read_batch(folder: Path, number: int) -> "pa.Table":
    """Read the batch with this number from all files in a folder."""
    import pyarrow as pa

    def read_each() -> "Iterator[pa.RecordBatch]":
        for path in sorted(folder.glob("*.arrow")):
            with pa.memory_map(str(path)) as source:
                yield pa.ipc.open_file(source).get_batch(number)

    return pa.Table.from_batches(list(read_each()))


def rejected_table(rows: FleetRows, logs: LogTable, text: "pa.Array | None") -> "pa.Table":
    """Rejected rows as a table with the columns of REJECTED."""
    import pyarrow as pa

    fleet, node, file = zip(*(logs.names[k] for k in rows.log.tolist()), strict=True)
    reasons = list(REASONS)
    columns = {
        "reason": pa.array([reasons[code - 1] for code in rows.reason.tolist()], pa.string()),
        "file": pa.array(file, pa.string()),
        "place": pa.array(rows.place),
        "fleet": pa.array(fleet, pa.string()),
        "node": pa.array(node, pa.string()),
        "clock_s": nan_to_null(rows.clock_s),
        "x_m": nan_to_null(rows.x_m),
        "y_m": nan_to_null(rows.y_m),
        "longitude": nan_to_null(rows.longitude),
        "latitude": nan_to_null(rows.latitude),
        "text": pa.nulls(len(rows.log), pa.string()) if text is None else text,
    }
    return pa.table(columns)


def nan_to_null(column: Floats) -> "pa.Array":
    """A column with null instead of NaN."""
    import pyarrow as pa

    return pa.array(column, from_pandas=True)


def write_rejected(tables: "Sequence[pa.Table]", to: Path) -> None:
    """Write one file of the table `rejected`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.concat_tables(tables), to)


def clean_dataframe(rows: "DataFrame", rules: CleaningRules, median_s: float) -> "DataFrame":
    """Add two columns to a Spark DataFrame of RAW rows: the `reason` of rejected rows, and the `track` of kept rows.

    All rows of a node are cleaned at once, by the functions that `ingest` runs: `mark_rows` and `clean_rows`.
    """
    schema = f"{spark_ddl(RAW)}, `reason` string, `track` bigint"
    kernel = _make_cleaning_kernel(rules, median_s)
    return rows.select(*column_names(RAW)).groupBy("fleet", "node").applyInArrow(kernel, schema)


def _make_cleaning_kernel(rules: CleaningRules, median_s: float) -> "Callable[[pa.Table], pa.Table]":
    """Make the function that workers run: it adds reason and track to the rows of one node."""

    def clean(table: "pa.Table") -> "pa.Table":
        import pyarrow as pa

        table = table.sort_by([("file", "ascending"), ("place", "ascending")]).combine_chunks()
        (batch,) = table.to_batches()
        naming = FleetNaming("", by_file=False)
        _, names, counts = log_indices(batch, naming)
        logs, _ = number_logs(dict(zip(names, counts.tolist(), strict=True)))
        marked = mark_rows(batch, {log: k for k, log in enumerate(logs.names)}, naming, median_s, None)
        # The index of a row in this sorted table replaces its place, to restore the order after cleaning.
        cleaned, track = clean_rows(marked._replace(place=np.arange(table.num_rows)), logs.node, rules)
        order = np.argsort(cleaned.place)
        codes, tracks = cleaned.reason[order], track[order]
        reasons = pa.array([None, *REASONS], pa.string()).take(pa.array(codes))
        kept = pa.array(tracks, pa.int64(), mask=codes != FINE)
        return table.append_column("reason", reasons).append_column("track", kept)

    return clean
