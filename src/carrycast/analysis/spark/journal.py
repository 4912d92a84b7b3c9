"""What one task of a sweep has done, line by line, in a file of its own: cheap to add to, whole but for its last line.

A line that begins with `>` says that a run begins, one that begins with `{` is the record of a run that is over, and
one with `<` says that its worker gave it up, and did not die of it. The first line says which columns the records have.
A worker that dies leaves at most its last line cut; who does its task next finds in its file what is done, and which
run it died of.
"""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from carrycast.analysis.spark.records import SCHEMA_VERSION, Record, json_text, json_value, record_ddl
from carrycast.version import FORMER_NAME

SUFFIX = ".journal"
_HEAD = f"# carrycast.runs {SCHEMA_VERSION} {record_ddl()}".encode()
_FORMER_HEAD = _HEAD.replace(b"carrycast", FORMER_NAME.encode(), 1)
_START = b">"
_GIVEN_UP = b"<"
_RECORD = b"{"


class Journal:
    """The journal of a task, for the worker that does it."""

    def __init__(self, folder: Path, task: int) -> None:
        """Takes over what earlier workers of the same task have left."""
        self.done: dict[str, Record] = {}
        """The runs that are over, by key."""
        self.deaths: dict[str, int] = {}
        """How many workers began a run and never came to its end."""
        for path in sorted(folder.glob(f"task-{task}-*{SUFFIX}")):
            open_runs: dict[str, None] = {}
            for line in whole_lines(path):
                if line.startswith(_START):
                    open_runs[line[1:].decode()] = None
                elif line.startswith(_GIVEN_UP):
                    open_runs.pop(line[1:].decode(), None)
                elif (record := _record(line)) is not None:
                    self.done[str(record["key"])] = record
                    open_runs.pop(str(record["key"]), None)
            for key in open_runs:
                self.deaths[key] = self.deaths.get(key, 0) + 1
        number = 1
        while (path := folder / f"task-{task}-{number:03d}-{os.getpid()}{SUFFIX}").exists():
            number += 1
        # Every line goes to the system at once: it outlives this process, and lines of one write are never mixed.
        self._file = path.open("xb", buffering=0)
        self._write(_HEAD)

    def start(self, key: str) -> None:
        """A run begins."""
        self._write(_START + key.encode())

    def give_up(self, key: str) -> None:
        """A run that has begun is left for another time."""
        self._write(_GIVEN_UP + key.encode())

    def add(self, record: Record) -> None:
        """A run is over."""
        self._write(json_text(record).encode())

    def _write(self, line: bytes) -> None:
        if self._file.write(line + b"\n") != len(line) + 1:
            # A disk that fills up takes a part of a line and says nothing.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def whole_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file but one that is cut."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def journal_records(path: Path) -> list[Record] | None:
    """The runs that are over by a journal; None if it has other columns than this version, or is no journal."""
    lines = whole_lines(path)
    # One that is cut within its first line has nothing to lose.
    if next(lines, _HEAD) not in (_HEAD, _FORMER_HEAD):
        return None
    found: list[Record] = []
    for line in lines:
        if line.startswith(_RECORD):
            record = _record(line)
            if record is None:
                return None
            found.append(record)
    return found


class Count:
    """How many runs the journals of a folder have finished, counted as they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, int] = {}
        self._total = 0

    def __call__(self) -> int:
        """As many as there are by now."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            with path.open("rb") as file:
                file.seek(self._seen.get(path.name, 0))
                new = file.read()
            # A line's end is kept for the next time: it says that what follows is a line.
            end = max(0, new.rfind(b"\n"))
            self._total += new[:end].count(b"\n" + _RECORD)
            self._seen[path.name] = self._seen.get(path.name, 0) + end
        return self._total


def _record(line: bytes) -> Record | None:
    try:
        record = json_value(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "key" in record else None
