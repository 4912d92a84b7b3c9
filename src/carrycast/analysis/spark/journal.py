"""The log of finished runs, by which an interrupted sweep continues: a journal per task, compacted into Parquet.

Each task appends to a journal of its own. A line that begins with `>` says that a run starts, one with `{` is the
record of a finished run, and one with `<` says that the worker gave the run up without crashing. The first line names
the columns of the records. A worker that crashes leaves at most its last line incomplete; the next worker of the task
finds in the file which runs are finished, and which run it crashed in.

When a sweep starts and ends, `RunLog` compacts all journals into one Parquet file, written atomically. Files that this
version of carrycast cannot read are moved aside, never removed.
"""

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
    complete_records,
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
    """The journal of one task, written by its worker."""

    def __init__(self, folder: Path, task: int) -> None:
        """Read the journals that earlier workers of the same task left, and open a new one."""
        self.done: dict[str, Record] = {}
        """The records of finished runs, by key."""
        self.crashes: dict[str, int] = {}
        """The number of workers that crashed in a run, by its key."""
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
                self.crashes[key] = self.crashes.get(key, 0) + 1
        number = 1
        while (path := folder / f"task-{task}-{number:03d}-{os.getpid()}{SUFFIX}").exists():
            number += 1
        # Unbuffered: every line reaches the system at once and survives a crash; a single write is never interleaved.
        self._file = path.open("xb", buffering=0)
        self._write(_HEAD)

    def start(self, key: str) -> None:
        """Record that a run starts."""
        self._write(_START + key.encode())

    def give_up(self, key: str) -> None:
        """Record that a run is left for the next sweep."""
        self._write(_GIVEN_UP + key.encode())

    def add(self, record: Record) -> None:
        """Record a finished run."""
        self._write(json_text(record).encode())

    def _write(self, line: bytes) -> None:
        if self._file.write(line + b"\n") != len(line) + 1:
            # On a full disk, write() may accept a part of the line without an error.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self._file.name)

    def __enter__(self) -> "TaskJournal":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()


def complete_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file, without an incomplete last one."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]


def read_journal(path: Path) -> list[Record] | None:
    """Return the records of a journal; None if it is no journal or has other columns than this version."""
    lines = complete_lines(path)
    # A journal cut within its first line has no records.
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
    """Counts the finished runs in the journals of a folder while they grow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: dict[str, int] = {}
        self._total = 0

    def __call__(self) -> int:
        """Return the number of finished runs so far."""
        for path in self._folder.glob(f"*{SUFFIX}"):
            with path.open("rb") as file:
                file.seek(self._seen.get(path.name, 0))
                new = file.read()
            # The last line end is read again next time, because a record is found by the line end before it.
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
    """The folder `runs/` of a sweep's output. Workers write journals; the driver counts, reads and compacts them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set_aside: list[Path] = []
        """Where unreadable files were moved to."""
        self.count = FinishedRunCounter(folder)

    def open(self) -> "pa.Table":
        """Make the folder, remove incomplete files, compact the journals; return all runs that finished without error.

        The next sweep repeats failed runs.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path.name.startswith("."):
                path.unlink(missing_ok=True)
        uncompacted = self._list_uncompacted()
        kept = self.read_finished()
        if uncompacted:
            self._compact(kept, uncompacted)
        return kept

    def read_finished(self) -> "pa.Table":
        """Return the row of every run that finished without an error. Unreadable files are moved aside."""
        import pyarrow as pa
        import pyarrow.compute as pc

        tables: list[pa.Table] = []
        for path in [self.folder / COMPACTED, *self._list_uncompacted()]:
            if path.suffix == SUFFIX:
                records = read_journal(path)
                table = None if records is None else record_table(records)
            elif path.exists():
                table = _read_compacted(path)
            else:
                continue
            if table is None:
                self.move_aside(path)
            else:
                tables.append(table)
        found = pa.concat_tables(tables or [record_table([])])
        found = found.filter(pc.is_null(found["error"]))
        return found if len(tables) < 2 else _keep_latest(found)

    def close(self, kept: "pa.Table") -> None:
        """Write these rows in place of the journals."""
        self._compact(kept, self._list_uncompacted())

    def move_aside(self, path: Path) -> None:
        """Move a file to the quarantine folder beside this one, under an unused name."""
        folder = self.folder.parent / QUARANTINE_FOLDER
        folder.mkdir(exist_ok=True)
        number = 1
        while (kept := folder / f"{path.stem}-{number}{path.suffix}").exists():
            number += 1
        path.rename(kept)
        self.set_aside.append(kept)

    def _list_uncompacted(self) -> list[Path]:
        """List the files that are not compacted yet: journals, and the Parquet files that older versions wrote per
        run."""
        found = [*self.folder.glob(f"*{SUFFIX}"), *self.folder.glob("*.parquet")]
        return sorted(path for path in found if path.name != COMPACTED and not path.name.startswith("."))

    def _compact(self, kept: "pa.Table", read: Sequence[Path]) -> None:
        """Write the compacted file, then remove the files that were read."""
        import pyarrow.parquet as pq

        with atomic_file(self.folder / COMPACTED) as unfinished:
            pq.write_table(kept, unfinished, compression="zstd")
        for path in read:
            path.unlink(missing_ok=True)


def _read_compacted(path: Path) -> "pa.Table | None":
    """Read a compacted file; None if it is truncated or has other columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException):
        return None
    return complete_records(table)


def _keep_latest(rows: "pa.Table") -> "pa.Table":
    """Return the last row of each key."""
    places = {key: place for place, key in enumerate(rows["key"].to_pylist())}
    return rows if len(places) == len(rows) else rows.take(sorted(places.values()))
