"""Partial results of folds about single events, until the pieces of a run are merged.

The entries of an event stay together, so a large run can be partitioned by event and resolved by several processes.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carrycast.trace.folds.batch import Floats, Integers

if TYPE_CHECKING:
    import pyarrow as pa


class Partials(NamedTuple):
    """Entries about events, in the order of `events`."""

    events: "pa.Array"
    """The ids of the events, each once."""
    owner: Integers
    """For each entry the index of its event in `events`, in ascending order."""
    ints: Integers
    """A row of numbers for each entry."""
    floats: Floats | None = None
    """A number for each entry."""
    texts: "pa.Array | None" = None
    """A text for each entry."""

    def table(self) -> "pa.Table":
        """A row for each event: its id, and its entries as lists."""
        import pyarrow as pa

        ends = np.searchsorted(self.owner, np.arange(len(self.events) + 1))

        def lists(values: "pa.Array", width: int = 1) -> "pa.Array":
            return pa.ListArray.from_arrays(pa.array(ends * width, pa.int32()), values)

        events = len(self.events)
        return pa.table(
            {
                "event": self.events.cast(pa.string()),
                "ints": lists(pa.array(self.ints.ravel()), self.ints.shape[1]),
                "floats": pa.nulls(events, pa.list_(pa.float64()))
                if self.floats is None
                else lists(pa.array(self.floats)),
                "texts": pa.nulls(events, pa.list_(pa.string())) if self.texts is None else lists(self.texts),
            }
        )

    @classmethod
    def of_table(cls, table: "pa.Table", width: int) -> "Partials":
        """The entries in rows of `table`, from any pieces. An event may have several rows."""
        ints, floats, texts = (_flat(table[name]) for name in ("ints", "floats", "texts"))
        counts = np.diff(_offsets(table["ints"])) // width
        owner = np.repeat(np.arange(len(counts)), counts)
        return cls(
            table["event"].combine_chunks(),
            owner,
            ints.to_numpy().reshape(-1, width),
            floats.to_numpy(),
            texts,
        )


class EventPartials:
    """A base of folds that keep partial results about events."""

    width: int
    """The number of columns of an entry."""

    def __init__(self) -> None:
        self.partials: list[Partials] = []


class Marks(dict[int, int]):
    """A number for each node, 0 if none was set. It replaces a bytearray where node ids have no bound."""

    __slots__ = ()

    def __missing__(self, node: int) -> int:
        return 0


def make_marks(nodes: int | None) -> bytearray | Marks:
    """A number up to 255 for each node, all 0. If `nodes` is given, node ids are below it."""
    return Marks() if nodes is None else bytearray(nodes)


def concatenate_columns(pieces: Sequence[tuple[Any, ...]], empty: tuple[Any, ...]) -> tuple[Any, ...]:
    """Concatenate each column over all pieces."""
    return tuple(np.concatenate(columns) for columns in zip(empty, *pieces, strict=True))


def _flat(column: "pa.ChunkedArray") -> "pa.Array":
    return column.combine_chunks().flatten()


def _offsets(column: "pa.ChunkedArray") -> Integers:
    import pyarrow.compute as pc

    return np.append(0, np.cumsum(pc.fill_null(pc.list_value_length(column), 0).to_numpy()))
