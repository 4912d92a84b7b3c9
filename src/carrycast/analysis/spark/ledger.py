"""What a sweep has done so far, so that an interrupted one goes on: a journal for each task that writes, folded into
one Parquet file when a sweep begins and ends.

A file appears under its name only when it is whole. A file that this version of carrycast cannot take rows from is set
aside, never removed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.analysis.spark.disk import whole
from carrycast.analysis.spark.journal import SUFFIX, Count, journal_records
from carrycast.analysis.spark.records import is_record_schema, record_table

if TYPE_CHECKING:
    import pyarrow as pa

RUNS_FOLDER = "runs"
FOLDED = "folded.parquet"
SET_ASIDE = "set-aside"


class Ledger:
    """The folder `runs/` of a sweep's output. Workers write journals in it, the driver counts, reads and folds them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.set_aside: list[Path] = []
        """Files that were found unusable, where they are kept now."""
        self.count = Count(folder)

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
        for path in [self.folder / FOLDED, *self._loose()]:
            if path.suffix == SUFFIX:
                records = journal_records(path)
                table = None if records is None else record_table(records)
            elif path.exists():
                table = _read(path)
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
        folder = self.folder.parent / SET_ASIDE
        folder.mkdir(exist_ok=True)
        number = 1
        while (kept := folder / f"{path.stem}-{number}{path.suffix}").exists():
            number += 1
        path.rename(kept)
        self.set_aside.append(kept)

    def _loose(self) -> list[Path]:
        """What is not folded yet: journals, and the rows that older versions wrote run by run."""
        found = [*self.folder.glob(f"*{SUFFIX}"), *self.folder.glob("*.parquet")]
        return sorted(path for path in found if path.name != FOLDED and not path.name.startswith("."))

    def _fold(self, kept: "pa.Table", read: Sequence[Path]) -> None:
        """Only what has been read may go."""
        import pyarrow.parquet as pq

        with whole(self.folder / FOLDED) as unfinished:
            pq.write_table(kept, unfinished, compression="zstd")
        for path in read:
            path.unlink(missing_ok=True)


def _read(path: Path) -> "pa.Table | None":
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
