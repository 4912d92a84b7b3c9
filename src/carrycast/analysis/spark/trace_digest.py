"""What a piece of a trace adds to the metrics of its runs, in a few rows of numbers: computed where the file is read.

Of millions of rows only the sums leave the process that read them: for each run its frames and what its nodes stored,
for each event who sent, received and was given it. `trace_judge` puts the digests of all pieces together.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from carrycast.sim.mobility.trajectory import Integers
from carrycast.trace.folds.traffic import BROADCAST_US, BYTE_US, OVERHEAD_BYTES, RATE_MBPS, UNICAST_US
from carrycast.trace.schema import Kind

if TYPE_CHECKING:
    import pyarrow as pa

Flags = np.ndarray[Any, np.dtype[np.bool_]]

COLUMNS = ("run", "time_s", "node", "kind", "class", "event", "subscription", "peer", "size_bytes", "hops")
"""Those of a trace that tell something here."""
TEXTS = ("run", "kind", "class", "event", "subscription")
"""Read as numbers into a dictionary: few different ones stand in a file."""

FRAMES = (
    "transmissions",
    "control_transmissions",
    "receptions",
    "data_bytes",
    "control_bytes",
    "discovery_bytes",
    "total_bytes",
    "airtime_us",
)
MET, GOT, LIFE = 3, 4, 6
"""Numbers of an entry: node, sent, received; node, part, place, hops; node, part, place, and of what it stored: the sum
of changes, that sum at the last time it began anew (NEVER if it did not), the most before the first such time."""
NEVER = -(2**62)
SCHEMA = (
    "run string, event string, frames array<bigint>, met array<bigint>, got array<bigint>, got_s array<double>,"
    " got_by array<string>, lives array<bigint>, lives_s array<double>, anew_peak bigint"
)
"""A row with `frames`, `lives` and `anew_peak` for a piece of a run, and one for each event in it."""
_SENT, _RETRIED, _RECEIVED, _DELIVERED, _STORED, _EVICTED, _CRASHED, _STARTED = range(1, 9)
_KINDS = (Kind.SEND, Kind.RETRY, Kind.RECEIVE, Kind.DELIVER, Kind.STORE, Kind.EVICT, Kind.CRASH, Kind.START)
_DATA, _CONTROL, _DISCOVERY = range(1, 4)
_CLASSES = ("data", "control", "discovery")


def digests(rows: "pa.Table", part: Integers, place: Integers) -> "Iterator[pa.RecordBatch]":
    """The digests of some rows of a trace, run by run; `part` and `place` say where each stands."""
    import pyarrow.compute as pc

    runs = rows["run"].unique().to_pylist()
    for run in runs:
        if len(runs) == 1:
            yield _Piece(rows, part, place).digest(run)
        else:
            chosen = pc.equal(rows["run"], run)
            keep = chosen.to_numpy()
            yield _Piece(rows.filter(chosen), part[keep], place[keep]).digest(run)


class _Piece:
    """Rows of one run, as numbers."""

    def __init__(self, rows: "pa.Table", part: Integers, place: Integers) -> None:
        self._rows, self._part, self._place = rows, part, place
        self._kind = _coded(rows["kind"], _KINDS)
        self._event, self._events = _numbered(rows["event"])
        self._node, nodes = _numbered(rows["node"])
        self._nodes = nodes.to_numpy(zero_copy_only=False)

    def digest(self, run: str) -> "pa.RecordBatch":
        """Its rows: one of the run, then one of each event."""
        import pyarrow as pa

        lives, lives_s, anew_peak = self._lives()
        of_met, met = self._met()
        of_got, got, got_s, got_by = self._got()
        events = len(self._events)
        empty = np.zeros(0, dtype=np.int64)

        def lists(first: "pa.Array | Integers", owners: Integers, values: Any, width: int) -> "pa.Array":
            """One list for the run, and those of the events, whose entries stand in their order."""
            ends = np.searchsorted(owners, np.arange(events + 1)) * width + len(first)
            return pa.ListArray.from_arrays(
                pa.array(np.append(0, ends), pa.int32()), pa.concat_arrays([pa.array(first), pa.array(values)])
            )

        none = pa.array(np.zeros(0))
        names = pa.concat_arrays([pa.array([None], pa.string()), self._events.cast(pa.string())])
        return pa.RecordBatch.from_pydict(
            {
                "run": pa.array([run] * (events + 1), pa.string()),
                "event": names,
                "frames": lists(self._frames(), empty, empty, 1),
                "met": lists(empty, of_met, met.ravel(), MET),
                "got": lists(empty, of_got, got.ravel(), GOT),
                "got_s": lists(none, of_got, got_s, 1),
                "got_by": lists(pa.array([], pa.string()), of_got, got_by, 1),
                "lives": lists(lives.ravel(), empty, empty, 1),
                "lives_s": lists(lives_s, empty, none, 1),
                "anew_peak": pa.array([anew_peak, *[0] * events], pa.int64()),
            }
        )

    def _frames(self) -> Integers:
        """FRAMES, in their order."""
        traffic = _coded(self._rows["class"], _CLASSES, other=len(_CLASSES) + 1)
        sent = np.flatnonzero((self._kind == _SENT) | (self._kind == _RETRIED))
        kinds = traffic[sent]
        work = (kinds != 0) & (kinds != _DISCOVERY)
        received = traffic[self._kind == _RECEIVED]
        sizes = self._rows["size_bytes"].take(sent)
        sized, size = sizes.is_valid().to_numpy(), sizes.fill_null(0).to_numpy()
        unicast = self._rows["peer"].take(sent).is_valid().to_numpy()
        bits = (size + OVERHEAD_BYTES) * BYTE_US + RATE_MBPS - 1
        # As `witness.airtime` has it.
        air_us = np.where(unicast, bits // RATE_MBPS + UNICAST_US, size * BYTE_US + BROADCAST_US)
        return np.array(
            [
                np.count_nonzero(work),
                np.count_nonzero(kinds == _CONTROL),
                np.count_nonzero((received != 0) & (received != _DISCOVERY)),
                *(size[kinds == one].sum() for one in (_DATA, _CONTROL, _DISCOVERY)),
                size.sum(),
                air_us[sized].sum(),
            ],
            dtype=np.int64,
        )

    def _met(self) -> tuple[Integers, Integers]:
        """Of each event and node: how often it sent it, how often it received it; the events' numbers apart."""
        known = self._event >= 0
        sent, received = (np.flatnonzero(known & (self._kind == kind)).astype(np.int64) for kind in (_SENT, _RECEIVED))
        many = len(self._nodes)
        keys = [self._event[rows] * many + self._node[rows] for rows in (sent, received)]
        cells = len(self._events) * many
        if cells <= 4 * len(self._kind) + 1000:
            counts = [np.bincount(key, minlength=cells) for key in keys]
            cell = np.flatnonzero(counts[0] + counts[1])
            sums = [count[cell] for count in counts]
        else:
            cell, place = np.unique(np.concatenate(keys), return_inverse=True)
            first = len(keys[0])
            sums = [np.bincount(where, minlength=len(cell)) for where in (place[:first], place[first:])]
        if not len(cell):
            return cell, np.zeros((0, MET), dtype=np.int64)
        event, node = np.divmod(cell, many)
        return event, np.column_stack([self._nodes[node], *sums]).astype(np.int64)

    def _got(self) -> "tuple[Integers, Integers, Any, pa.Array]":
        """Of each event, node and subscription the first delivery; the events' numbers, times, subscriptions apart."""
        rows = np.flatnonzero((self._kind == _DELIVERED) & (self._event >= 0))
        time_s = self._rows["time_s"].take(rows).to_numpy()
        by = self._rows["subscription"].take(rows)
        through, names = _numbered(by)
        key = (self._event[rows] * len(self._nodes) + self._node[rows]) * (len(names) + 1) + through
        order = np.lexsort((self._place[rows], self._part[rows], time_s, key))
        first = order[np.append(True, np.diff(key[order]) != 0)] if len(order) else order
        rows = rows[first]
        hops = self._rows["hops"].take(rows).fill_null(0).to_numpy()
        entries = np.column_stack([self._nodes[self._node[rows]], self._part[rows], self._place[rows], hops])
        return self._event[rows], entries.astype(np.int64), time_s[first], _plain(by.take(first))

    def _lives(self) -> tuple[Integers, Any, int]:
        """Of each node what LIFE says, with the time of its first such row; and the most that any stored in a life that
        began here."""
        # Notes without an event tell of something else than a copy.
        copies = ((self._kind == _STORED) | (self._kind == _EVICTED)) & (self._event >= 0)
        rows = np.flatnonzero(copies | (self._kind == _CRASHED) | (self._kind == _STARTED))
        if not len(rows):
            return np.zeros((0, LIFE), dtype=np.int64), np.zeros(0), 0
        time_s = self._rows["time_s"].take(rows).to_numpy()
        order = np.lexsort((self._place[rows], self._part[rows], time_s, self._node[rows]))
        rows, time_s = rows[order], time_s[order]
        node, kind = self._node[rows], self._kind[rows]
        begins = np.flatnonzero(np.append(True, np.diff(node) != 0))
        own = np.repeat(begins, np.diff(np.append(begins, len(rows))))
        change = np.where(kind == _STORED, 1, np.where(kind == _EVICTED, -1, 0))
        held = np.cumsum(change)
        held -= (held - change)[own]
        anew = latest((kind == _CRASHED) | (kind == _STARTED), own)
        in_life = anew >= 0
        peak = int(np.max(held - held[anew], where=in_life, initial=0))
        head = np.maximum.reduceat(np.where(in_life, 0, held), begins)
        last = np.append(begins[1:], len(rows)) - 1
        reset = np.where(anew[last] >= 0, held[anew[last]], NEVER)
        entries = (self._nodes[node[begins]], self._part[rows[begins]], self._place[rows[begins]])
        return np.column_stack([*entries, held[last], reset, np.maximum(head, 0)]), time_s[begins], peak


def latest(flags: Flags, own: Integers) -> Integers:
    """For each row the last flagged one up to it among its own, which begin at `own`; -1 where there is none."""
    found = np.maximum.accumulate(np.where(flags, np.arange(len(flags)), -1))
    return np.where(found >= own, found, -1)


def _plain(column: Any) -> "pa.Array":
    import pyarrow as pa

    found = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return found.cast(pa.string())


def _numbered(column: "pa.ChunkedArray") -> "tuple[Integers, pa.Array]":
    """A column as numbers into its different values; -1 where there is none."""
    import pyarrow as pa

    whole = column.unify_dictionaries().combine_chunks()
    found = whole if pa.types.is_dictionary(whole.type) else whole.dictionary_encode()
    if isinstance(found, pa.ChunkedArray):
        found = found.combine_chunks()
    return found.indices.fill_null(-1).to_numpy().astype(np.int64), found.dictionary


def _coded(column: "pa.ChunkedArray", names: tuple[str, ...], other: int = 0) -> Integers:
    """Texts as the places of their names, from 1 on; 0 where there is none."""
    number, values = _numbered(column)
    codes = [names.index(value) + 1 if value in names else other for value in values.to_pylist()]
    return np.array([*codes, 0], dtype=np.int64)[number]
