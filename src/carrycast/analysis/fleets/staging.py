"""Converts files that Spark cannot read into Parquet files of raw rows, batch by batch."""

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.fleets.gpx import GpxFile
from carrycast.analysis.fleets.inputs import FleetFile, RowCount
from carrycast.analysis.fleets.points import PositionFormat, ReadOptions
from carrycast.analysis.fleets.schema import RAW, arrow_schema
from carrycast.core.plugins import find_plugin
from carrycast.errors import UserError, WorkError
from carrycast.sim.mobility import MovementFormat, RecordedMovement, Waypoints, extract_waypoints, read_fcd

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 18


class RowStager:
    """Writes the rows of files as RAW and counts the records of each file."""

    def __init__(self, source: ReadOptions) -> None:
        self._source = source
        self._tracks: dict[str, str] = {}
        """The GPX file in which each track name was first seen."""

    def stage(self, one: FleetFile, to: Path) -> RowCount:
        """Write the rows of a file to a new Parquet file."""
        if one.format.name == "sumo":
            return self._stage_fcd(one, to)
        plugin = find_plugin("file_formats", one.format.name)
        if issubclass(plugin, PositionFormat):
            return self._stage_points(one, plugin(one.plain, self._source, one.name), to)
        if not issubclass(plugin, MovementFormat):
            raise UserError(f"{one.path}: {one.format.name} states {one.format.kind}, which ingest does not read")
        # Read through the movement model, so that the fleet moves as the model plays the file.
        recorded = plugin(file=str(one.plain)).recorded()
        _check_records(one, recorded)
        rows = _write_batches(
            _stated_batches(recorded.names, extract_waypoints(recorded.moving), ("x_m", "y_m"), one.name), to
        )
        return RowCount(recorded.records, rows, recorded.superseded)

    def _stage_fcd(self, one: FleetFile, to: Path) -> RowCount:
        samples = read_fcd(one.plain)
        declared = self._source.columns_of_degrees()
        degrees = samples.in_degrees() if declared is None else declared
        if degrees is None:
            raise UserError(
                f"{one.path}: x and y may be meters or degrees, and no speeds tell: say --columns x=x,y=y for meters, "
                "or --columns longitude=x,latitude=y for degrees"
            )
        recorded = samples.recorded()
        _check_records(one, recorded)
        columns = ("longitude", "latitude") if degrees else ("x_m", "y_m")
        columns = (columns[1], columns[0]) if degrees and self._source.swap else columns
        rows = _write_batches(_stated_batches(recorded.names, samples.waypoints(), columns, one.name), to)
        if rows != recorded.records:
            raise lost_rows_error(one.name, recorded.records, rows)
        return RowCount(recorded.records, rows)

    def _stage_points(self, one: FleetFile, reader: PositionFormat, to: Path) -> RowCount:
        rows = _write_batches(_point_batches(reader, self._source.swap, one.name), to)
        if reader.rows != rows:
            raise lost_rows_error(one.name, reader.rows, rows)
        if isinstance(reader, GpxFile):
            self._refuse_same_tracks(one, reader)
        return RowCount(reader.rows, rows)

    def _refuse_same_tracks(self, one: FleetFile, reader: GpxFile) -> None:
        """Reject equal track names unless the user decides: names such as ACTIVE LOG may be one node or several."""
        for name, tracks in reader.tracks.items():
            other = self._tracks.setdefault(name, one.name)
            apart = tracks > 1 or (other != one.name and not self._source.by_file)
            if apart and not self._source.merge:
                where = f"tracks of {one.name}" if other == one.name else f"a track of {other} and one of {one.name}"
                raise UserError(
                    f"{where} have the same name, {name!r}: give --by-track if each track is a node of its own, "
                    "--merge if equal names are one node"
                )


def _check_records(one: FleetFile, recorded: RecordedMovement) -> None:
    if recorded.records != recorded.used + recorded.superseded:
        raise lost_rows_error(one.name, recorded.records, recorded.used + recorded.superseded)


def lost_rows_error(name: str, read: int, accounted: int) -> WorkError:
    """The error for rows that were read but are neither kept nor rejected."""
    return WorkError(
        f"{name}: {read:,} rows were read, but {accounted:,} are kept or rejected; nothing is written. This is an "
        "error in carrycast: please report it with the file"
    )


def _write_batches(batches: "Iterator[pa.RecordBatch]", to: Path) -> int:
    """Write batches to a new Parquet file; return its number of rows."""
    import pyarrow.parquet as pq

    writer = None
    try:
        for batch in batches:
            writer = writer or pq.ParquetWriter(to, batch.schema)
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()
    return int(pq.read_metadata(to).num_rows)


def _raw_batch(rows: int, **columns: object) -> "pa.RecordBatch":
    """A batch of RAW with these columns; all others are null."""
    import pyarrow as pa

    schema = arrow_schema(RAW)
    made = [
        pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(rows, one.type) for one in schema
    ]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _stated_batches(
    known: list[str], rows: Waypoints, columns: tuple[str, str], name: str
) -> "Iterator[pa.RecordBatch]":
    """Batches of RAW from the waypoints of a simulator."""
    import numpy as np

    names = np.array(known, dtype=object)
    for begin in range(0, max(len(rows.node), 1), BATCH_ROWS):
        part = slice(begin, begin + BATCH_ROWS)
        count = len(rows.node[part])
        yield _raw_batch(
            count,
            file=[name] * count,
            place=np.arange(begin, begin + count),
            node=names[rows.node[part]],
            clock_s=rows.time_s[part],
            stated=rows.track[part],
            **{columns[0]: rows.x_m[part], columns[1]: rows.y_m[part]},
        )


def _point_batches(reader: PositionFormat, swap: bool, name: str) -> "Iterator[pa.RecordBatch]":
    """Batches of RAW from the points of a reader."""
    node: list[str] = []
    text: list[str | None] = []
    clock_s, longitude, latitude = array("d"), array("d"), array("d")
    done = 0

    def batch() -> "pa.RecordBatch":
        # The numbers of unreadable points are NaN; their rows have a text.
        import numpy as np

        return _raw_batch(
            len(node),
            file=[name] * len(node),
            place=np.arange(done, done + len(node)),
            node=node,
            clock_s=np.array(clock_s),
            longitude=np.array(latitude if swap else longitude),
            latitude=np.array(longitude if swap else latitude),
            text=text,
        )

    for point in reader.points():
        node.append(point.node)
        clock_s.append(point.clock_s)
        longitude.append(point.longitude)
        latitude.append(point.latitude)
        text.append(point.text)
        if len(node) == BATCH_ROWS:
            yield batch()
            done += len(node)
            node, text = [], []
            clock_s, longitude, latitude = array("d"), array("d"), array("d")
    if node or not done:
        yield batch()
