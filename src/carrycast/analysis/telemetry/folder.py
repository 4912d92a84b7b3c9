"""The output folder of a watch: tables for readers, and the watch's own state, so that each row counts once.

A step writes its state beside that of the previous step, then the tables, then its number. A watch that is killed in
between repeats the step from the previous state and writes the same. A table is a folder of Parquet files, one for each
day. Files are replaced atomically, so a reader never sees a partial file.
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
"""The version of the state, of the stored settings and of the tables' columns."""
SETTINGS_FILE = "watch.json"
COMMIT_FILE = "committed.json"
DAY_S = 86_400
_OPTIONS = {"folders": "the folders", "late_s": "--late", "wait_s": "--wait"}


class TelemetrySettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which a watch began. With other settings, the same tables would have other numbers."""

    version: int = VERSION
    folders: list[str]
    late_s: float
    wait_s: float


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a watch: everything up to this step is in the tables."""

    step: int = -1
    watermark_s: float | None = None
    """Rows before this time are late."""
    files: int = 0
    rows: int = 0
    left_out: int = 0
    """Rows that came too late, or that belong to no minute."""
    waiting: int = 0
    """Deliveries of unknown events. They are in the table `waiting` until the event arrives or the wait ends."""
    refused: int = 0
    """Files that are not a part of a trace of this version."""
    traces: list[str] = []
    """The folders of the traces that were read."""


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
        """Spark's checkpoint, which maps files to steps."""
        return self.out / "checkpoint"

    def state(self, step: int) -> Path:
        """The folder of the state after a step."""
        return self.out / "state" / str(step)

    def replace(self, table: str, fresh: "pa.Table") -> None:
        """Replace the rows of minutes that were not final, in the files of their days."""
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
        """Append rows to a table. A step that is repeated replaces its own rows."""
        path = self.out / table / f"step-{step:08d}.parquet"
        if rows.num_rows:
            write_rows(path, rows)
        else:
            path.unlink(missing_ok=True)

    def put(self, table: str, rows: "pa.Table") -> None:
        """Replace the whole table by these rows."""
        write_rows(self.out / table / "now.parquet", rows)

    def commit_step(self, commit: Commit) -> None:
        """Record that the step is complete, and delete the state before it."""
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
        for key, value in msgspec.to_builtins(self.settings).items():
            if found.get(key) != value:
                begun = f"{_OPTIONS[key]} {_setting_text(found.get(key))}"
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
    """Read one file of a table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(path).read()
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None


def write_rows(path: Path, rows: "pa.Table") -> None:
    """Write one file of a table atomically."""
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".{path.name}.tmp"
    pq.write_table(rows, unfinished, compression="zstd")
    unfinished.replace(path)
