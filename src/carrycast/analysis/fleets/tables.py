"""Writes the tables of a fleet's folder: positions, legs, nodes and rejected rows. One worker writes each file."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from carrycast.analysis.fleets.cleaning import FINE, HINTS, REASONS, CleaningRules, FleetRows, clean_rows
from carrycast.analysis.fleets.partitions import (
    load_logs,
    nan_to_null,
    read_batch,
    rejected_table,
    write_batches,
    write_rejected,
)
from carrycast.analysis.fleets.picture import MapGrid
from carrycast.analysis.fleets.schema import LEGS, column_names
from carrycast.errors import UserError
from carrycast.sim.mobility import LEGS_FOLDER, Floats, Integers

ROW_GROUP = 1 << 17
NODE_SUMS = ("number", "rows", "first_s", "last_s", "present_s", "path_m", "tracks")
# Large enough to be worth opening, small enough that an hour of a week needs only a few files.
ROWS_PER_FILE = 2_000_000
# With a larger share of rows rejected for one reason, the ingest fails.
MOST_WRONG = 0.5
# The same limit as in contact plans.
MAX_NODES = 10_000_000


class WrittenTables(NamedTuple):
    """Counts and facts of the tables that were written."""

    kept: int
    rejected: dict[str, int]
    legs: int
    resampled: int | None
    """The rows after resampling; None without resampling."""
    facts: dict[str, Any]


class FleetLayout(NamedTuple):
    """Properties of the whole fleet, known after cleaning."""

    start_s: float
    origin_m: tuple[float, float]
    every_s: float | None
    edges_s: list[float]
    """The times at which the files of legs are cut, in seconds since the start."""
    grid: MapGrid
    drawn: list[int]
    """The nodes whose paths are drawn."""
    step_s: float
    """The time between two points of a drawn path."""


class TrackPositions(NamedTuple):
    """Positions of tracks, sorted by node and time."""

    number: Integers
    track: Integers
    time_s: Floats
    x_m: Floats
    y_m: Floats
    longitude: Floats
    latitude: Floats

    def take(self, chosen: Any) -> "TrackPositions":
        """Select rows."""
        return TrackPositions(*(column[chosen] for column in self))

    @property
    def joined(self) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Whether the next row is of the same track."""
        same = (np.diff(self.number) == 0) & (np.diff(self.track) == 0)
        return np.append(same, False)[: len(self.number)]


class PartitionCleaner(NamedTuple):
    """The first pass: cleans the rows of a partition."""

    scratch: Path
    rules: CleaningRules

    def clean(self, partition: int) -> dict[str, Any]:
        """Write rejected rows to their table and kept rows to the scratch folder; return counts and extent."""
        logs = load_logs(self.scratch)
        table = read_batch(self.scratch / "partitions", partition)
        rows = FleetRows(*(np.array(table[name].to_numpy()) for name in FleetRows._fields))
        del table
        rows, track = clean_rows(rows, logs.node, self.rules)
        # The partitioner has already written the unreadable rows (code 1).
        wrong = rows.take(rows.reason > 1)
        if len(wrong.log):
            to = self.scratch.parent / "rejected" / f"part-{partition:05}.parquet"
            write_rejected([rejected_table(wrong, logs, None)], to)
        fine = rows.reason == FINE
        kept = rows.take(fine)
        owner = logs.node[kept.log]
        columns = (owner, track[fine], kept.clock_s, kept.x_m, kept.y_m, kept.longitude, kept.latitude)
        np.savez(self.scratch / "clean" / f"{partition:05}.npz", *columns)
        counts = np.bincount(wrong.reason, minlength=len(REASONS) + 1).tolist()
        counted = {"kept": len(owner), "rejected": dict(zip(REASONS, counts[1:], strict=True))}
        if not len(owner):
            return {**counted, "nodes": [], "ends": None}
        ends = [kept.clock_s.min(), kept.clock_s.max()]
        ends += [kept.x_m.min(), kept.y_m.min(), kept.x_m.max(), kept.y_m.max()]
        return {**counted, "nodes": np.unique(owner).tolist(), "ends": [float(end) for end in ends]}


