"""Contact lists, as experiments with phones and badges record them, read into a contact plan."""

import csv
import shutil
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from carrycast.analysis.fleets.columns import CONTACT_COLUMN_NAMES, choose_columns
from carrycast.analysis.fleets.formats import IngestFormat
from carrycast.analysis.fleets.inputs import prepare_files, restore_file_names
from carrycast.analysis.fleets.points import LATEST_S, ReadOptions, parse_clock
from carrycast.analysis.fleets.staging import lost_rows_error
from carrycast.analysis.fleets.summary import BY_WISH, MOST_REJECTED
from carrycast.analysis.fleets.tables import natural_order, refuse_wrong
from carrycast.analysis.fleets.text import BLANKS, detect_delimiter, not_text_error, read_start
from carrycast.errors import UserError
from carrycast.sim.contacts import MAX_DURATION_S, MICROSECONDS, ContactPlan
from carrycast.sim.mobility import TraceFile, decompressed_file

PLAN_FILE = "contacts.parquet"
SCENARIO_FILE = "scenario.toml"
SOCIOPATTERNS_S = 20.0
"""A row of SocioPatterns at time t states a contact from t - 20 s to t: badges report every 20 s."""
CONTACT_REASONS = {
    "unreadable": "a field is missing or is no number",
    "no_time": "the contact ends before it has lasted a microsecond",
    "itself": "a node in contact with itself",
    "duplicate": "the same row again",
}


class ContactRow(NamedTuple):
    """A contact as the file states it, with node names; an unreadable row has its `text` instead."""

    a: str
    b: str
    start_s: float
    end_s: float
    text: str | None = None


class _ContactList:
    """A file of contacts. Counts the rows that are read."""

    def __init__(self, path: Path, source: ReadOptions) -> None:
        self.path, self.source = path, source
        self.read = 0

    def parse_row(self, fields: Sequence[str], text: str) -> ContactRow:
        """Parse two nodes, a start and an end; any other number of fields is unreadable."""
        self.read += 1
        unit, zone = self.source.time_unit, self.source.time_zone
        try:
            a, b, start, end = fields
            if self.source.decimal_comma:
                start, end = start.replace(",", "."), end.replace(",", ".")
            row = ContactRow(a.strip(), b.strip(), parse_clock(start, unit, zone), parse_clock(end, unit, zone))
            if not (row.a and row.b and isfinite(row.start_s) and isfinite(row.end_s)):
                raise ValueError
            return row
        except ValueError:
            return ContactRow("", "", 0.0, 0.0, text[:1000])


def ingest_contacts(formats: Mapping[Path, IngestFormat], folder: Path, source: ReadOptions) -> dict[str, Any]:
    """Write a contact plan from lists, with tables of node names and of rejected rows; return its facts."""
    scratch = folder / ".scratch"
    scratch.mkdir()
    inputs = prepare_files(formats, source, scratch)
    with restore_file_names(inputs):
        rows, rejected, read = _sort_rows({one.plain: (one.name, one.format.name) for one in inputs}, source)
    shutil.rmtree(scratch)
    if read != len(rows) + len(rejected):
        raise lost_rows_error("the files", read, len(rows) + len(rejected))
    counts = {reason: sum(row[0] == reason for row in rejected) for reason in CONTACT_REASONS}
    counts = {reason: count for reason, count in counts.items() if count}
    if not rows:
        raise UserError(f"no contact is left: {', '.join(f'{row[0]} {row[1]}' for row in rejected[:3]) or 'no rows'}")
    refuse_wrong(len(rows), {reason: count for reason, count in counts.items() if reason == "unreadable"})
    plan, nodes, begin_s = _make_plan(rows)
    plan.save(folder / PLAN_FILE)
    _save_table(folder / "nodes.parquet", {"number": list(range(len(nodes))), "node": nodes})
    texts = {"reason": [row[0] for row in rejected], "file": [row[1] for row in rejected]}
    _save_table(folder / "rejected.parquet", {**texts, "text": [row[2] for row in rejected]})
    wrong = sum(count for reason, count in counts.items() if reason not in BY_WISH)
    facts = {
        "files": {one.name: one.format.name for one in inputs},
        "rows": read,
        "rejected": counts,
        "joined": len(rows) - len(plan),
        "start_s": begin_s,
        "status": "doubtful" if wrong > MOST_REJECTED * (read - counts.get("duplicate", 0)) else "ok",
        **plan.summary(),
    }
    (folder / SCENARIO_FILE).write_text(_scenario_text(plan), "utf-8")
    (folder / "contacts.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2))
    return facts


def _make_plan(rows: Sequence[ContactRow]) -> tuple[ContactPlan, list[str], float]:
    """Make a plan of rows; return it with the names of its nodes and its start time."""
    nodes = sorted({name for row in rows for name in (row.a, row.b)})
    nodes.sort(key=natural_order)
    number = {name: index for index, name in enumerate(nodes)}
    one = np.array([number[row.a] for row in rows], dtype=np.int64)
    other = np.array([number[row.b] for row in rows], dtype=np.int64)
    start_s, end_s = np.array([row.start_s for row in rows]), np.array([row.end_s for row in rows])
    begin_s = float(start_s.min())
    lasts_s = float(end_s.max()) - begin_s
    if lasts_s > MAX_DURATION_S or float(np.median(start_s)) >= LATEST_S:
        raise UserError(
            f"the contacts last {lasts_s:g} s, until {end_s.max():g}; at most {MAX_DURATION_S:g} s are: is the time in "
            "other units? Say what its numbers count, as in --time-unit ms"
        )
    columns = (np.minimum(one, other), np.maximum(one, other), start_s - begin_s, end_s - begin_s)
    return _join_contacts(len(nodes), lasts_s, *columns), nodes, begin_s


def _scenario_text(plan: ContactPlan) -> str:
    """An example scenario: the first hour of the contacts, and an event per minute from node 0 to all others."""
    lasts_s = min(plan.duration_s, 3600.0)
    return f"""\
name = "contacts"
duration_s = {lasts_s!r}
nodes = {plan.nodes}
contacts = "{PLAN_FILE}"        # beside this file

[protocol]
name = "epidemic"

[[subscribe]]
nodes = "all"

[[publish]]
nodes = [0]
interval_s = 60.0
to_s = {round(lasts_s / 2, 3)!r}
"""


def _sort_rows(
    files: Mapping[Path, tuple[str, str]], source: ReadOptions
) -> tuple[list[ContactRow], list[tuple[str, str, str]], int]:
    """Return the kept rows, the reason, file and text of rejected rows, and the number of rows read."""
    kept: dict[tuple[str, str, float, float], ContactRow] = {}
    rejected: list[tuple[str, str, str]] = []
    read = 0
    for path, (name, format_name) in files.items():
        of_file = _ContactList(path, source)
        for row in _READERS[format_name](of_file):
            key = (min(row.a, row.b), max(row.a, row.b), row.start_s, row.end_s)
            reason = _find_reason(row) or ("duplicate" if key in kept else None)
            if reason is None:
                kept[key] = row
            else:
                text = row.text or f"{row.a} {row.b} {row.start_s!r} {row.end_s!r}"
                rejected.append((reason, name, text))
        read += of_file.read
    return list(kept.values()), rejected, read


def _find_reason(row: ContactRow) -> str | None:
    if row.text is not None:
        return "unreadable"
    if row.a == row.b:
        return "itself"
    return None if row.end_s - row.start_s >= 1 / MICROSECONDS else "no_time"


def _join_contacts(nodes: int, duration_s: float, *columns: "np.ndarray[Any, Any]") -> ContactPlan:
    """Make a plan; join contacts of a pair that overlap or touch."""
    a, b, start_s, end_s = columns
    order = np.lexsort((start_s, b, a))
    a, b, start_s, end_s = a[order], b[order], start_s[order], end_s[order]
    other = (np.diff(a) != 0) | (np.diff(b) != 0)
    # The running maximum of the ends of each pair, in integer microseconds, so that no digit is lost.
    pair = np.cumsum(np.append(0, other))
    end_us = np.rint(end_s * MICROSECONDS).astype(np.int64)
    offset = pair * (int(end_us.max()) + 1)
    until_s = (np.maximum.accumulate(end_us + offset) - offset) / MICROSECONDS
    new = np.ones(len(a) + 1, dtype=np.bool_)
    new[1:-1] = other | (start_s[1:] > until_s[:-1])
    first, last = np.flatnonzero(new[:-1]), np.flatnonzero(new[1:])
    made = ContactPlan.of(nodes, duration_s, a[first], b[first], start_s[first], np.minimum(until_s[last], duration_s))
    return made.tidy()


def _save_table(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {name: pa.int64() if name == "number" else pa.string() for name in columns}
    pq.write_table(pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()}), path)


