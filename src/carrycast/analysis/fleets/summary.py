"""Checks and summarizes a fleet's folder after it is written: row counts, area, period and speeds."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carrycast.analysis.fleets.columns import DATES_FROM_S
from carrycast.analysis.fleets.staging import lost_rows_error
from carrycast.sim.mobility import LEGS_FOLDER, Floats

if TYPE_CHECKING:
    import pyarrow as pa

MOST_REJECTED = 0.1
"""With a larger share of wrong rows, a fleet's status is `doubtful`."""
BY_WISH = frozenset({"outside", "duplicate"})
"""Reasons that do not make a fleet doubtful."""
# Speeds are counted in a logarithmic histogram with steps of half a percent, in constant memory.
_STEP = 0.005
_SLOWEST_MPS, _FASTEST_MPS = 1e-3, 1e6


def check_rows(folder: Path, facts: dict[str, Any]) -> None:
    """Raise a WorkError unless every row that was read is in one of the tables."""
    rejected = sum(facts["rejected"].values())
    written = _count_rows(folder / "rejected")
    if written != rejected:
        raise lost_rows_error("the table of rejected rows", rejected, written)
    held = _count_rows(folder / "positions")
    kept = facts["positions"] if facts["resampled"] is None else facts["resampled"]
    if held != kept:
        raise lost_rows_error("the table of positions", kept, held)
    if facts["rows"] != facts["positions"] + rejected:
        raise lost_rows_error("the files", facts["rows"], facts["positions"] + rejected)


def _count_rows(folder: Path) -> int:
    import pyarrow.parquet as pq

    return sum(int(pq.read_metadata(path).num_rows) for path in folder.glob("*.parquet"))


def summarize_fleet(folder: Path, facts: dict[str, Any]) -> dict[str, Any]:
    """The geographic bounds, speed quantiles and status of a fleet."""
    wrong = sum(count for reason, count in facts["rejected"].items() if reason not in BY_WISH)
    asked = facts["rows"] - sum(facts["rejected"].get(reason, 0) for reason in BY_WISH)
    doubtful = wrong > MOST_REJECTED * asked
    return {**_find_bounds(folder), **_measure_speeds(folder), "status": "doubtful" if doubtful else "ok"}


def _find_bounds(folder: Path) -> dict[str, Any]:
    """Find west, south, east and north of the fleet. Across 180 degrees, west is greater than east."""
    lows: list[float] = []
    highs: list[float] = []
    middle: float | None = None
    for batch in _read_batches(folder / "positions", "longitude", "latitude"):
        longitude, latitude = (
            batch[name].drop_null().to_numpy(zero_copy_only=False) for name in ("longitude", "latitude")
        )
        if not len(longitude):
            continue
        if middle is None:
            middle = float(longitude[0])
        # Longitudes are relative to the first one, so a fleet across 180 degrees stays in one piece.
        away = (longitude - middle + 540) % 360 - 180
        lows += [float(away.min()), float(latitude.min())]
        highs += [float(away.max()), float(latitude.max())]
    if middle is None:
        return {"bounds_deg": None, "center_deg": None}
    west, east = min(lows[::2]), max(highs[::2])
    south, north = min(lows[1::2]), max(highs[1::2])
    bounds = [_wrap_longitude(middle + west), south, _wrap_longitude(middle + east), north]
    center = [_wrap_longitude(middle + (west + east) / 2), (south + north) / 2]
    return {"bounds_deg": [round(one, 6) for one in bounds], "center_deg": [round(one, 4) for one in center]}


def _wrap_longitude(longitude: float) -> float:
    return (longitude + 180) % 360 - 180


