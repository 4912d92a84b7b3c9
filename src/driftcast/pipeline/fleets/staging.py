"""Files that Spark cannot read itself, turned into a Parquet file of raw rows, a batch at a time."""

from array import array
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from driftcast.mobility.bonnmotion import BonnMotion
from driftcast.mobility.ns2 import Ns2
from driftcast.mobility.one import One
from driftcast.mobility.player import TracePlayer
from driftcast.mobility.samples import waypoints
from driftcast.mobility.sumo import Sumo
from driftcast.pipeline.fleets.geojson import features
from driftcast.pipeline.fleets.gpx import track_points
from driftcast.pipeline.fleets.points import Point

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 18

_PLAYERS: Mapping[str, type[TracePlayer]] = {"sumo": Sumo, "ns2": Ns2, "one": One, "bonnmotion": BonnMotion}
_POINTS: Mapping[str, Callable[[Path], Iterator[Point]]] = {"gpx": track_points, "geojson": features}


def stage(path: Path, format_name: str, to: Path) -> None:
    """Write the rows of a file, as RAW, to a new Parquet file."""
    import pyarrow.parquet as pq

    batches = _recorded(path, format_name) if format_name in _PLAYERS else _measured(path, format_name)
    writer = None
    try:
        for batch in batches:
            writer = writer or pq.ParquetWriter(to, batch.schema)
            writer.write_batch(batch)
    finally:
        if writer is not None:
            writer.close()


def _arrow_schema() -> "pa.Schema":
    import pyarrow as pa

    from driftcast.pipeline.fleets.schema import RAW

    kinds = {"string": pa.string(), "bigint": pa.int64(), "double": pa.float64()}
    return pa.schema([(column.name, kinds[column.kind]) for column in RAW])


def _batch(rows: int, **columns: object) -> "pa.RecordBatch":
    """RAW with these columns; all others are null."""
    import pyarrow as pa

    schema = _arrow_schema()
    made = [
        pa.array(columns[one.name], one.type) if one.name in columns else pa.nulls(rows, one.type) for one in schema
    ]
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _recorded(path: Path, format_name: str) -> "Iterator[pa.RecordBatch]":
    """What a simulator states: read by the player of the format, so that it moves as when it is played."""
    import numpy as np

    names, moving = _PLAYERS[format_name](file=str(path)).recorded()
    rows, known = waypoints(moving), np.array(names, dtype=object)
    for begin in range(0, len(rows.node), BATCH_ROWS):
        part = slice(begin, begin + BATCH_ROWS)
        count = len(rows.node[part])
        yield _batch(
            count,
            file=[path.name] * count,
            place=np.arange(begin, begin + count),
            node=known[rows.node[part]],
            clock_s=rows.time_s[part],
            x_m=rows.x_m[part],
            y_m=rows.y_m[part],
            stated=rows.track[part],
        )


def _measured(path: Path, format_name: str) -> "Iterator[pa.RecordBatch]":
    """Points one by one."""
    node: list[str] = []
    text: list[str | None] = []
    clock_s, longitude, latitude = array("d"), array("d"), array("d")
    done = 0

    def batch() -> "pa.RecordBatch":
        # Fields that could not be read are not numbers here; their rows have a text.
        import numpy as np

        return _batch(
            len(node),
            file=[path.name] * len(node),
            place=np.arange(done, done + len(node)),
            node=node,
            clock_s=np.array(clock_s),
            longitude=np.array(longitude),
            latitude=np.array(latitude),
            text=text,
        )

    for point in _POINTS[format_name](path):
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