def _list_rows(of_file: _ContactList) -> Iterator[ContactRow]:
    """Read columns separated by blanks: node, node, start, end; further columns are ignored."""
    for line in TraceFile(of_file.path).lines():
        yield of_file.parse_row(line.split()[:4], line)


def _interval_rows(of_file: _ContactList) -> Iterator[ContactRow]:
    """Read columns t, i and j: the two nodes were in contact from t - 20 s to t; further columns are ignored."""
    for line in TraceFile(of_file.path).lines():
        fields = line.split()
        row = of_file.parse_row([*fields[1:3], *fields[:1] * 2], line)
        yield row if row.text is not None else row._replace(start_s=row.end_s - SOCIOPATTERNS_S)


def _table_rows(of_file: _ContactList) -> Iterator[ContactRow]:
    """Read CSV with a header."""
    path, source = of_file.path, of_file.source
    delimiter = detect_delimiter(read_start(path))
    try:
        with decompressed_file(path) as file:
            lines = (raw.decode("utf-8-sig") for raw in file)
            blanks = (" ".join(line.split()) + "\n" for line in lines) if delimiter == BLANKS else lines
            table = csv.reader(blanks, delimiter=delimiter)
            header = list(source.header) if source.header is not None else next(table, [])
            chosen = choose_columns(header, source.columns, str(path), CONTACT_COLUMN_NAMES)
            if len(chosen) < len(CONTACT_COLUMN_NAMES):
                raise UserError(f"{path}: needs columns a, b, start and end; say which is which with --columns")
            at = [header.index(chosen[meaning]) for meaning in CONTACT_COLUMN_NAMES]
            for fields in table:
                if fields:
                    text = delimiter.join(fields)
                    yield of_file.parse_row([fields[k] for k in at] if len(fields) > max(at) else [], text)
    except csv.Error as error:
        raise UserError(f"{path}: no CSV: {error}") from None
    except UnicodeDecodeError:
        raise UserError(not_text_error(path, "UTF-8")) from None


def _one_rows(of_file: _ContactList) -> Iterator[ContactRow]:
    """Read connection events of the ONE."""
    plan = ContactPlan.from_one_events(of_file.path)
    for a, b, start_s, end_s in zip(plan.a, plan.b, plan.start_s, plan.end_s, strict=True):
        of_file.read += 1
        yield ContactRow(str(a), str(b), float(start_s), float(end_s))


_READERS = {
    "haggle": _list_rows,
    "sociopatterns": _interval_rows,
    "csv-contacts": _table_rows,
    "one-connections": _one_rows,
}