class TableWriter(NamedTuple):
    """The second pass: writes positions by node, and legs by time."""

    scratch: Path
    layout: FleetLayout

    def write(self, item: list[Any]) -> int:
        """Write the positions and legs of a partition; return the number of positions.

        The item is the partition and a list of its nodes: owner, number, fleet and name.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        partition = int(item[0])
        with np.load(self.scratch / "clean" / f"{partition:05}.npz") as kept:
            owner, track, clock_s, x_m, y_m, longitude, latitude = (kept[f"arr_{k}"] for k in range(7))
        owners, numbers, fleets, nodes = (list(column) for column in zip(*item[1], strict=True))
        which = np.searchsorted(np.array(owners, dtype=np.int64), owner)
        time_s = np.round(clock_s - self.layout.start_s, 6)
        east_m, north_m = self.layout.origin_m
        number = np.array(numbers, dtype=np.int64)[which]
        rows = TrackPositions(number, track, time_s, x_m - east_m, y_m - north_m, longitude, latitude)
        if self.layout.every_s is not None:
            rows = resample(rows, self.layout.every_s)
            which = np.array([numbers.index(one) for one in np.unique(rows.number)], dtype=np.int64)[
                np.unique(rows.number, return_inverse=True)[1]
            ]
        texts = {
            name: pa.DictionaryArray.from_arrays(pa.array(which, pa.int32()), pa.array(values, pa.string()))
            for name, values in (("fleet", fleets), ("node", nodes))
        }
        measured = {
            name: nan_to_null(getattr(rows, name)) for name in ("time_s", "x_m", "y_m", "longitude", "latitude")
        }
        table = pa.table({**texts, "number": rows.number, "track": rows.track, **measured})
        schema = pa.schema([(one.name, pa.string() if one.name in texts else one.type) for one in table.schema])
        pq.write_table(
            table.cast(schema),
            self.scratch.parent / "positions" / f"part-{partition:05}.parquet",
            row_group_size=ROW_GROUP,
        )
        self._write_legs(rows, partition)
        self._write_picture_data(rows, partition)
        return len(rows.number)

    def _write_legs(self, rows: TrackPositions, partition: int) -> None:
        """Write the legs, with a batch for each output file, and the sums of each node."""
        import pyarrow as pa

        begin = np.flatnonzero(rows.joined)
        # Two rows of a resampled track may have the same time.
        begin = begin[rows.time_s[begin + 1] > rows.time_s[begin]]
        start_s, end_s = rows.time_s[begin], rows.time_s[begin + 1]
        vx_mps, vy_mps = ((one[begin + 1] - one[begin]) / (end_s - start_s) for one in (rows.x_m, rows.y_m))
        columns = (rows.number[begin], start_s, end_s, rows.x_m[begin], rows.y_m[begin], vx_mps, vy_mps)
        window = np.searchsorted(np.array(self.layout.edges_s), start_s, side="right")
        order = np.argsort(window, kind="stable")
        ends = np.searchsorted(window[order], np.arange(len(self.layout.edges_s) + 2))
        table = pa.table({name: column[order] for name, column in zip(column_names(LEGS), columns, strict=True)})
        write_batches(table, ends, self.scratch / "legs" / f"{partition:05}.arrow")
        firsts = np.append(True, np.diff(rows.number) != 0)[: len(rows.number)]
        first = np.flatnonzero(firsts)
        number, count = rows.number[first], np.diff(np.append(first, len(rows.number)))
        lasting_s = end_s - start_s
        place = (np.cumsum(firsts) - 1)[begin]
        present_s = np.bincount(place, weights=lasting_s, minlength=len(number))
        path_m = np.bincount(place, weights=np.hypot(vx_mps, vy_mps) * lasting_s, minlength=len(number))
        tracks = np.add.reduceat(_is_track_start(rows).astype(np.int64), first) if len(first) else count
        sums: tuple[Any, ...] = (
            number,
            count,
            rows.time_s[first],
            rows.time_s[first + count - 1],
            present_s,
            path_m,
            tracks,
        )
        kept: dict[str, Any] = dict(zip(NODE_SUMS, sums, strict=True))
        np.savez(self.scratch / "nodes" / f"{partition:05}.npz", **kept)

    def _write_picture_data(self, rows: TrackPositions, partition: int) -> None:
        """Write the picture's data of these rows."""
        grid = self.layout.grid
        row, column = (
            np.floor((one - low_m) / grid.cell_m).astype(np.int64)
            for one, low_m in ((rows.y_m, grid.south_m), (rows.x_m, grid.west_m))
        )
        cells, counts = np.unique(row * grid.columns + column, return_counts=True)
        begin = np.flatnonzero(_is_track_start(rows))
        last = np.append(begin[1:], len(rows.number))[: len(begin)] - 1
        tracks = np.column_stack((rows.number[begin], rows.time_s[begin], rows.time_s[last]))
        mine = rows.take(np.isin(rows.number, self.layout.drawn))
        step = np.floor(mine.time_s / self.layout.step_s)
        keep = np.append(True, (np.diff(step) != 0) | _is_track_start(mine)[1:])[: len(step)]
        path = np.column_stack([column[keep] for column in mine[:5]])
        np.savez(self.scratch / "picture" / f"{partition:05}.npz", cells=cells, counts=counts, tracks=tracks, path=path)

    def gather(self, window: int) -> dict[str, Any]:
        """Write a file of legs sorted by time; return their number, longest duration and digest."""
        import pyarrow.parquet as pq

        table = read_batch(self.scratch / "legs", window)
        columns = [table[name].to_numpy() for name in column_names(LEGS)]
        order = np.lexsort((columns[0], columns[1]))
        to = self.scratch.parent / LEGS_FOLDER / f"part-{window:05}.parquet"
        if len(order):
            pq.write_table(table.take(order), to, row_group_size=ROW_GROUP)
        longest_s = float((columns[2] - columns[1]).max(initial=0.0))
        return {"legs": len(order), "longest_leg_s": longest_s, "digest": str(legs_digest(columns))}


