"""New trace files, sorted by table and trace; files that cannot be used are reported.

A node renames a part into place when it is complete and never changes it afterwards. The exception is the file of its
subscriptions, which it rewrites. So parts of `trace` and `events` are read once, and subscriptions again after changes.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from carrycast.core.matching import Filter, FilterError
from carrycast.errors import UserError
from carrycast.trace import SUBSCRIPTION_COLUMNS, Level, arrow_schema, check_part, read_part

if TYPE_CHECKING:
    import pyarrow as pa

FOLLOWED = ("trace", "events")
PARTS = "part-*.parquet"


class Arrivals:
    """The new files of one step, sorted by kind."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.full: list[Path] = []
        """Parts of `trace` at level full, with frames and drops."""
        self.deliveries: list[Path] = []
        """Parts of `trace` with deliveries only."""
        self.events: list[Path] = []
        self.refused: list[tuple[str, str]] = []
        """Files that cannot be used, with the reason."""
        for path in sorted(paths):
            table = path.parent.name
            if table not in FOLLOWED:
                continue
            try:
                level = check_part(path, table)
            except UserError as error:
                self.refused.append((str(path), str(error).removeprefix(f"{path}: ")))
                continue
            kind = self.events if table == "events" else self.full if level == Level.FULL else self.deliveries
            kind.append(path)

    @property
    def files(self) -> int:
        """The number of usable files."""
        return len(self.full) + len(self.deliveries) + len(self.events)

    def traces(self) -> set[str]:
        """The trace folders of the usable files."""
        return {str(path.parent.parent) for path in (*self.full, *self.deliveries, *self.events)}


class Subscriptions:
    """The current subscriptions of all traces."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[tuple[int, int], pa.Table]] = {}
        self._told: set[Path] = set()
        self.refused: list[tuple[str, str]] = []

    def read(self, traces: Sequence[str], since_s: float) -> "pa.Table":
        """Read the subscriptions that were active at any time since `since_s`. Unchanged files are not read again."""
        import pyarrow as pa

        self.refused = []
        tables = [arrow_schema(SUBSCRIPTION_COLUMNS).empty_table()]
        for trace in traces:
            for path in sorted(Path(trace, "subscriptions").glob(PARTS)):
                tables.append(_select_active(self._read_table(path), since_s))
        return pa.concat_tables(tables).combine_chunks()

    def _read_table(self, path: Path) -> "pa.Table":
        import pyarrow as pa

        known, table = self._read.get(path, (None, arrow_schema(SUBSCRIPTION_COLUMNS).empty_table()))
        try:
            stat = path.stat()
            mark = (stat.st_mtime_ns, stat.st_size)
            if known == mark:
                return table
            check_part(path, "subscriptions")
            table = _validate_subscriptions(read_part(path, "subscriptions")).replace_schema_metadata(None)
        except (OSError, UserError, pa.ArrowException) as error:
            # The rows read before remain valid; the error is reported once.
            if path not in self._told:
                self._told.add(path)
                self.refused.append((str(path), str(error).splitlines()[0].removeprefix(f"{path}: ")))
            return table
        self._read[path] = (mark, table)
        return table


def _select_active(table: "pa.Table", since_s: float) -> "pa.Table":
    import pyarrow.compute as pc

    return table.filter(pc.fill_null(pc.greater(table["to_s"], since_s), True))


def _validate_subscriptions(table: "pa.Table") -> "pa.Table":
    """Return the table; a UserError for rows that no node writes and that cannot be matched."""
    import pyarrow.compute as pc

    for column in ("run", "node", "from_s"):
        if table[column].null_count:
            raise UserError(f"has subscriptions without {column}")
    for text in pc.unique(table["filter"]).to_pylist():
        try:
            Filter(text)
        except (FilterError, TypeError) as error:
            raise UserError(f"has a filter that cannot be read: {error}") from None
    for text in pc.unique(table["attributes"]).to_pylist():
        try:
            attributes = json.loads(text)
        except (ValueError, TypeError):
            attributes = None
        if not isinstance(attributes, dict):
            raise UserError("has attributes that are no JSON object")
    return table


def find_first_change(before: "pa.Table", after: "pa.Table", since_s: float) -> float | None:
    """The earliest time from which the subscriptions active since `since_s` differ; None if they are equal."""
    old, new = (
        {(row["run"], row["subscription"], row["node"], row["from_s"]): row for row in table.to_pylist()}
        for table in (_select_active(before, since_s), after)
    )
    times = [key[3] for key in old.keys() ^ new.keys()]
    for key in old.keys() & new.keys():
        if old[key] != new[key]:
            # A subscription that has ended is unchanged until its end.
            ends = [row["to_s"] for row in (old[key], new[key]) if row["to_s"] is not None]
            times.append(min(ends) if ends else key[3])
    return min(times, default=None)
