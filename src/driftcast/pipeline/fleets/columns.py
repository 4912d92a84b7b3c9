"""Which column of a user's table is which: by the names that fleets' logs commonly have, or as the user says."""

from collections.abc import Mapping, Sequence

from driftcast.errors import UserError

MEANT: Mapping[str, tuple[str, ...]] = {
    "node": (
        *("node", "node_id", "id", "vehicle", "vehicle_id", "vehicleid", "vehicle_number", "bus", "bus_id", "taxi"),
        *("taxi_id", "device", "device_id", "ship", "mmsi", "user", "user_id", "name", "object_id", "number"),
    ),
    "time": (
        *("time", "time_s", "timestamp", "datetime", "date_time", "basedatetime", "t", "ts", "utc", "unixtime"),
        *("unix_time", "epoch", "gps_time", "recorded_at", "clock_s"),
    ),
    "longitude": ("longitude", "lon", "lng", "long", "lon_deg", "longitude_deg"),
    "latitude": ("latitude", "lat", "lat_deg", "latitude_deg"),
    "x": ("x", "x_m", "easting"),
    "y": ("y", "y_m", "northing"),
    "fleet": ("fleet", "operator", "agency"),
}
CONTACT_MEANT: Mapping[str, tuple[str, ...]] = {
    "a": ("a", "node_a", "node1", "id1", "i", "from", "source", "user_a", "host1"),
    "b": ("b", "node_b", "node2", "id2", "j", "to", "target", "user_b", "host2"),
    "start": ("start_s", "start", "begin", "start_time", "up", "time_start"),
    "end": ("end_s", "end", "stop", "end_time", "down", "time_end"),
}


def parse_columns(text: str | None) -> dict[str, str]:
    """`node=bus,time=at`: which column of the file is meant for what."""
    found: dict[str, str] = {}
    for part in text.split(",") if text else ():
        meaning, equals, column = part.partition("=")
        if not equals or not column.strip() or meaning.strip() not in {**MEANT, **CONTACT_MEANT}:
            known = ", ".join({**MEANT, **CONTACT_MEANT})
            raise UserError(f"--columns {part!r}: give pairs such as node=bus,time=at; known are {known}")
        found[meaning.strip()] = column.strip()
    return found


def chosen_columns(
    header: Sequence[str], said: Mapping[str, str], where: str, meant: Mapping[str, tuple[str, ...]] = MEANT
) -> dict[str, str]:
    """The column of each meaning that a table has; a column that the user names must be there."""
    by_name: dict[str, str] = {}
    for column in header:
        by_name.setdefault(column.strip().lower().replace(" ", "_"), column)
    found: dict[str, str] = {}
    for meaning, names in meant.items():
        if meaning in said:
            if said[meaning] not in header:
                raise UserError(f"{where}: has no column {said[meaning]!r}; it has {', '.join(map(repr, header))}")
            found[meaning] = said[meaning]
            continue
        for name in names:
            if name in by_name:
                found[meaning] = by_name[name]
                break
    return found


def is_positions(found: Mapping[str, str]) -> bool:
    """Whether such columns say where something is when."""
    return "time" in found and ({"longitude", "latitude"} <= found.keys() or {"x", "y"} <= found.keys())


def require_positions(found: Mapping[str, str], header: Sequence[str], where: str) -> None:
    """Refuse a table without a time or a place."""
    if not is_positions(found):
        raise UserError(
            f"{where}: needs columns for time and for longitude and latitude (or x and y in meters); it has "
            f"{', '.join(map(repr, header))}: say which is which, as in --columns time=at,longitude=lon,latitude=lat"
        )