def _is_track_start(rows: TrackPositions) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Whether a row is the first of its track."""
    return np.append(True, ~rows.joined)[: len(rows.number)]


def legs_digest(columns: "list[Any]") -> int:
    """A digest of legs that does not depend on their order or on the files that hold them."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    with np.errstate(over="ignore"):
        for column in columns:
            # splitmix64 (Steele et al., OOPSLA 2014) over the bits of the number and the columns before it.
            mixed = (mixed ^ np.ascontiguousarray(column).view(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
        return int(mixed.sum(dtype=np.uint64))


def resample(rows: TrackPositions, every_s: float) -> TrackPositions:
    """Interpolate tracks linearly at the multiples of a period; no rows between tracks."""
    joined = rows.joined
    following = np.minimum(np.arange(len(joined)) + 1, len(joined) - 1)
    first = np.ceil(rows.time_s / every_s).astype(np.int64)
    # A multiple at the time of the next row belongs to that row.
    until = np.where(joined, first[following], np.floor(rows.time_s / every_s).astype(np.int64) + 1)
    count = np.maximum(until - first, 0)
    row = np.repeat(np.arange(len(joined)), count)
    tick = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count) + first[row]
    at_s = tick * every_s
    then = following[row]
    apart_s = rows.time_s[then] - rows.time_s[row]
    share = np.divide(at_s - rows.time_s[row], apart_s, out=np.zeros(len(row)), where=joined[row] & (apart_s != 0))

    def interpolate(column: Floats, step: Floats) -> Floats:
        made: Floats = np.where(joined[row], column[row] + share * step, column[row])
        return made

    x_m, y_m, latitude = (interpolate(one, one[then] - one[row]) for one in (rows.x_m, rows.y_m, rows.latitude))
    # The shorter way around the earth, also across 180 degrees.
    east = rows.longitude[then] - rows.longitude[row]
    longitude = interpolate(rows.longitude, east - 360.0 * np.floor((east + 180.0) / 360.0))
    longitude = np.where(joined[row], longitude - 360.0 * np.floor((longitude + 180.0) / 360.0), longitude)
    return TrackPositions(rows.number[row], rows.track[row], at_s, x_m, y_m, longitude, latitude)


def map_origin(box_m: Sequence[float], crs: str | None) -> tuple[float, float]:
    """The origin of a fleet's coordinates. A projection's origin may be far away; meters of a file are unchanged."""
    return (float(int(box_m[0] // 1)), float(int(box_m[1] // 1))) if crs is not None else (0.0, 0.0)


def fleet_facts(
    start_s: float, end_s: float, crs: str | None, origin_m: tuple[float, float], box_m: Sequence[float]
) -> dict[str, Any]:
    """The period and area of a fleet, as `fleet.json` states them."""
    return {
        "start_s": start_s,
        "duration_s": round(end_s - start_s, 6),
        "crs": crs,
        "origin_m": origin_m,
        "area_m": [round(box_m[2] - origin_m[0], 3), round(box_m[3] - origin_m[1], 3)],
    }


def refuse_clash(node: str | None, first: str, second: str) -> NoReturn:
    """Reject a node name that two files use at the same time: it may be one node or two."""
    raise UserError(
        f"node {node!r} is in {first} and in {second} at the same time: give "
        "--by-file if these are two nodes, --merge if they are one"
    )


def refuse_wrong(kept: int, rejected: dict[str, int]) -> None:
    """Reject a fleet without kept rows, or with most rows rejected for one reason."""
    rows = kept + sum(rejected.values())
    for reason, count in rejected.items():
        if reason in HINTS and count > MOST_WRONG * rows:
            raise UserError(f"{count:,} of {rows:,} rows are rejected: {REASONS[reason]}; {HINTS[reason]}")
    if not kept:
        raise UserError(f"no row is left: {', '.join(f'{count} {reason}' for reason, count in rejected.items())}")


def natural_order(name: str) -> list[tuple[int, str]]:
    """A sort key with `bus 9` before `bus 10`. Numbers compare as digits, because they may exceed any integer."""
    parts = ((part, part.lstrip("0")) for part in re.split(r"(\d+)", name))
    return [(len(digits), digits) if part.isdecimal() else (-1, part) for part, digits in parts]


def file_count(rows: int) -> int:
    """The number of files for this number of rows."""
    return max(-(-rows // ROWS_PER_FILE), 1)