def _measure_speeds(folder: Path) -> dict[str, Any]:
    """Measure quantiles of speed over the time that nodes move, within half a percent."""
    cells = int(np.log(_FASTEST_MPS / _SLOWEST_MPS) / _STEP) + 2
    lasting_s: Floats = np.zeros(cells)
    for batch in _read_batches(folder / LEGS_FOLDER, "start_s", "end_s", "vx_mps", "vy_mps"):
        start_s, end_s, vx_mps, vy_mps = (column.to_numpy(zero_copy_only=False) for column in batch.columns)
        speed = np.hypot(vx_mps, vy_mps)
        moving = speed > 0
        cell = np.log(np.clip(speed[moving], _SLOWEST_MPS, _FASTEST_MPS) / _SLOWEST_MPS) / _STEP
        lasting_s += np.bincount(np.rint(cell).astype(np.int64), (end_s - start_s)[moving], cells)
    if not lasting_s.any():
        return {"speed_p50_mps": 0.0, "speed_p95_mps": 0.0}
    share = np.cumsum(lasting_s) / lasting_s.sum()
    found = [_SLOWEST_MPS * float(np.exp(_STEP * int(np.searchsorted(share, one)))) for one in (0.5, 0.95)]
    return {"speed_p50_mps": float(f"{found[0]:.3g}"), "speed_p95_mps": float(f"{found[1]:.3g}")}


def _read_batches(folder: Path, *columns: str) -> "Iterator[pa.RecordBatch]":
    import pyarrow.dataset as ds

    yield from ds.dataset(folder, format="parquet").to_batches(columns=list(columns))


def fleet_sentences(facts: dict[str, Any]) -> list[str]:
    """Sentences about area, period, nodes and speeds; of contact lists, about the period only."""
    begin_s, end_s = facts["start_s"], facts["start_s"] + facts["duration_s"]
    nodes = "1 node" if facts["nodes"] == 1 else f"{facts['nodes']:,} nodes"
    sentences = [f"when: {_time_text(begin_s)} to {_time_text(end_s)}"]
    zone = facts.get("time_zone")
    if zone is not None:
        taken = "if they are local times, give --time-zone, as in --time-zone Europe/Berlin"
        sentences.append(f"dates that name no time zone are taken as {zone}" + (f"; {taken}" if zone == "UTC" else ""))
    if "legs" in facts:
        sentences = [
            f"where: {_place_text(facts)}",
            *sentences,
            f"who: {nodes}; while they move, half of the time up to {_speed_text(facts['speed_p50_mps'])}, 95 % of it "
            f"up to {_speed_text(facts['speed_p95_mps'])}",
        ]
    if facts["status"] != "ok":
        wrong = sum(count for reason, count in facts["rejected"].items() if reason not in BY_WISH)
        sentences.append(
            f"DOUBTFUL: {wrong:,} of {facts['rows']:,} rows are rejected for what is wrong with them: see `rejected`"
        )
    return sentences


def _place_text(facts: dict[str, Any]) -> str:
    if facts["bounds_deg"] is None:
        width, height = (one / 1000 for one in facts["area_m"])
        return f"{width:.3g} x {height:.3g} km, in meters of the files: nothing says where on earth"
    west, south, east, north = facts["bounds_deg"]
    longitude, latitude = facts["center_deg"]
    return (
        f"around {degrees_text(longitude, latitude)}, from {degrees_text(west, south)} to {degrees_text(east, north)}"
    )


def degrees_text(longitude: float, latitude: float) -> str:
    """A position as text."""
    return (
        f"{abs(latitude):.4f}° {'N' if latitude >= 0 else 'S'} {abs(longitude):.4f}° {'E' if longitude >= 0 else 'W'}"
    )


def _speed_text(speed_mps: float) -> str:
    return f"{speed_mps:.3g} m/s ({3.6 * speed_mps:.3g} km/h)"


def _time_text(time_s: float) -> str:
    return date_text(time_s) or f"{time_s:g} s"


def date_text(time_s: float) -> str | None:
    """A time as a date; None if the number is not one."""
    if time_s < DATES_FROM_S:
        return None
    try:
        return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return None
