"""Where a watch keeps what it found: tables for everybody, and its own state, so that each row counts once.

A step writes its state beside that of the step before, then the tables, then its number. Whoever is killed in between
does the step again from the state before it, and writes the same. A table is a folder of Parquet files, one for each
day, that are replaced as a whole: a reader never sees half of one.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from carrycast.analysis.spark import write_atomically
from carrycast.errors import UserError

if TYPE_CHECKING:
    import pyarrow as pa

VERSION = 1
"""Of the state, of the settings beside it, and of the columns of the tables."""
SETTINGS_FILE = "watch.json"
COMMIT_FILE = "committed.json"
DAY_S = 86_400
_SAID = {"folders": "the folders", "late_s": "--late", "wait_s": "--wait"}


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a watch was begun with; other settings would mean other numbers in the same tables."""

    version: int = VERSION
    folders: list[str]
    late_s: float
    wait_s: float


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """How far a watch is: everything up to this step is in the tables."""

    step: int = -1
    watermark_s: float | None = None
    """Before it no row is waited for any more."""
    files: int = 0
    rows: int = 0
    left_out: int = 0
    """Rows that came too late, or that no minute can have."""
    waiting: int = 0
    """Deliveries whose event is not there: they stand in the table `waiting` until it comes, or is not waited for any
    more."""
    refused: int = 0
    """Files that are no part of a trace of this version."""
    traces: list[str] = []
    """The folders of traces of which something was read."""


class WatchFolder:
    """The output folder of one watch."""

    def __init__(self, out: Path, settings: TelemetrySettings) -> None:
        self.out = out
        self.settings = settings
        self._open()
        self.commit = self._read_commit()
        for old in (out / "state").glob("*"):
            if old.name != str(self.commit.step):
                shutil.rmtree(old, ignore_errors=True)

    @property
    def checkpoint(self) -> Path:
        """Spark's own: which files belong to which step."""
        return self.out / "checkpoint"

    def state(self, step: int) -> Path:
        """What a step leaves to the next."""
        return self.out / "state" / str(step)

    def replace(self, table: str, fresh: "pa.Table") -> None:
        """Put the rows of minutes that may still change, or have just become final, into the files of their days."""
        import pyarrow as pa
        import pyarrow.compute as pc

        days = pc.cast(pc.floor(pc.divide(pc.cast(fresh["minute_s"], pa.float64()), DAY_S)), pa.int64())
        for day in pc.unique(days).to_pylist():
            rows = fresh.filter(pc.equal(days, day))
            name = datetime.fromtimestamp(day * DAY_S, UTC).strftime("%Y-%m-%d")
            path = self.out / table / f"{name}.parquet"
            if path.exists():
                kept = read_rows(path)
                key = pc.binary_join_element_wise(rows["run"], pc.cast(rows["minute_s"], pa.string()), " ")
                kept_key = pc.binary_join_element_wise(kept["run"], pc.cast(kept["minute_s"], pa.string()), " ")
                still = pc.and_(kept["final"], pc.invert(pc.is_in(kept_key, pc.unique(key))))
                rows = pa.concat_tables([kept.filter(still), rows], promote_options="default")
            write_rows(path, rows.sort_by([(column, "ascending") for column in rows.column_names[:3]]))

    def add(self, table: str, step: int, rows: "pa.Table") -> None:
        """Rows of a table that only grows; a step that is done again replaces its own."""
        path = self.out / table / f"step-{step:08d}.parquet"
        if rows.num_rows:
            write_rows(path, rows)
        else:
            path.unlink(missing_ok=True)

    def put(self, table: str, rows: "pa.Table") -> None:
        """Replace a table by these rows, as each step does."""
        write_rows(self.out / table / "now.parquet", rows)

    def commit_step(self, commit: Commit) -> None:
        """The step counts from here on."""
        write_atomically(self.out / COMMIT_FILE, msgspec.json.encode(commit))
        shutil.rmtree(self.state(self.commit.step), ignore_errors=True)
        self.commit = commit

    def _open(self) -> None:
        path = self.out / SETTINGS_FILE
        if not path.exists():
            if any(one.name != ".lock" for one in self.out.iterdir()):
                raise UserError(f"{self.out}: holds something that no watch wrote; give --out another folder")
            write_atomically(path, msgspec.json.encode(self.settings))
            return
        way_out = "give --out another folder: the traces are read again from their beginning, and these tables stay"
        try:
            found = msgspec.json.decode(path.read_bytes())
            version = found["version"]
        except (msgspec.DecodeError, KeyError, TypeError):
            raise UserError(f"{path}: cannot be read; {way_out}") from None
        if version != VERSION:
            raise UserError(
                f"{self.out}: was kept by a carrycast with version {version} of these tables, and this one has "
                f"{VERSION}; {way_out}"
            )
        for key, said in msgspec.to_builtins(self.settings).items():
            if found.get(key) != said:
                begun = f"{_SAID[key]} {_setting_text(found.get(key))}"
                raise UserError(f"{self.out}: was begun with {begun}; say the same, or {way_out}")

    def _read_commit(self) -> Commit:
        path = self.out / COMMIT_FILE
        if not path.exists():
            return Commit()
        try:
            return msgspec.json.decode(path.read_bytes(), type=Commit)
        except msgspec.DecodeError:
            raise UserError(f"{path}: cannot be read; give --out another folder") from None


def _setting_text(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else "?"


def read_rows(path: Path) -> "pa.Table":
    """One file of a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None


def write_rows(path: Path, rows: "pa.Table") -> None:
    """Whole or not at all."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".{path.name}.tmp"
    pq.write_table(rows, unfinished, compression="zstd")
    unfinished.replace(path)
