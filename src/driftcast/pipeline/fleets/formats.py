"""The formats of files that a fleet may come in, known by name or by their look."""

import gzip
import re
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from driftcast.errors import UserError
from driftcast.mobility.trace_file import open_plain
from driftcast.pipeline.fleets.columns import CONTACT_MEANT, chosen_columns

SNIFFED_BYTES = 1 << 16
PARQUET_MAGIC = b"PAR1"
DELIMITERS = ",;\t|"
_NUMBER = r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?"


class Format(NamedTuple):
    """A kind of file. `kind` is what it tells: positions that were measured, movement that a simulator states, or
    contacts."""

    name: str
    kind: str
    summary: str
    looks: Callable[[str], bool]
    """Whether the start of a file, as text, is that of one."""


def _text_lines(start: str) -> list[str]:
    """The lines that matter, without the last where it may be cut."""
    cut = "\n" in start and not start.endswith("\n")
    lines = [line.strip() for line in start.splitlines()[: -1 if cut else None]]
    return [line for line in lines if line and not line.startswith("#")]


def _numbers(start: str, least: int, divisor: int = 1) -> bool:
    lines = _text_lines(start)[:20]
    counts = [len(line.split()) if re.fullmatch(rf"(?:{_NUMBER}\s*)+", line) else 0 for line in lines]
    return bool(lines) and all(count >= least and count % divisor == 0 for count in counts)


def _is_one_movement(start: str) -> bool:
    """A first line of bounds, then `time id x y`."""
    lines = _text_lines(start)
    if len(lines) < 2 or len(lines[0].split()) not in (6, 8) or not _numbers(lines[0], 6):
        return False
    low_to_high = [float(word) for word in lines[0].split()]
    ordered = all(low <= high for low, high in zip(low_to_high[::2], low_to_high[1::2], strict=True))
    return ordered and all(len(line.split()) == 4 for line in lines[1:20])


def _is_contact_list(start: str) -> bool:
    """Two whole numbers and two times, the second not before the first; perhaps more, the same in each line."""
    rows = [line.split() for line in _text_lines(start)[:20]]
    alike = len({len(row) for row in rows}) == 1 and 4 <= len(rows[0]) <= 6
    return (
        alike
        and _numbers(start, 4)
        and all(row[0].isdecimal() and row[1].isdecimal() and float(row[2]) <= float(row[3]) for row in rows)
    )


def _is_table(start: str) -> bool:
    header = next(iter(start.splitlines()), "")
    return any(mark in header for mark in DELIMITERS)


def _is_contact_table(start: str) -> bool:
    if not _is_table(start):
        return False
    header = split_header(start)
    return {"a", "b", "start", "end"} <= chosen_columns(header, {}, "", CONTACT_MEANT).keys()


def _begins(mark: str) -> Callable[[str], bool]:
    return lambda start: start.lstrip("\ufeff \t\r\n").startswith("<") and mark in start


# In the order in which they are tried: those that are told by a mark of their own first.
FORMATS: Mapping[str, Format] = {
    one.name: one
    for one in (
        Format("sumo", "movement", "floating car data of SUMO (FCD, XML)", _begins("<fcd-export")),
        Format("gpx", "positions", "GPS tracks (GPX, XML)", _begins("<gpx")),
        Format(
            "geojson",
            "positions",
            "GeoJSON: a collection or a feature a line, points or lines with times",
            lambda start: start.lstrip("\ufeff \t\r\n").startswith("{") and '"type"' in start,
        ),
        Format("ns2", "movement", "ns-2 movement (setdest)", lambda start: "$node_" in start or "$god_" in start),
        Format(
            "one-connections",
            "contacts",
            "connection events of the ONE (CONN lines)",
            lambda start: re.search(r"^\s*\S+\s+CONN\s", start, re.MULTILINE) is not None,
        ),
        Format("one", "movement", "external movement of the ONE", _is_one_movement),
        Format("csv-contacts", "contacts", "contacts as CSV: a, b, start, end", _is_contact_table),
        Format("csv", "positions", "a GPS log as CSV, with a header", _is_table),
        Format(
            "haggle",
            "contacts",
            "contact lists of Haggle and CRAWDAD: node node start end, in columns",
            _is_contact_list,
        ),
        Format(
            "bonnmotion",
            "movement",
            "movement of BonnMotion (a line of waypoints for each node)",
            lambda start: _numbers(start, 3, 3),
        ),
        Format("parquet", "positions", "a GPS log as Parquet", lambda start: False),
    )
}


def format_named(name: str) -> Format:
    """By its name; a UserError with the list if there is none."""
    if name not in FORMATS:
        raise UserError(f"--format {name!r}: no such format; known are {', '.join(FORMATS)}")
    return FORMATS[name]


def format_of(path: Path) -> Format:
    """By the look of a file; a UserError with the list if it looks like none."""
    start = start_of(path)
    if start[:4].encode("utf-8", errors="replace") == PARQUET_MAGIC:
        return FORMATS["parquet"]
    if not start.strip():
        raise UserError(f"{path}: is empty; known formats are {', '.join(FORMATS)}")
    for one in FORMATS.values():
        if "\x00" not in start and one.looks(start):
            return one
    known = "; ".join(f"{one.name} ({one.summary})" for one in FORMATS.values())
    raise UserError(f"{path}: is of no known format. Known are: {known}. If it is one of them, say --format NAME")


def start_of(path: Path) -> str:
    """The beginning of a file as text, unpacked if need be."""
    try:
        with open_plain(path) as file:
            return file.read(SNIFFED_BYTES).decode("utf-8", errors="replace").lstrip("\ufeff")
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path}: the gzip file is cut or broken; compress it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def delimiter_of(start: str) -> str:
    """What stands between the columns of a table: the most frequent candidate of its first line."""
    header = next(iter(start.splitlines()), "")
    return max(DELIMITERS, key=lambda mark: (header.count(mark), -DELIMITERS.index(mark)))


def split_header(start: str) -> list[str]:
    """The names of the columns of a table."""
    import csv

    return next(csv.reader([next(iter(start.splitlines()), "")], delimiter=delimiter_of(start)), [])
