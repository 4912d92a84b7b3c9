"""Recorded events for `[[publish]]`, read from a CSV or JSON Lines file.

A CSV file begins with a line of column names: `time_s`, optionally `node` and `payload` (text), and the names of
attributes. An empty field means that the event lacks the attribute. A JSON Lines file has one object per line with
`time_s`, optionally `node`, `attributes`, and `payload` (text) or `payload_base64`. Errors name file and line.
"""

import csv
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from carrycast.core.model import MAX_PAYLOAD_BYTES, Scalar, check_attributes
from carrycast.errors import UserError

MAX_LINE_BYTES = 1 << 21
"""A payload of 1 MiB is 1.4 MB in base64."""
MAX_FILE_EVENTS = 2_000_000
MAX_TIME_S = 1e9
SUFFIXES = (".csv", ".jsonl")

_WHOLE = re.compile(r"[+-]?\d{1,19}")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class RecordedEvent(NamedTuple):
    """One event of a file. If it names no node, one of the nodes of the `[[publish]]` entry publishes it."""

    time_s: float
    node: int | None
    attributes: dict[str, Scalar]
    payload: bytes


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    time_s: Annotated[float, Meta(ge=0, le=MAX_TIME_S)]
    node: Annotated[int, Meta(ge=0)] | None = None
    attributes: dict[str, Scalar] = {}
    payload: str = ""
    payload_base64: bytes = b""


def read_events(path: Path, nodes: int) -> list[RecordedEvent]:
    """Read the events of a file, in the order of its lines. A UserError names the line that is wrong."""
    if path.suffix not in SUFFIXES:
        raise UserError(f"{path}: events are read from {' or '.join(SUFFIXES)}")
    read = _read_csv_events if path.suffix == ".csv" else _read_json_events
    found: list[RecordedEvent] = []
    for line, event in read(path):
        if event.node is not None and event.node >= nodes:
            raise _line_error(path, line, f"there is no node {event.node}; nodes are 0 to {nodes - 1}")
        if len(event.payload) > MAX_PAYLOAD_BYTES:
            raise _line_error(path, line, f"the payload is longer than {MAX_PAYLOAD_BYTES} bytes")
        try:
            check_attributes(event.attributes)
        except ValueError as error:
            raise _line_error(path, line, str(error)) from None
        if len(found) == MAX_FILE_EVENTS:
            raise _line_error(path, line, f"more than {MAX_FILE_EVENTS:,} events; cut the file in time")
        found.append(event)
    return found


def _read_json_events(path: Path) -> Iterator[tuple[int, RecordedEvent]]:
    decoder = msgspec.json.Decoder(_Line)
    for number, text in _read_lines(path):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except msgspec.MsgspecError as error:
            raise _line_error(path, number, str(error)) from None
        if line.payload and line.payload_base64:
            raise _line_error(path, number, "payload and payload_base64 are two; give one of them")
        yield (
            number,
            RecordedEvent(line.time_s, line.node, line.attributes, line.payload_base64 or line.payload.encode()),
        )


def _read_csv_events(path: Path) -> Iterator[tuple[int, RecordedEvent]]:
    # The reader gets whole lines of bounded length; a quoted field may span several of them.
    reader = csv.reader((text for _, text in _read_lines(path)), strict=True)
    names: list[str] | None = None
    while True:
        try:
            fields = next(reader, None)
        except csv.Error as error:
            raise _line_error(path, reader.line_num, str(error)) from None
        if fields is None:
            return
        if not fields:
            continue
        if names is None:
            names = [name.strip() for name in fields]
            if "time_s" not in names or "" in names or len(set(names)) != len(names):
                raise _line_error(
                    path, reader.line_num, "the first line names the columns, each once, time_s among them"
                )
        elif len(fields) != len(names):
            raise _line_error(path, reader.line_num, f"{len(fields)} fields, but the first line names {len(names)}")
        else:
            yield reader.line_num, _parse_csv_event(path, reader.line_num, dict(zip(names, fields, strict=True)))


def _parse_csv_event(path: Path, line: int, fields: dict[str, str]) -> RecordedEvent:
    time_s, node, payload = fields.pop("time_s").strip(), fields.pop("node", "").strip(), fields.pop("payload", "")
    at_s = float(time_s) if _NUMBER.fullmatch(time_s) else math.nan
    if not 0 <= at_s <= MAX_TIME_S:
        raise _line_error(path, line, f"time_s: {time_s[:40]!r} is no number of seconds from 0 to {MAX_TIME_S:g}")
    if node and not re.fullmatch(r"\d{1,9}", node):
        raise _line_error(path, line, f"node: {node[:40]!r} is no number of a node")
    attributes = {name: _parse_value(text) for name, text in fields.items() if text.strip()}
    return RecordedEvent(at_s, int(node) if node else None, attributes, payload.encode())


def _parse_value(text: str) -> Scalar:
    """Parse a field as an integer, a float, or true or false; anything else stays text."""
    word = text.strip()
    if _WHOLE.fullmatch(word):
        return int(word)
    if _NUMBER.fullmatch(word):
        return float(word)
    return {"true": True, "false": False}.get(word, text)


def _read_lines(path: Path) -> Iterator[tuple[int, str]]:
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(raw) > MAX_LINE_BYTES:
                    raise _line_error(path, number, f"longer than {MAX_LINE_BYTES} bytes")
                try:
                    yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
                except UnicodeDecodeError:
                    raise _line_error(path, number, "not text in UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _line_error(path: Path, line: int, what: str) -> UserError:
    return UserError(f"{path}:{line}: {what}")
