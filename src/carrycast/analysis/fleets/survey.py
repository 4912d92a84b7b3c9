"""A survey of a fleet's rows before cleaning: their logs, and the center of their times and positions."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carrycast.analysis.fleets.inputs import file_stem
from carrycast.analysis.fleets.workers import run_each
from carrycast.errors import UserError
from carrycast.sim.mobility import Floats, Integers

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_COUNTS = ("rows", "readable", "in_degrees", "swappable", "unswappable")
# A thousandth of a degree is about a hundred meters: logs write degrees with more digits.
_DEGREE_DIGITS = 3
SAMPLE = 4096
"""The sample size of a file for medians."""
BATCH_ROWS = 500_000
"""The rows that are in memory at once."""
Log = tuple[str, str | None, str]
"""Fleet, node, file."""


class FleetNaming(NamedTuple):
    """The naming of fleets for rows without a fleet."""

    fleet: str
    by_file: bool

    def of(self, named: str | None, file: str) -> str:
        """The fleet of a row, from the name in the row and its file."""
        if named is not None:
            return named
        return file_stem(file) if self.by_file else self.fleet


class FleetCenter(NamedTuple):
    """The center of a fleet in degrees, and the distance within which 99 % of its rows are."""

    longitude: float
    latitude: float
    spread_deg: float


class FleetSurvey(NamedTuple):
    """Counts and samples of all rows."""

    rows: int
    readable: int
    in_degrees: int
    swappable: int
    """Rows with an invalid latitude that would be on earth with longitude and latitude swapped."""
    unswappable: int
    """Rows on earth that would not be with longitude and latitude swapped."""
    measured: bool
    """Whether some rows were measured, not written by a simulator."""
    may_be_degrees: bool
    """Whether all measured positions in meters could also be degrees, by magnitude and digits."""
    example: str | None
    """The text of an unreadable row."""
    logs: dict[Log, int]
    """The number of rows of each log."""
    clock_s: Floats
    longitude: Floats
    latitude: Floats
    """A sample of readable rows."""
    weight: Floats

    @property
    def median_s(self) -> float:
        """The median time."""
        return weighted_quantile(self.clock_s, self.weight, 0.5)

    def find_center(self) -> FleetCenter | None:
        """Find the center of the rows on earth; None without any. A fleet may lie across 180 degrees."""
        on_earth = (np.abs(self.longitude) <= 180) & (np.abs(self.latitude) <= 90)
        on_earth &= (self.longitude != 0) | (self.latitude != 0)
        if not on_earth.any():
            return None
        longitude, latitude, weight = (one[on_earth] for one in (self.longitude, self.latitude, self.weight))
        angle = np.radians(longitude)
        middle = (
            round(float(np.degrees(np.arctan2(weight @ np.sin(angle), weight @ np.cos(angle)))), 2),
            round(weighted_quantile(latitude, weight, 0.5), 2),
        )
        # 99 % of the rows: the few wrong ones, which cleaning rejects later, must not decide.
        east = np.abs((longitude - middle[0] + 540) % 360 - 180) * np.cos(np.radians(latitude))
        away = np.maximum(east, np.abs(latitude - middle[1]))
        return FleetCenter(*middle, weighted_quantile(away, weight, 0.99))


def weighted_quantile(values: Floats, weight: Floats, share: float) -> float:
    """The value below which that share of the weight lies."""
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(weight[order])
    return float(values[order][min(int(np.searchsorted(upto, share * upto[-1])), len(values) - 1)])


def survey_files(spark: "SparkSession", files: Sequence[Path], naming: FleetNaming) -> FleetSurvey:
    """Survey all rows, with a Spark task for each file."""

    def look(path: str) -> dict[str, Any]:
        return _survey_file(Path(path), naming)

    found = run_each(spark, look, [str(path) for path in files])
    logs: dict[Log, int] = {}
    for one in found:
        for fleet, node, file, rows in one["logs"]:
            logs[fleet, node, file] = logs.get((fleet, node, file), 0) + rows
    clock_s, longitude, latitude, weight = (
        np.concatenate([np.zeros(0), *(np.array(one["sample"][k], dtype=np.float64) for one in found)])
        for k in range(4)
    )
    counts = {name: sum(one[name] for one in found) for name in (*_COUNTS, "measured", "beyond", "fine")}
    return FleetSurvey(
        **{name: counts[name] for name in _COUNTS},
        measured=counts["measured"] > 0,
        may_be_degrees=counts["fine"] > 0 and not counts["beyond"],
        example=next((one["example"] for one in found if one["example"] is not None), None),
        logs=logs,
        clock_s=clock_s,
        longitude=longitude,
        latitude=latitude,
        weight=weight,
    )


def _survey_file(path: Path, naming: FleetNaming) -> dict[str, Any]:
    import pyarrow.parquet as pq

    logs: dict[Log, int] = {}
    step = -(-pq.read_metadata(path).num_rows // SAMPLE) or 1
    counts = dict.fromkeys((*_COUNTS, "measured", "beyond", "fine"), 0)
    example: str | None = None
    sample: list[list[float]] = [[], [], [], []]
    for rows in raw_batches(path):
        for log, count in zip(*log_indices(rows, naming)[1:], strict=True):
            logs[log] = logs.get(log, 0) + int(count)
        fine = rows["text"].is_null().to_numpy(zero_copy_only=False)
        columns = [float_column(rows[name]) for name in ("clock_s", "longitude", "latitude")]
        chosen = np.flatnonzero(fine & ((np.arange(len(fine)) + counts["rows"]) % step == 0))
        for name, wanted in _classify_rows(rows, fine, columns[1], columns[2]).items():
            counts[name] += int(wanted.sum())
        if example is None and not fine.all():
            example = rows["text"][int(np.flatnonzero(~fine)[0])].as_py()
        if not len(chosen):
            chosen = np.flatnonzero(fine)[:1]
        for to, column in zip(sample, (*columns, np.full(len(fine), float(step))), strict=True):
            to.extend(column[chosen].tolist())
    counted_logs = [[*log, rows] for log, rows in logs.items()]
    return {"logs": counted_logs, "sample": sample, "example": example, **counts}


def _classify_rows(
    rows: "pa.RecordBatch", fine: "np.ndarray[Any, Any]", longitude: Floats, latitude: Floats
) -> "dict[str, np.ndarray[Any, Any]]":
    """Flag the rows of each count of a survey."""
    given = fine & rows["longitude"].is_valid().to_numpy(zero_copy_only=False)
    unstated = fine & rows["stated"].is_null().to_numpy(zero_copy_only=False)
    in_meters = unstated & ~given
    x, y = float_column(rows["x_m"]), float_column(rows["y_m"])
    return {
        "rows": np.ones(len(fine), dtype=np.bool_),
        "readable": fine,
        "in_degrees": given,
        "swappable": given & (np.abs(latitude) > 90) & (np.abs(latitude) <= 180) & (np.abs(longitude) <= 90),
        "unswappable": given & (np.abs(latitude) <= 90) & (np.abs(longitude) > 90) & (np.abs(longitude) <= 180),
        "measured": unstated,
        "beyond": in_meters & ((np.abs(x) > 180) | (np.abs(y) > 90)),
        "fine": in_meters & ((np.round(x, _DEGREE_DIGITS) != x) | (np.round(y, _DEGREE_DIGITS) != y)),
    }


def raw_batches(path: Path) -> "Iterator[pa.RecordBatch]":
    """Read a file of RAW in batches, with dictionary-encoded names."""
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path, read_dictionary=["fleet", "node", "file"])
    yield from file.iter_batches(BATCH_ROWS, use_threads=False)


def log_indices(rows: "pa.RecordBatch", naming: FleetNaming) -> tuple[Integers, list[Log], Integers]:
    """Return the log index of each row, the logs, and the number of rows of each log."""
    codes, names = zip(*(_dictionary_codes(rows[name]) for name in ("fleet", "node", "file")), strict=True)
    width = [len(one) for one in names]
    key = (codes[0] * width[1] + codes[1]) * width[2] + codes[2]
    different, place, count = np.unique(key, return_inverse=True, return_counts=True)
    logs = []
    for one in different.tolist():
        rest, file = divmod(one, width[2])
        fleet, node = divmod(rest, width[1])
        logs.append((naming.of(names[0][fleet], names[2][file]), names[1][node], names[2][file]))
    return place, logs, count


def _dictionary_codes(column: "pa.Array") -> "tuple[Integers, list[Any]]":
    """Dictionary codes of a column, and the dictionary with None as its last value."""
    import pyarrow as pa

    found = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    values = [*found.dictionary.to_pylist(), None]
    return found.indices.fill_null(len(values) - 1).to_numpy(zero_copy_only=False).astype(np.int64), values


def float_column(column: "pa.Array") -> Floats:
    """A column as floats, with NaN for null."""
    found: Floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
    return found


def find_clash(spans: Mapping[Log, tuple[float, float]]) -> tuple[str | None, str, str] | None:
    """Find the first node that has rows of two files in overlapping periods, with both files; None without one."""
    by_node: dict[tuple[str, str | None], list[tuple[float, str, float]]] = {}
    for (fleet, node, file), (low_s, high_s) in spans.items():
        by_node.setdefault((fleet, node), []).append((low_s, file, high_s))
    for (_, node), found in sorted(by_node.items(), key=lambda one: (one[0][0], one[0][1] or "")):
        clashing = []
        before: tuple[float, str] | None = None
        for low_s, file, high_s in sorted(found):
            if before is not None and low_s < before[0]:
                clashing.append((file, before[1]))
            before = max(before or (high_s, file), (high_s, file))
        if clashing:
            file, other = min(clashing)
            return node, other, file
    return None


# A transverse Mercator projection stretches by (d / R)^2 / 2 at a distance d from its central meridian: 0.5 % at
# 640 km. For larger fleets, the user chooses the projection.
MAX_SPREAD_DEG = 6.0


def choose_crs(center: FleetCenter, crs: str | None) -> str:
    """Choose the projection in PROJ's notation: the user's, or transverse Mercator around the fleet's center."""
    pyproj = _pyproj()
    if crs is None:
        if center.spread_deg > MAX_SPREAD_DEG:
            raise UserError(
                f"the fleet reaches {center.spread_deg:.0f} degrees from its middle, too far for one map without "
                "distortion: choose a map in meters with --crs, as in --crs EPSG:3035, or ingest its regions apart"
            )
        return f"+proj=tmerc +lat_0={center.latitude:g} +lon_0={center.longitude:g} +k=1 +ellps=WGS84 +units=m"
    try:
        known = pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError:
        raise UserError(f"--crs {crs!r}: PROJ knows no such map; give one as in EPSG:32632") from None
    if not known.is_projected or any(axis.unit_name != "metre" for axis in known.axis_info):
        raise UserError(f"--crs {crs}: is no map in meters; give one as in EPSG:32632")
    return crs


def _pyproj() -> Any:
    try:
        import pyproj
    except ImportError:
        raise UserError("degrees need pyproj: `pip install 'carrycast[pipeline]'`") from None
    return pyproj
