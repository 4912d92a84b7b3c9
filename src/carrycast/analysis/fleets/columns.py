"""Find the columns of a user's table: by common names of fleet logs, or as the user names them."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from carrycast.errors import UserError

TIME_OF_DAY = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
DATE = r"(\d{4})(?:([-/.])(\d{1,2})\2(\d{1,2})|(\d{2})(\d{2}))"
"""Year, month and day in this order: all other orders are ambiguous."""
ZONE = r":\d{2}.*?(?:[A-Za-z]+|[+-]\d{1,2}(?::?\d{2})?)\s*$"
"""The end of a date with a time zone: Z, UTC, +02:00, Europe/Berlin."""
DAY_FIRST = r"\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}\b.*"
"""Day or month before the year."""
DECIMAL_COMMA = r"\s*([-+]?\d+),(\d+)\s*"
DATES_FROM_S = 1e8
"""Smaller numbers are not seconds since 1970, but times since the recording began, or times of day."""
COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "node": (
        *("node", "node_id", "id", "vehicle", "vehicle_id", "vehicleid", "vehicle_number", "bus", "bus_id", "taxi"),
        *("taxi_id", "device", "device_id", "ship", "mmsi", "user", "user_id", "name", "object_id", "number"),
        "individual_local_identifier",
    ),
    "time": (
        *("time", "time_s", "timestamp", "datetime", "date_time", "basedatetime", "t", "ts", "utc", "unixtime"),
        *("unix_time", "epoch", "gps_time", "recorded_at", "clock_s", "time_of_day"),
        *("time_ms", "timestamp_ms", "time_us", "timestamp_us", "time_ns", "timestamp_ns"),
    ),
    "date": ("date", "day", "gps_date", "utc_date", "date_utc", "local_date"),
    "longitude": ("longitude", "lon", "lng", "long", "lon_deg", "longitude_deg", "location_long"),
    "latitude": ("latitude", "lat", "lat_deg", "latitude_deg", "location_lat"),
    "x": ("x", "x_m", "easting"),
    "y": ("y", "y_m", "northing"),
    "fleet": ("fleet", "operator", "agency"),
}
MEASURED = frozenset(
    (
        *("accuracy", "altitude", "alt", "angle", "azimuth", "battery", "bearing", "cog", "course", "direction"),
        *("distance", "dop", "ele", "elevation", "fix", "hacc", "hdop", "heading", "height", "odometer", "pdop"),
        *("pressure", "provider", "quality", "received_at", "rssi", "sat", "satellites", "sats", "slope", "snr", "sog"),
        *("speed", "speed_kmh", "speed_mps", "temperature", "vacc", "vdop", "velocity", "z", "z_m"),
    )
)
"""Other common columns of logs: measurements, which never name a node."""
CONTACT_COLUMN_NAMES: Mapping[str, tuple[str, ...]] = {
    "a": ("a", "node_a", "node1", "id1", "i", "from", "source", "user_a", "host1"),
    "b": ("b", "node_b", "node2", "id2", "j", "to", "target", "user_b", "host2"),
    "start": ("start_s", "start", "begin", "start_time", "up", "time_start"),
    "end": ("end_s", "end", "stop", "end_time", "down", "time_end"),
}


def parse_columns(text: str | None) -> dict[str, str]:
    """Parse `node=bus,time=at` into the column of each meaning."""
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        meaning, equals, column = part.partition("=")
        if not equals or not column.strip() or meaning.strip() not in {**COLUMN_NAMES, **CONTACT_COLUMN_NAMES}:
            known = ", ".join({**COLUMN_NAMES, **CONTACT_COLUMN_NAMES})
            raise UserError(f"--columns {part!r}: give pairs such as node=bus,time=at; known are {known}")
        found[meaning.strip()] = column.strip()
    return found


def plain_name(column: str) -> str:
    """Normalize a column's name for comparison. Some logs begin their header with `#`."""
    return column.removeprefix("#").strip().lower().replace(" ", "_").replace("-", "_")


def choose_columns(
    header: Sequence[str], chosen: Mapping[str, str], where: str, meant: Mapping[str, tuple[str, ...]] = COLUMN_NAMES
) -> dict[str, str]:
    """Find the column of each meaning. A column that the user names must exist."""
    by_name: dict[str, str] = {}
    for column in header:
        by_name.setdefault(plain_name(column), column)
    found: dict[str, str] = {}
    for meaning, names in meant.items():
        if meaning in chosen:
            if chosen[meaning] not in header:
                raise UserError(f"{where}: has no column {chosen[meaning]!r}; it has {', '.join(map(repr, header))}")
            found[meaning] = chosen[meaning]
            continue
        for name in names:
            if name in by_name and by_name[name] not in chosen.values():
                found[meaning] = by_name[name]
                break
    return found


def is_positions(found: Mapping[str, str]) -> bool:
    """Whether these columns hold a time and a position."""
    return "time" in found and ({"longitude", "latitude"} <= found.keys() or {"x", "y"} <= found.keys())


