"""Exports a fleet for other programs: positions as Parquet or CSV, movement for ns-2 and the ONE."""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np

from carrycast.errors import UserError, WorkError
from carrycast.sim.mobility import MAX_LINES, FleetFacts

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.dataset as ds

SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".ns_movements": "ns2", ".tcl": "ns2", ".one": "one", ".txt": "one"}
BATCH_ROWS = 1 << 17


def write_fleet(folder: Path, to: Path, format_name: str | None = None) -> int:
    """Write the positions of a fleet's folder to a file, which is replaced atomically.

    Returns the number of absences that the format cannot express: in ns-2 an absent node stands still, in the ONE it
    moves on slowly.
    """
    import pyarrow as pa
    import pyarrow.dataset as ds

    name = format_name or SUFFIXES.get(to.suffix, "")
    if name not in _WRITERS:
        raise UserError(f"{to}: writes {', '.join(_WRITERS)}; name the file so, or give --format")
    facts = FleetFacts.read(folder)
    partial = to.with_name(f".{to.name}.{os.getpid()}.partial")
    try:
        held = ds.dataset(folder / "positions", format="parquet")
        if name in ("ns2", "one") and held.count_rows() > MAX_LINES:
            raise UserError(f"{folder}: more than {MAX_LINES:,} positions, too many for {name}; ingest a part of it")
        unsaid = _WRITERS[name](held, facts, partial)
        os.replace(partial, to)
    except (pa.ArrowException, OSError) as error:
        raise WorkError(f"{to}: could not be written: {str(error).splitlines()[0]}") from None
    finally:
        partial.unlink(missing_ok=True)
    return unsaid


def _write_parquet(held: "ds.Dataset", facts: FleetFacts, to: Path) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(to, held.schema) as writer:
        for batch in held.to_batches(batch_size=BATCH_ROWS):
            writer.write_batch(batch)
    return 0


def _write_csv(held: "ds.Dataset", facts: FleetFacts, to: Path) -> int:
    from pyarrow import csv

    with csv.CSVWriter(to, held.schema) as writer:
        for batch in held.to_batches(batch_size=BATCH_ROWS):
            writer.write_batch(batch)
    return 0


def _split_by_node(held: "ds.Dataset") -> Iterator["pa.Table"]:
    """The positions of each node, sorted by time."""
    table = held.to_table(columns=["number", "track", "time_s", "x_m", "y_m"])
    table = table.sort_by([("number", "ascending"), ("track", "ascending"), ("time_s", "ascending")])
    number = table["number"].to_numpy()
    cuts = np.flatnonzero(np.diff(number)) + 1
    for begin, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(number)], strict=True):
        yield table.slice(begin, end - begin)


def _write_ns2(held: "ds.Dataset", facts: FleetFacts, to: Path) -> int:
    unsaid = 0
    with to.open("w", encoding="utf-8", newline="\n") as file:
        for rows in _split_by_node(held):
            unsaid += _write_ns2_node(rows, file)
    return unsaid


def _write_ns2_node(rows: "pa.Table", file: TextIO) -> int:
    """Write the start of a node and a command for each leg. A new track begins with a very fast move."""
    number, track, time_s, x_m, y_m = (rows[name].to_pylist() for name in rows.column_names)
    node = f"$node_({number[0]})"
    file.write(f"{node} set X_ {x_m[0]!r}\n{node} set Y_ {y_m[0]!r}\n{node} set Z_ 0.0\n")
    unsaid = int(time_s[0] > 0)
    for k in range(len(track) - 1):
        away_m = float(np.hypot(x_m[k + 1] - x_m[k], y_m[k + 1] - y_m[k]))
        lasting_s = time_s[k + 1] - time_s[k]
        if track[k] != track[k + 1]:
            unsaid += 1
            # The node stands until a millisecond before the new track, and moves to its start in that millisecond.
            lasting_s = min(lasting_s, 0.001) or 0.001
            begin_s = max(time_s[k + 1] - lasting_s, time_s[k])
        else:
            begin_s = time_s[k]
        if away_m > 0:
            speed_mps = away_m / lasting_s
            file.write(f'$ns_ at {begin_s!r} "{node} setdest {x_m[k + 1]!r} {y_m[k + 1]!r} {speed_mps!r}"\n')
    return unsaid


def _write_one(held: "ds.Dataset", facts: FleetFacts, to: Path) -> int:
    import pyarrow.compute as pc

    table = held.to_table(columns=["number", "track", "time_s", "x_m", "y_m"])
    table = table.sort_by([("time_s", "ascending"), ("number", "ascending"), ("track", "ascending")])
    number, time_s, x_m, y_m = (table[name].to_numpy() for name in ("number", "time_s", "x_m", "y_m"))
    bounds = [0.0, facts.duration_s, x_m.min(), x_m.max(), y_m.min(), y_m.max()]
    # The format has one position for a node at a time.
    _, first = np.unique(np.stack((time_s, number)), axis=1, return_index=True)
    with to.open("w", encoding="utf-8", newline="\n") as file:
        file.write(" ".join(repr(float(bound)) for bound in bounds) + "\n")
        for k in np.sort(first):
            file.write(f"{float(time_s[k])!r} {number[k]} {float(x_m[k])!r} {float(y_m[k])!r}\n")
    tracks = len(table.group_by(["number", "track"]).aggregate([]))
    return tracks - int(pc.count_distinct(table["number"]).as_py())


_WRITERS: Mapping[str, Callable[["ds.Dataset", FleetFacts, Path], int]] = {
    "parquet": _write_parquet,
    "csv": _write_csv,
    "ns2": _write_ns2,
    "one": _write_one,
}
