"""The input of vectorized folds: a piece of a trace as columns, and the events and subscriptions of a run."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from carrycast.trace.eligibility import Eligibility
from carrycast.trace.schema import Kind

if TYPE_CHECKING:
    import pyarrow as pa

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

KINDS = tuple(Kind)
CLASSES = ("data", "control", "discovery")
DATA, CONTROL, DISCOVERY = range(1, 4)
COLUMNS = (
    "run",
    "time_s",
    "node",
    "kind",
    "class",
    "event",
    "subscription",
    "peer",
    "size_bytes",
    "hops",
    "airtime_us",
)
"""The columns of a trace that the built-in folds read."""
TEXTS = ("run", "kind", "class", "event", "subscription")
"""Columns of text that are read dictionary-encoded, since a file has few distinct values."""


def code_of(kind: Kind) -> int:
    """The number of a kind in `TraceBatch.kind`."""
    return KINDS.index(kind) + 1


class TraceBatch:
    """Rows of one run. `part` and `place` are the file of each row and its index there.

    Files have the rows of one node in the order of their occurrence, so these columns order rows of the same time.
    """

    def __init__(self, rows: "pa.Table", part: Integers, place: Integers) -> None:
        self.rows = rows
        self.part = part
        self.place = place

    @classmethod
    def of(cls, rows: "pa.Table") -> "TraceBatch":
        """A batch of all rows of a trace."""
        return cls(rows, np.zeros(len(rows), dtype=np.int64), np.arange(len(rows)))

    @cached_property
    def kind(self) -> Integers:
        """The kind of each row as a number, by `code_of`; 0 for a kind that a protocol noted."""
        return encode_names(self.rows["kind"], KINDS)

    @cached_property
    def traffic(self) -> Integers:
        """The class of each row's frame: DATA, CONTROL or DISCOVERY; 0 for none, a higher number if unknown."""
        return encode_names(self.rows["class"], CLASSES, other=len(CLASSES) + 1)

    @cached_property
    def _events(self) -> "tuple[Integers, pa.Array]":
        return number_values(self.rows["event"])

    @property
    def event(self) -> Integers:
        """Each row's event as an index into `events`; -1 for none."""
        return self._events[0]

    @property
    def events(self) -> "pa.Array":
        """The ids of the events that occur."""
        return self._events[1]

    @cached_property
    def _nodes(self) -> tuple[Integers, Integers]:
        number, nodes = number_values(self.rows["node"])
        return number, nodes.to_numpy(zero_copy_only=False)

    @property
    def node(self) -> Integers:
        """Each row's node as an index into `nodes`."""
        return self._nodes[0]

    @property
    def nodes(self) -> Integers:
        """The ids of the nodes that occur."""
        return self._nodes[1]


class RunTables:
    """The events and subscriptions of one run, or those of a slice of it."""

    def __init__(self, events: Sequence[Mapping[str, Any]], subscriptions: Sequence[Mapping[str, Any]]) -> None:
        self.events = events
        self.eligibility = Eligibility(subscriptions)
        self.number = {event["event"]: place for place, event in enumerate(events)}
        """The index of each event, by its id."""
        self.source = np.array([event["source"] for event in events], dtype=np.int64)
        self.counted = np.array([event["counted"] for event in events], dtype=np.bool_)
        self.published_s = np.array([event["time_s"] for event in events], dtype=np.float64)

    def find_places(self, events: "pa.Array | pa.ChunkedArray") -> Integers:
        """The indices of events by their ids; -1 for an unknown event."""
        return np.array([self.number.get(name, -1) for name in events.to_pylist()], dtype=np.int64)


def number_values(column: "pa.ChunkedArray") -> "tuple[Integers, pa.Array]":
    """A column as indices into its distinct values; -1 for null."""
    import pyarrow as pa

    whole = column.unify_dictionaries().combine_chunks()
    found = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    return found.indices.fill_null(-1).to_numpy().astype(np.int64), found.dictionary


def encode_names(column: "pa.ChunkedArray", names: Sequence[str], other: int = 0) -> Integers:
    """A column of text as indices into `names`, starting at 1; 0 for null, `other` for other texts."""
    number, values = number_values(column)
    codes = [names.index(value) + 1 if value in names else other for value in values.to_pylist()]
    return np.array([*codes, 0], dtype=np.int64)[number]


def find_latest(flags: Flags, own: Integers) -> Integers:
    """For each row, the last flagged row up to it within its group, which begins at row `own`; -1 if there is none."""
    found = np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))
    return np.where(found >= own, found, -1)


def first_of_each(key: Integers, *order: Any) -> Integers:
    """The index of the first row of each key, ordered by the columns `order`, the most significant first."""
    by = np.lexsort((*reversed(order), key))
    return by[np.append(True, np.diff(key[by]) != 0)] if len(by) else by


def pair_numbers(event: Integers, node: Integers, nodes: Integers) -> Integers:
    """Pairs of event and node as single numbers. `nodes` contains all nodes of the pairs."""
    values = np.unique(nodes)
    return event * max(len(values), 1) + np.searchsorted(values, node)