def require_positions(found: Mapping[str, str], header: Sequence[str], where: str) -> None:
    """Reject a table without a time or a position."""
    if is_positions(found):
        return
    require_names(header, where)
    raise UserError(
        f"{where}: needs columns for time and for longitude and latitude (or x and y in meters); it has "
        f"{', '.join(map(repr, header))}: say which is which, as in --columns time=at,longitude=lon,latitude=lat"
    )


def require_names(header: Sequence[str], where: str) -> None:
    """Reject a table whose first line holds values."""
    if any(map(_is_number, header)):
        raise UserError(
            f"{where}: its first line holds values, not names: name its {len(header)} columns, as in "
            "--header id,time,lon,lat, or say its format, as in --format sociopatterns"
        )


def refuse_commas(columns: Mapping[str, Sequence[object]], found: Mapping[str, str], where: str) -> None:
    """Reject meters and times with a comma, which may separate decimals or thousands."""
    for meaning in ("x", "y", "time"):
        for value in columns.get(found.get(meaning, ""), ()):
            if re.fullmatch(DECIMAL_COMMA, str(value)):
                raise UserError(
                    f"{where}: {value!r} in column {found[meaning]!r} may have decimals or thousands after its comma: "
                    "give --decimal-comma for decimals, else write the file without the commas"
                )


def _is_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def refuse_unnamed(columns: Mapping[str, Sequence[object]], found: Mapping[str, str], where: str) -> None:
    """Reject a table without a known node column that has a column which may name nodes.

    Read as the log of one node, it would merge all vehicles into one. `columns` holds some values of every column.
    """
    candidates = [
        name
        for name, values in columns.items()
        if name not in found.values() and plain_name(name) not in MEASURED and _may_name(values)
    ]
    if "node" in found or not candidates:
        return
    raise UserError(
        f"{where}: no column is known to name the node; it may be {' or '.join(map(repr, candidates))}: say "
        f"--columns node={candidates[0]}, or --single if each file is the log of one node"
    )


def refuse_ambiguous(columns: Mapping[str, Sequence[object]], found: Mapping[str, str], where: str) -> None:
    """Reject a table with two different columns for one meaning, unless the user chose one."""
    by_name = {plain_name(column): column for column in columns}
    for meaning, column in found.items():
        for name in COLUMN_NAMES[meaning]:
            other = by_name.get(name)
            if other is None or other in found.values() or plain_name(column) not in COLUMN_NAMES[meaning]:
                continue
            pairs = list(zip(columns[column], columns[other], strict=False))
            # A name column and a number column of the same nodes agree if they are one-to-one.
            alike = len({one for one, _ in pairs}) == len({two for _, two in pairs}) == len(set(pairs))
            if any(one != two for one, two in pairs) and not (meaning in ("node", "fleet") and alike):
                raise UserError(
                    f"{where}: columns {column!r} and {other!r} may both be the {meaning}, and differ: say which, as "
                    f"in --columns {meaning}={other}"
                )


def _may_name(values: Sequence[object]) -> bool:
    """Whether values may be names of nodes: words or whole numbers, but not row numbers."""
    texts = [str(value).strip() for value in values if value is not None and str(value).strip()]
    if not texts:
        return False
    if not all(map(_is_number, texts)):
        return True
    numbers = [float(value) for value in texts]
    counts_rows = len(numbers) > 1 and all(after - before == 1 for before, after in pairwise(numbers))
    return all(number.is_integer() for number in numbers) and not counts_rows


def refuse_times(columns: Mapping[str, Sequence[object]], found: Mapping[str, str], where: str) -> None:
    """Reject times of day without a date, and ambiguous dates and times."""
    times = [str(value).strip() for value in columns.get(found["time"], ()) if value not in (None, "")]
    if "date" in found and times and all(_is_number(one) and abs(float(one)) < DATES_FROM_S for one in times):
        raise UserError(
            f"{where}: column {found['time']!r} has numbers beside dates, as in {times[0]!r}: say how date and time "
            "are written together, as in --time-format 'yyyy-MM-dd HHmmss'"
        )
    if "date" not in found and times and re.fullmatch(DAY_FIRST, times[0]):
        raise UserError(
            f"{where}: {times[0]!r} is no date that can be read in one way only: say how it is written, as in "
            "--time-format 'dd/MM/yyyy HH:mm:ss'"
        )
    if not times or not all(re.fullmatch(TIME_OF_DAY, one) for one in times):
        return
    if "date" not in found:
        raise UserError(
            f"{where}: column {found['time']!r} holds times of day, as in {times[0]!r}: say which column has the date, "
            "as in --columns date=day"
        )
    dates = [str(value).strip() for value in columns.get(found["date"], ()) if value is not None]
    unknown = next((one for one in dates if not re.fullmatch(DATE, one)), None)
    if unknown is not None:
        raise UserError(
            f"{where}: {unknown!r} is no date that can be read in one way only: say how date and time are written "
            "together, as in --time-format 'dd/MM/yyyy HH:mm:ss'"
        )
