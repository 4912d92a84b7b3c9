"""Find, check and read traces. A user names a trace by its folder, by a file in it, or by a folder with many traces."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carrycast.errors import UserError
from carrycast.trace.schema import (
    ADDED_COLUMNS,
    EVENT_COLUMNS,
    LEVEL_KEY,
    SUBSCRIPTION_COLUMNS,
    TRACE_COLUMNS,
    VERSION,
    VERSION_KEY,
    Level,
    arrow_schema,
)
from carrycast.version import read_metadata

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

TABLES = {"trace": TRACE_COLUMNS, "events": EVENT_COLUMNS, "subscriptions": SUBSCRIPTION_COLUMNS}


def find_traces(paths: Sequence[Path]) -> list[Path]:
    """The folders of all traces at or below some paths, each once."""
    found: dict[Path, None] = {}
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: there is no such file or folder")
        # A file of a trace is in the folder of a table, which is in the folder of the trace.
        start = path if path.is_dir() else path.parent.parent
        here = [start] if _is_trace(start) else sorted(filter(_is_trace, start.rglob("*"))) if path.is_dir() else []
        if not here:
            raise UserError(f"{path}: holds no trace; give what `run --trace` or a node's [trace] directory keeps")
        found.update((folder.resolve(), None) for folder in here)
    return list(found)


def check_trace(folder: Path, wanted: Level) -> None:
    """Raise a UserError if a trace cannot be read, or was recorded at a lower level than `wanted`."""
    for table in TABLES:
        for path in sorted((folder / table).glob("*.parquet")):
            kept = check_part(path, table)
            if wanted is Level.FULL and kept != Level.FULL:
                raise UserError(
                    f"{folder}: keeps {kept}, which tells nothing of frames and buffers; "
                    "say --level deliveries to do without them, or record it with level full"
                )


def check_part(path: Path, table: str) -> str:
    """The level of the trace that a Parquet part belongs to; a UserError if the part cannot be read as a trace."""
    schema = _schema(path)
    version = read_metadata(schema.metadata, VERSION_KEY, str(VERSION).encode()).decode(errors="replace")
    if not version.isdecimal():
        raise UserError(f"{path}: has no version of a trace but {version!r}; record the trace again")
    if int(version) > VERSION:
        raise UserError(
            f"{path}: is of a newer carrycast: version {version} of traces, not {VERSION}; update carrycast"
        )
    for field in arrow_schema(TABLES[table]):
        if field.name not in schema.names:
            if field.name not in ADDED_COLUMNS:
                raise UserError(f"{path}: has no column {field.name}; record the trace again")
        elif schema.field(field.name).type != field.type:
            kind = schema.field(field.name).type
            raise UserError(f"{path}: the column {field.name} is of type {kind}, not {field.type}; record it again")
    level = read_metadata(schema.metadata, LEVEL_KEY, b"nobody knows what")
    return level.decode(errors="replace")


def trace_level(folder: Path) -> str:
    """The level at which a trace was recorded: a `Level`, or the text that the file has in its place."""
    for path in sorted((folder / "trace").glob("*.parquet")):
        level = read_metadata(_schema(path).metadata, LEVEL_KEY, b"nobody knows what")
        if level != Level.FULL.value.encode():
            return level.decode()
    return Level.FULL


def read_rows(
    folder: Path, table: str, wanted: "pc.Expression | None" = None, most: int | None = None
) -> list[dict[str, Any]]:
    """The rows of a table that match `wanted`, at most `most`. Other rows are not kept in memory."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_trace(folder, Level.DELIVERIES)
    rows: list[dict[str, Any]] = []
    for part in sorted((folder / table).glob("*.parquet")):
        try:
            # No partitioning: a folder above the files that is named like `run=1` is not a column.
            found = pq.read_table(part, filters=wanted, partitioning=None, schema=arrow_schema(TABLES[table]))
        except (OSError, pa.ArrowException) as error:
            raise UserError(f"{part}: cannot be read: {str(error).splitlines()[0]}") from None
        rows += found.slice(0, None if most is None else most - len(rows)).to_pylist()
        if most is not None and len(rows) >= most:
            break
    return rows


def read_part(path: Path, table: str) -> "pa.Table":
    """One part of a table, with the columns of this version. Columns that an older trace lacks are null."""
    import pyarrow.parquet as pq

    return pq.read_table(path, partitioning=None, schema=arrow_schema(TABLES[table]))


def read_trace(folder: Path) -> tuple["pa.Table", "pa.Table", "pa.Table"]:
    """The tables `trace`, `events` and `subscriptions` of one trace, in memory."""
    import pyarrow as pa

    check_trace(folder, Level.DELIVERIES)
    parts = {name: sorted((folder / name).glob("*.parquet")) for name in TABLES}
    try:
        tables = [pa.concat_tables([read_part(part, name) for part in parts[name]]) for name in TABLES]
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{folder}: cannot be read: {str(error).splitlines()[0]}") from None
    return tables[0], tables[1], tables[2]


def _is_trace(folder: Path) -> bool:
    return all((folder / table).is_dir() and any((folder / table).glob("*.parquet")) for table in TABLES)


def _schema(path: Path) -> "pa.Schema":
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
