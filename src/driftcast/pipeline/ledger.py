"""What a sweep has done so far: one small Parquet file per finished run, so that an interrupted sweep goes on.

A file appears under its name only when it is whole. Finished sweeps fold the small files into one. A file that this
version of driftcast cannot take rows from is set aside, never removed.
"""

import os
from pathlib import Path

from driftcast.pipeline.records import Record, is_record_schema, record_table

FOLDED = "folded.parquet"
STARTED = ".started"
SET_ASIDE = "set-aside"


class Ledger:
    """The folder `runs/` of a sweep's output. Workers add to it, the driver counts and reads it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set_aside: list[Path] = []
        """Files that were found unusable, where they are kept now."""

    def open(self) -> None:
        """Make the folder and forget what an earlier sweep left half done."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path.name.startswith("."):
                path.unlink(missing_ok=True)

    def records(self) -> dict[str, Record]:
        """Everything finished, by key. A file that is cut or has other columns is set aside."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        found: dict[str, Record] = {}
        # The folded file is the oldest, so what was done again since replaces its rows.
        for path in sorted(self.folder.glob("*.parquet"), key=lambda path: path.name != FOLDED):
            try:
                table = pq.read_table(path)
            except (OSError, pa.ArrowException):
                table = None
            if table is None or not is_record_schema(table.schema):
                self.put_aside(path)
            else:
                found.update((record["key"], record) for record in table.to_pylist())
        return found

    def count(self) -> int:
        """How many runs have finished since the folder was opened or folded."""
        with os.scandir(self.folder) as entries:
            return sum(1 for entry in entries if entry.name.endswith(".parquet") and entry.name != FOLDED)

    def has(self, key: str) -> bool:
        """Whether a run has finished since the folder was opened."""
        return (self.folder / f"{key}.parquet").exists()

    def read(self, key: str) -> Record:
        """The record of a run that has finished since the folder was opened."""
        import pyarrow.parquet as pq

        record: Record = pq.read_table(self.folder / f"{key}.parquet").to_pylist()[0]
        return record

    def add(self, record: Record) -> None:
        """A run has finished."""
        self._write(record_table([record]), f"{record['key']}.parquet")

    def start(self, key: str, attempt: int) -> int:
        """Note that a run begins; how many earlier attempts began it and never came to its end."""
        before = sum((self.folder / f"{STARTED}-{key}-{earlier}").exists() for earlier in range(attempt))
        (self.folder / f"{STARTED}-{key}-{attempt}").touch()
        return before

    def fold(self) -> dict[str, Record]:
        """Put all that finished without an error into one file; a failed run is tried anew by the next sweep."""
        # Only what has been read may go: another file may have come meanwhile.
        before = [path for path in self.folder.iterdir() if path.name != FOLDED]
        kept = {key: record for key, record in self.records().items() if record["error"] is None}
        if kept:
            self._write(record_table(list(kept.values())), FOLDED)
        for path in before:
            path.unlink(missing_ok=True)
        return kept

    def put_aside(self, path: Path) -> None:
        """Beside the folder, under a name that is not taken yet."""
        folder = self.folder.parent / SET_ASIDE
        folder.mkdir(exist_ok=True)
        number = 1
        while (kept := folder / f"{path.stem}-{number}{path.suffix}").exists():
            number += 1
        path.rename(kept)
        self.set_aside.append(kept)

    def _write(self, table: object, name: str) -> None:
        import pyarrow.parquet as pq

        unfinished = self.folder / f".{name}-{os.getpid()}.tmp"
        pq.write_table(table, unfinished, compression="zstd")
        unfinished.replace(self.folder / name)
