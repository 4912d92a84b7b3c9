"""Lists of contacts, as experiments with phones and badges leave them, made a contact plan."""

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from driftcast.contacts.plan import MAX_DURATION_S, MICROSECONDS, ContactPlan
from driftcast.errors import UserError
from driftcast.mobility.trace_file import TraceFile, open_plain
from driftcast.pipeline.fleets.columns import CONTACT_MEANT, chosen_columns
from driftcast.pipeline.fleets.formats import delimiter_of, start_of
from driftcast.pipeline.fleets.points import clock_s
from driftcast.pipeline.fleets.tables import natural

if TYPE_CHECKING:
    from driftcast.pipeline.fleets.ingest import Source

PLAN_FILE = "contacts.parquet"
REASONS = {
    "unreadable": "a field is missing or is no number",
    "no_time": "the contact ends when or before it begins",
    "itself": "a node in contact with itself",
    "duplicate": "said before",
}


class Row(NamedTuple):
    """A contact as it was written, by the names of its nodes; `text` if it could not be read."""

    a: str
    b: str
    start_s: float
    end_s: float
    text: str | None = None


def ingest_contacts(formats: Mapping[Path, str], folder: Path, source: "Source") -> dict[str, Any]:
    """Make a contact plan of lists, with the names of the nodes and what was rejected beside it."""
    rows, rejected = _sorted_out(formats, source)
    if not rows:
        raise UserError(f"no contact is left: {', '.join(f'{row[0]} {row[1]}' for row in rejected[:3]) or 'no rows'}")
    nodes = sorted({name for row in rows for name in (row.a, row.b)})
    nodes.sort(key=natural)
    number = {name: index for index, name in enumerate(nodes)}
    one = np.array([number[row.a] for row in rows], dtype=np.int64)
    other = np.array([number[row.b] for row in rows], dtype=np.int64)
    start_s, end_s = np.array([row.start_s for row in rows]), np.array([row.end_s for row in rows])
    begin_s = float(start_s.min())
    lasts_s = float(end_s.max()) - begin_s
    if lasts_s > MAX_DURATION_S:
        raise UserError(
            f"the contacts last {lasts_s:g} s; at most {MAX_DURATION_S:g} s are: is the time in other units?"
        )
    columns = (np.minimum(one, other), np.maximum(one, other), start_s - begin_s, end_s - begin_s)
    plan = _joined(len(nodes), lasts_s, *columns)
    plan.save(folder / PLAN_FILE)
    _save(folder / "nodes.parquet", {"number": list(range(len(nodes))), "node": nodes})
    texts = {"reason": [row[0] for row in rejected], "file": [row[1] for row in rejected]}
    _save(folder / "rejected.parquet", {**texts, "text": [row[2] for row in rejected]})
    counts = {reason: sum(row[0] == reason for row in rejected) for reason in REASONS}
    facts = {
        "files": {path.name: name for path, name in formats.items()},
        "rows": len(rows) + len(rejected),
        "rejected": {reason: count for reason, count in counts.items() if count},
        "joined": len(rows) - len(plan),
        "start_s": begin_s,
        **plan.summary(),
    }
    (folder / "contacts.json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=2))
    return facts


def _sorted_out(formats: Mapping[Path, str], source: "Source") -> tuple[list[Row], list[tuple[str, str, str]]]:
    """The rows that are fine, and the reason, file and text of the others."""
    kept: dict[tuple[str, str, float, float], Row] = {}
    rejected: list[tuple[str, str, str]] = []
    for path, name in formats.items():
        for row in _READERS[name](path, source):
            key = (min(row.a, row.b), max(row.a, row.b), row.start_s, row.end_s)
            reason = _reason(row) or ("duplicate" if key in kept else None)
            if reason is None:
                kept[key] = row
            else:
                told = row.text or f"{row.a} {row.b} {row.start_s!r} {row.end_s!r}"
                rejected.append((reason, path.name, told))
    return list(kept.values()), rejected


def _reason(row: Row) -> str | None:
    if row.text is not None:
        return "unreadable"
    if row.a == row.b:
        return "itself"
    return None if row.start_s < row.end_s else "no_time"


def _joined(nodes: int, duration_s: float, *columns: "np.ndarray[Any, Any]") -> ContactPlan:
    """A plan in which contacts of a pair that overlap or touch are one."""
    a, b, start_s, end_s = columns
    order = np.lexsort((start_s, b, a))
    a, b, start_s, end_s = a[order], b[order], start_s[order], end_s[order]
    other = (np.diff(a) != 0) | (np.diff(b) != 0)
    # A running maximum of the ends that starts anew with each pair; whole microseconds, so that no digit is lost.
    pair = np.cumsum(np.append(0, other))
    end_us = np.rint(end_s * MICROSECONDS).astype(np.int64)
    offset = pair * (int(end_us.max()) + 1)
    until_s = (np.maximum.accumulate(end_us + offset) - offset) / MICROSECONDS
    new = np.ones(len(a) + 1, dtype=np.bool_)
    new[1:-1] = other | (start_s[1:] > until_s[:-1])
    first, last = np.flatnonzero(new[:-1]), np.flatnonzero(new[1:])
    made = ContactPlan.of(nodes, duration_s, a[first], b[first], start_s[first], np.minimum(until_s[last], duration_s))
    return made.tidy()


def _save(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = {name: pa.int64() if name == "number" else pa.string() for name in columns}
    pq.write_table(pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()}), path)


def _made(fields: Sequence[str], text: str) -> Row:
    """A row of two nodes, a start and an end; fewer fields are none."""
    try:
        a, b, start, end = fields
        row = Row(a.strip(), b.strip(), clock_s(start), clock_s(end))
        if not (row.a and row.b and isfinite(row.start_s) and isfinite(row.end_s)):
            raise ValueError
        return row
    except ValueError:
        return Row("", "", 0.0, 0.0, text[:1000])


def _list_rows(path: Path, source: "Source") -> Iterator[Row]:
    """Columns apart by blanks: node, node, start, end, and what is not needed."""
    for line in TraceFile(path).lines():
        yield _made(line.split()[:4], line)


def _table_rows(path: Path, source: "Source") -> Iterator[Row]:
    """CSV with a header."""
    start = start_of(path)
    try:
        with open_plain(path) as file:
            lines = (raw.decode("utf-8-sig", errors="replace") for raw in file)
            table = csv.reader(lines, delimiter=delimiter_of(start))
            header = list(source.header) if source.header is not None else next(table, [])
            chosen = chosen_columns(header, source.columns, str(path), CONTACT_MEANT)
            if len(chosen) < len(CONTACT_MEANT):
                raise UserError(f"{path}: needs columns a, b, start and end; say which is which with --columns")
            at = [header.index(chosen[meaning]) for meaning in CONTACT_MEANT]
            for fields in table:
                if fields:
                    text = delimiter_of(start).join(fields)
                    yield _made([fields[k] for k in at] if len(fields) > max(at) else [], text)
    except csv.Error as error:
        raise UserError(f"{path}: no CSV: {error}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise UserError(f"{path}: the gzip file is cut or broken; compress it again") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _one_rows(path: Path, source: "Source") -> Iterator[Row]:
    """Connection events of the ONE, by its own reader."""
    plan = ContactPlan.from_one_events(path)
    for a, b, start_s, end_s in zip(plan.a, plan.b, plan.start_s, plan.end_s, strict=True):
        yield Row(str(a), str(b), float(start_s), float(end_s))


_READERS = {"haggle": _list_rows, "csv-contacts": _table_rows, "one-connections": _one_rows}
