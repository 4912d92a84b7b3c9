"""What one task of a sweep has done, line by line, in a file of its own: cheap to add to, whole but for its last line.

A line that begins with `>` says that a run begins, one that begins with `{` is the record of a run that is over, and
one with `<` says that its worker gave it up, and did not die of it. The first line says which columns the records have.
A worker that dies leaves at most its last line cut; who does its task next finds in its file what is done, and which
run it died of."""

import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from carrycast.analysis.spark.output import atomic_file
from carrycast.analysis.spark.records import (
    SCHEMA_VERSION,
    Record,
    is_record_schema,
    json_text,
    json_value,
    record_ddl,
    record_table,
)
from carrycast.version import FORMER_NAME

if TYPE_CHECKING:
    import pyarrow as pa

SUFFIX = ".journal"
_HEAD = f"# carrycast.runs {SCHEMA_VERSION} {record_ddl()}".encode()
_FORMER_HEAD = _HEAD.replace(b"carrycast", FORMER_NAME.encode(), 1)
_START = b">"
_GIVEN_UP = b"<"
_RECORD = b"{"


class TaskJournal:
    """The journal of a task, for the worker that does it."""

    def __init__(self, folder: Path, task: int) -> None:
        """Takes over what earlier workers of the same task have left."""
        self.done: dict[str, Record] = {}
        """The runs that are over, by key."""
        self.deaths: dict[str, int] = {}
        """How many workers began a run and never came to its end."""
        for path in sorted(folder.glob(f"task-{task}-*{SUFFIX}")):
            open_runs: dict[str, None] = {}
            for line in complete_lines(path):
                if line.startswith(_START):
                    open_runs[line[1:].decode()] = None
                elif line.startswith(_GIVEN_UP):
                    open_runs.pop(line[1:].decode(), None)
                elif (record := _parse_record(line)) is not None:
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

    def __enter__(self) -> "TaskJournal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def complete_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file but one that is cut."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def read_journal(path: Path) -> list[Record] | None:
    """The runs that are over by a journal; None if it has other columns than this version, or is no journal."""
    lines = complete_lines(path)
    # One that is cut within its first line has nothing to lose.
    if next(lines, _HEAD) not in (_HEAD, _FORMER_HEAD):
        return None
    found: list[Record] = []
    for line in lines:
        if line.startswith(_RECORD):
            record = _parse_record(line)
            if record is None:
                return None
            found.append(record)
    return found


class FinishedRunCounter:
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


def _parse_record(line: bytes) -> Record | None:
    try:
        record = json_value(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) and "key" in record else None


COMPACTED = "folded.parquet"
QUARANTINE_FOLDER = "set-aside"


class RunLog:
    """The folder `runs/` of a sweep's output. Workers write journals in it, the driver counts, reads and folds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set_aside: list[Path] = []
        """Files that were found unusable, where they are kept now."""
        self.count = FinishedRunCounter(folder)

    def open(self) -> "pa.Table":
        """Make the folder, forget what an earlier sweep left half written, and fold; all that finished without error.

        A failed run is tried anew by the next sweep.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path.name.startswith("."):
                path.unlink(missing_ok=True)
        loose = self._loose()
        kept = self.finished()
        if loose:
            self._fold(kept, loose)
        return kept

    def finished(self) -> "pa.Table":
        """The rows of every run that finished without an error, each once. What is cut or has other columns is set
        aside."""
        import pyarrow as pa
        import pyarrow.compute as pc

        tables: list[pa.Table] = []
        for path in [self.folder / COMPACTED, *self._loose()]:
            if path.suffix == SUFFIX:
                records = read_journal(path)
                table = None if records is None else record_table(records)
            elif path.exists():
                table = _read_compacted(path)
            else:
                continue
            if table is None:
                self.put_aside(path)
            else:
                tables.append(table)
        found = pa.concat_tables(tables or [record_table([])])
        found = found.filter(pc.is_null(found["error"]))
        return found if len(tables) < 2 else _latest(found)

    def close(self, kept: "pa.Table") -> None:
        """Fold what is kept, in place of the journals that it was in."""
        self._fold(kept, self._loose())

    def put_aside(self, path: Path) -> None:
        """Beside the folder, under a name that is not taken yet."""
        folder = self.folder.parent / QUARANTINE_FOLDER
        folder.mkdir(exist_ok=True)
        number = 1
        while (kept := folder / f"{path.stem}-{number}{path.suffix}").exists():
            number += 1
        path.rename(kept)
        self.set_aside.append(kept)

    def _loose(self) -> list[Path]:
        """What is not folded yet: journals, and the rows that older versions wrote run by run."""
        found = [*self.folder.glob(f"*{SUFFIX}"), *self.folder.glob("*.parquet")]
        return sorted(path for path in found if path.name != COMPACTED and not path.name.startswith("."))

    def _fold(self, kept: "pa.Table", read: Sequence[Path]) -> None:
        """Only what has been read may go."""
        import pyarrow.parquet as pq

        with atomic_file(self.folder / COMPACTED) as unfinished:
            pq.write_table(kept, unfinished, compression="zstd")
        for path in read:
            path.unlink(missing_ok=True)


def _read_compacted(path: Path) -> "pa.Table | None":
    """None if it is cut or has other columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException):
        return None
    return table if is_record_schema(table.schema) else None


def _latest(rows: "pa.Table") -> "pa.Table":
    """Of rows with the same key the last."""
    places = {key: place for place, key in enumerate(rows["key"].to_pylist())}
    return rows if len(places) == len(rows) else rows.take(sorted(places.values()))
