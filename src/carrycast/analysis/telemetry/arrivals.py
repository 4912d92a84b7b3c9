"""The files that are new: which table of which trace each belongs to, and which belong to none.

A node gives a part its name when it is whole, and never changes it afterwards, but for its subscriptions: of these it
writes one file, again and again. So parts of `trace` and `events` are followed, and subscriptions are read again.
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
    """The files of one step, sorted."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self.full: list[Path] = []
        """Parts of `trace` that tell of frames and drops."""
        self.deliveries: list[Path] = []
        """Parts of `trace` that do not."""
        self.events: list[Path] = []
        self.refused: list[tuple[str, str]] = []
        """Files that cannot be used, and why."""
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
        """How many can be used."""
        return len(self.full) + len(self.deliveries) + len(self.events)

    def traces(self) -> set[str]:
        """The folders of their traces."""
        return {str(path.parent.parent) for path in (*self.full, *self.deliveries, *self.events)}


class Subscriptions:
    """The subscriptions of all traces, as they stand in their files now."""

    def __init__(self) -> None:
        self._read: dict[Path, tuple[tuple[int, int], pa.Table]] = {}
        self._told: set[Path] = set()
        self.refused: list[tuple[str, str]] = []

    def read(self, traces: Sequence[str], since_s: float) -> "pa.Table":
        """Those that stood at any time since; a file that has not changed is not read again."""
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
            # What it said before still stands; that it cannot be read is told once.
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
    """A UserError for what no node writes, since nothing could be matched with it."""
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
    """From when on subscriptions are others than they were, of those that stood since then; None if they are the
    same."""
    old, new = (
        {(row["run"], row["subscription"], row["node"], row["from_s"]): row for row in table.to_pylist()}
        for table in (_select_active(before, since_s), after)
    )
    times = [key[3] for key in old.keys() ^ new.keys()]
    for key in old.keys() & new.keys():
        if old[key] != new[key]:
            # What has ended stood until then, and is as it was before.
            ends = [row["to_s"] for row in (old[key], new[key]) if row["to_s"] is not None]
            times.append(min(ends) if ends else key[3])
    return min(times, default=None)
