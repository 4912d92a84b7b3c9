"""The first difference between two traces, to find where two runs that should be equal diverge."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carrycast.trace.files import TABLES, read_trace

if TYPE_CHECKING:
    import pyarrow as pa

CONTEXT_ROWS = 5
"""Rows shown before the difference. They fit on one screen with it."""
_RUN = "run"
"""The column of the run's name, which differs between two runs of one scenario, is not compared."""


@dataclass(frozen=True)
class Difference:
    """The first row in which two traces differ."""

    table: str
    """`trace`, `events` or `subscriptions`."""
    row: int
    columns: tuple[str, ...]
    """The columns that differ; empty if one trace ends before the other."""
    before: list[dict[str, Any]]
    """The rows before the difference, which are equal in both traces."""
    first: dict[str, Any] | None
    """The row of the first trace; None if it has no such row."""
    second: dict[str, Any] | None


def diff_traces(first: Path, second: Path) -> Difference | None:
    """The first difference of two recorded runs; None if they are equal. The table `trace` is compared first."""
    pairs = zip(TABLES, read_trace(first), read_trace(second), strict=True)
    return next((found for name, a, b in pairs if (found := diff_tables(name, a, b)) is not None), None)


def diff_tables(name: str, first: "pa.Table", second: "pa.Table") -> Difference | None:
    """The first row in which two tables of the same schema differ."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = [column for column in first.column_names if column != _RUN]
    length = min(first.num_rows, second.num_rows)
    place = length
    for column in columns:
        a, b = first.column(column).slice(0, place), second.column(column).slice(0, place)
        same = pc.fill_null(pc.equal(a, b), False)
        both_null = pc.and_(pc.is_null(a, nan_is_null=True), pc.is_null(b, nan_is_null=True))
        found = pc.index(pc.or_(same, both_null), pa.scalar(False)).as_py()
        place = place if found < 0 else found
    if place == length and first.num_rows == second.num_rows:
        return None
    row_of = [table.slice(place, 1).select(columns).to_pylist() for table in (first, second)]
    ours, theirs = (rows[0] if rows else None for rows in row_of)
    differing = () if ours is None or theirs is None else tuple(key for key in columns if ours[key] != theirs[key])
    start = max(0, place - CONTEXT_ROWS)
    before = first.slice(start, place - start).select(columns).to_pylist()
    return Difference(name, place, differing, before, ours, theirs)
