"""Collects the rows of a trace and writes them to Parquet in parts, so that a long run needs little memory.

A trace is a folder with three tables, each a folder of Parquet parts: `trace/`, `events/`, `subscriptions/`. A part
is renamed to its final name when it is complete.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.core.model import Event, ProcessorId, Subscription, SubscriptionId
from carrycast.trace.schema import (
    EVENT_COLUMNS,
    LEVEL_KEY,
    SUBSCRIPTION_COLUMNS,
    TRACE_COLUMNS,
    VERSION,
    VERSION_KEY,
    Level,
    Row,
    arrow_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa

PART_ROWS = 200_000
_TO_S = [name for name, _ in SUBSCRIPTION_COLUMNS].index("to_s")


class Trace:
    """The trace of one run or of one live node.

    With a directory, each part is written as soon as it is full. Without one, all rows stay in memory for `table`.
    """

    def __init__(self, run: str, level: Level, directory: Path | None = None) -> None:
        self.run = run
        self.level = level
        self.full = level is Level.FULL
        self.deliveries = level is not Level.METRICS
        self._directory = directory
        self._rows: list[Row] = []
        self._batches: list[pa.Table] = []
        self._parts = 0
        self._events: list[tuple[object, ...]] = []
        self._event_parts = 0
        self._subscriptions: dict[SubscriptionId, list[object]] = {}

    def add(self, row: Row) -> None:
        """Add one row. The caller checks `full` or `deliveries` first."""
        self._rows.append(row)
        if len(self._rows) >= PART_ROWS:
            self.flush()

    def extend(self, rows: Sequence[Row]) -> None:
        """Add several rows, which go into the same part."""
        self._rows += rows
        if len(self._rows) >= PART_ROWS:
            self.flush()

    def add_event(
        self,
        event: Event,
        time_s: float,
        size_bytes: int,
        counted: bool = True,
        processor: ProcessorId | None = None,
    ) -> None:
        """Add a row to the table `events`, from which eligibility is computed later.

        `time_s` is on the clock of the trace. `processor` is the one that produced the event, if any.
        """
        attributes = json.dumps(dict(event.attributes), sort_keys=True, ensure_ascii=False)
        access = None if event.access is None else event.access.condition
        lease_s = None if math.isinf(event.lease_s) else event.lease_s
        derived = " ".join(map(str, event.derived_from)) or None
        row = (self.run, str(event.id), event.id.source, time_s, attributes, size_bytes, lease_s, access, derived)
        self._events.append((*row, counted, processor))

    def add_subscription(self, subscription: Subscription, from_s: float) -> None:
        """Add a row to the table `subscriptions`, without an end until `end_subscription`."""
        attributes = json.dumps(dict(subscription.attributes), sort_keys=True, ensure_ascii=False)
        self._subscriptions[subscription.id] = [
            self.run,
            str(subscription.id),
            subscription.id.subscriber,
            subscription.filter,
            attributes,
            from_s,
            None,
            subscription.processor,
        ]

    def end_subscription(self, subscription: SubscriptionId, to_s: float) -> None:
        """Set the end of a subscription."""
        self._subscriptions[subscription][_TO_S] = to_s

    def flush(self) -> None:
        """Make a part of the rows so far."""
        if not self._rows:
            return
        import pyarrow as pa

        schema = arrow_schema(TRACE_COLUMNS)
        columns = [pa.array([self.run] * len(self._rows), schema.field(0).type)]
        for values, field in zip(zip(*self._rows, strict=True), list(schema)[1:], strict=True):
            columns.append(pa.array(values, field.type))
        self._rows.clear()
        self._keep(pa.table(columns, schema=schema))

    def table(self) -> "pa.Table":
        """The rows as one Arrow table (only those still in memory, if parts went to a directory)."""
        import pyarrow as pa

        self.flush()
        return pa.concat_tables([arrow_schema(TRACE_COLUMNS).empty_table(), *self._batches])

    def events(self) -> "pa.Table":
        """The events that have not been written, as an Arrow table."""
        return _table(EVENT_COLUMNS, self._events)

    def subscriptions(self) -> "pa.Table":
        """The subscriptions as an Arrow table."""
        return _table(SUBSCRIPTION_COLUMNS, [tuple(row) for row in self._subscriptions.values()])

    def save(self, directory: Path) -> None:
        """Write all that has not been written. Afterward the folder is a complete trace. May be called again."""
        self._directory = directory
        self.flush()
        for batch in self._batches:
            self._keep(batch)
        self._batches.clear()
        if self._parts == 0:
            self._keep(arrow_schema(TRACE_COLUMNS).empty_table())
        if self._events or self._event_parts == 0:
            self._write(directory / "events", self._event_parts, self.events())
            self._event_parts += 1
            self._events.clear()
        self._write(directory / "subscriptions", 0, self.subscriptions())

    def _keep(self, table: "pa.Table") -> None:
        if self._directory is None:
            self._batches.append(table)
        else:
            self._write(self._directory / "trace", self._parts, table)
            self._parts += 1

    def _write(self, directory: Path, number: int, table: "pa.Table") -> None:
        """Write one part, with the version and the level in its metadata."""
        _write_part(directory, number, table.replace_schema_metadata(_metadata(self.level)))


def save_tables(
    directory: Path, level: Level, trace: "pa.Table", events: "pa.Table", subscriptions: "pa.Table"
) -> None:
    """Write the three tables of a trace as a folder that every reader of traces takes."""
    for name, table in (("trace", trace), ("events", events), ("subscriptions", subscriptions)):
        _write_part(directory / name, 0, table.replace_schema_metadata(_metadata(level)))


def _metadata(level: Level) -> dict[bytes, bytes]:
    return {VERSION_KEY: str(VERSION).encode(), LEVEL_KEY: level.value.encode()}


def _table(columns: tuple[tuple[str, str], ...], rows: list[tuple[object, ...]]) -> "pa.Table":
    import pyarrow as pa

    schema = arrow_schema(columns)
    if not rows:
        return schema.empty_table()
    return pa.table(
        [pa.array(list(values), field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)],
        schema=schema,
    )


def _write_part(directory: Path, number: int, table: "pa.Table") -> None:
    import pyarrow.parquet as pq

    directory.mkdir(parents=True, exist_ok=True)
    # Readers of the folder, such as Spark, ignore names that start with a dot.
    unfinished = directory / f".part-{number:05d}.tmp"
    pq.write_table(table, unfinished, compression="zstd")
    unfinished.rename(directory / f"part-{number:05d}.parquet")
