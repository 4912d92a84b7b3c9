"""File formats of fleets, found by name or detected by content."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from carrycast.analysis.fleets.columns import CONTACT_COLUMN_NAMES, choose_columns
from carrycast.analysis.fleets.geojson import GeoJsonFile
from carrycast.analysis.fleets.gpx import GpxFile
from carrycast.analysis.fleets.text import (
    BLANKS,
    SNIFFED_BYTES,
    complete_lines,
    detect_delimiter,
    is_xml_with,
    read_start,
    split_header,
)
from carrycast.core.file_formats import FileFormat
from carrycast.core.plugins import find_plugin, plugin_names
from carrycast.errors import UserError

PARQUET_MAGIC = "PAR1"
_NUMBER = r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?"
_NUMBERS = re.compile(rf"(?:{_NUMBER}\s+)*{_NUMBER}")


class IngestFormat(NamedTuple):
    """A file format that `ingest` reads.

    `kind` is `positions` for measured positions, `movement` for a simulator's movement, or `contacts`.
    """

    name: str
    kind: str
    summary: str
    recognizes: Callable[[str], bool]
    """Whether a file that starts with this text has the format."""


def _rows_of_numbers(start: str) -> list[list[float]]:
    """Parse the lines of a text of numbers; empty if the text has anything else."""
    lines = [line.strip() for line in complete_lines(start)]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not all(_NUMBERS.fullmatch(line) for line in lines):
        return []
    rows = [[float(word) for word in line.split()] for line in lines]
    if rows and len(start) >= SNIFFED_BYTES and not set("\r\n") & set(start):
        # The only line is longer than what was read: its last waypoint may be cut.
        rows = [rows[0][: (len(rows[0]) - 1) // 3 * 3]]
    return rows


def _matches_nothing(_: str) -> bool:
    """For formats that no mark identifies: `_numeric_format` or `format_of` detects them."""
    return False


def _is_one_movement(rows: Sequence[Sequence[float]]) -> bool:
    """Whether rows are a line of bounds, then lines `time id x y`."""
    if len(rows) < 2 or len(rows[0]) not in (6, 8):
        return False
    ordered = all(low <= high for low, high in zip(rows[0][::2], rows[0][1::2], strict=True))
    return ordered and all(len(row) == 4 for row in rows[1:])


def _is_contact_list(rows: Sequence[Sequence[float]]) -> bool:
    """Whether rows begin with two whole numbers and two times, the second not before the first."""
    return 4 <= len(rows[0]) <= 6 and all(
        row[0].is_integer() and row[1].is_integer() and row[0] >= 0 and row[1] >= 0 and row[2] <= row[3] for row in rows
    )


def _may_be_positions(rows: Sequence[Sequence[float]]) -> bool:
    """Whether rows that look like contacts may also be `id time x y`.

    They may if no two rows share their first two numbers, as repeated contacts of a pair do, or if the other two
    numbers may be degrees.
    """
    once = len(rows) > 2 and len({tuple(row[:2]) for row in rows}) == len(rows)
    return once or all(abs(row[2]) <= 180 and abs(row[3]) <= 180 for row in rows)


def _is_bonnmotion(rows: Sequence[Sequence[float]]) -> bool:
    """Whether rows are triples of time, x and y with rising times."""
    return all(len(row) % 3 == 0 and list(row[::3]) == sorted(row[::3]) for row in rows)


def _numeric_format(rows: Sequence[Sequence[float]], path: Path) -> str | None:
    """Detect the format of a text of numbers; a UserError if several are possible."""
    if not rows or _is_one_movement(rows):
        return "one" if rows else None
    if len({len(row) for row in rows}) > 1:
        return "bonnmotion" if _is_bonnmotion(rows) else None
    columns = len(rows[0])
    found = {}
    if columns > 3 and _is_contact_list(rows):
        found["haggle"] = "contacts (--format haggle)"
    # BonnMotion writes a line for each node, and all begin at the same time.
    if columns == 3 or (columns % 3 == 0 and _is_bonnmotion(rows) and all(row[0] == 0 for row in rows)):
        found["bonnmotion"] = "movement of BonnMotion (--format bonnmotion)"
    if columns == 3 and all(row[1].is_integer() and row[2].is_integer() for row in rows):
        found["sociopatterns"] = "contacts `t i j` (--format sociopatterns)"
    if columns == 3 or ("haggle" in found and _may_be_positions(rows)):
        header = "time,x,y" if columns == 3 else "id,time,lon,lat" + "".join(f",c{k}" for k in range(4, columns))
        found["table"] = f"a table without names (--header {header})"
    if len(found) > 1:
        raise UserError(f"{path}: {columns} columns of numbers may be {', or '.join(found.values())}: say which")
    return next(iter(found), None)


def _is_table(start: str) -> bool:
    return detect_delimiter(start) != BLANKS


def _is_contact_table(start: str) -> bool:
    return _is_table(start) and _has_contacts(split_header(start))


def _has_contacts(header: Sequence[str]) -> bool:
    return {"a", "b", "start", "end"} <= choose_columns(header, {}, "", CONTACT_COLUMN_NAMES).keys()


FILE_FORMATS = {
    "gpx": "carrycast.analysis.fleets.gpx:GpxFile",
    "geojson": "carrycast.analysis.fleets.geojson:GeoJsonFile",
}
"""The built-in formats of positions, for the registry of plug-ins."""


def _describe_plugin(plugin: type[FileFormat]) -> IngestFormat:
    return IngestFormat(plugin.name, plugin.content, plugin.summary, plugin.recognizes)


# Formats are tried in this order.
FORMATS: Mapping[str, IngestFormat] = {
    one.name: one
    for one in (
        IngestFormat(
            "sumo", "movement", "floating car data of SUMO (FCD, XML)", lambda start: is_xml_with(start, "<fcd-export")
        ),
        _describe_plugin(GpxFile),
        _describe_plugin(GeoJsonFile),
        IngestFormat("ns2", "movement", "ns-2 movement (setdest)", lambda start: "$node_" in start or "$god_" in start),
        IngestFormat(
            "one-connections",
            "contacts",
            "connection events of the ONE (CONN lines)",
            lambda start: re.search(r"^\s*\S+\s+CONN\s", start, re.MULTILINE) is not None,
        ),
        IngestFormat("one", "movement", "external movement of the ONE", _matches_nothing),
        IngestFormat("csv-contacts", "contacts", "contacts as CSV: a, b, start, end", _is_contact_table),
        IngestFormat("csv", "positions", "a GPS log as CSV, with a header", _is_table),
        IngestFormat(
            "haggle",
            "contacts",
            "contact lists of Haggle and CRAWDAD: node node start end, in columns",
            _matches_nothing,
        ),
        IngestFormat(
            "sociopatterns", "contacts", "contacts of SocioPatterns: t i j, from t - 20 s to t", _matches_nothing
        ),
        IngestFormat(
            "bonnmotion",
            "movement",
            "movement of BonnMotion (a line of waypoints for each node)",
            _matches_nothing,
        ),
        IngestFormat("parquet", "positions", "a GPS log as Parquet", _matches_nothing),
    )
}


_MARKED = ("sumo", "gpx", "geojson", "ns2", "one-connections")
"""Formats with a mark that no table has."""


def installed_formats() -> dict[str, IngestFormat]:
    """The file formats that installed packages add as plug-ins."""
    names = [name for name in plugin_names("file_formats") if name not in FORMATS]
    found = {name: _describe_plugin(find_plugin("file_formats", name)) for name in names}
    # Plug-ins cannot add formats of contacts: `contact_lists` has fixed readers.
    return {name: one for name, one in found.items() if one.kind in ("positions", "movement")}


def format_named(name: str) -> IngestFormat:
    """Find a format by name; a UserError lists the known names."""
    known = FORMATS if name in FORMATS else {**FORMATS, **installed_formats()}
    if name not in known:
        raise UserError(f"--format {name!r}: no such format; known are {', '.join(known)}")
    return known[name]


def format_of(path: Path, encoding: str | None = None, header: Sequence[str] | None = None) -> IngestFormat:
    """Detect the format of a file by its content.

    A UserError lists the known formats if none fits, and the options that decide if several do. A file whose columns
    the user names (`header`) is a table, unless it has the mark of another format.
    """
    start = read_start(path, encoding)
    if start[:4] == PARQUET_MAGIC:
        return FORMATS["parquet"]
    if not start.strip():
        raise UserError(f"{path}: is empty; known formats are {', '.join(FORMATS)}")
    if header is not None and not any(FORMATS[name].recognizes(start) for name in _MARKED):
        return FORMATS["csv-contacts" if _has_contacts(header) else "csv"]
    installed = installed_formats()
    plugin = next((one for one in installed.values() if one.recognizes(start)), None)
    if "\x00" in start:
        found = plugin
    else:
        name = _numeric_format(_rows_of_numbers(start), path) if plugin is None else None
        marked = next((FORMATS[one] for one in _MARKED if FORMATS[one].recognizes(start)), None)
        others = (one for one in FORMATS.values() if one.recognizes(start))
        found = FORMATS[name] if name else marked or plugin or next(others, None)
    if found is not None:
        return found
    known = "; ".join(f"{one.name} ({one.summary})" for one in (*FORMATS.values(), *installed.values()))
    raise UserError(
        f"{path}: is of no known format. Known are: {known}. If it is one of them, say --format NAME; a table without "
        "names needs them, as in --header id,time,lon,lat"
    )
