"""The columns of one run, from the tables of its trace: copies of events, deliveries, drops, starts and stops."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from carrycast.analysis.player.columns import Columns, Integers
from carrycast.trace import Eligibility, Kind, TraceBatch, TrafficFold

if TYPE_CHECKING:
    import pyarrow as pa

MICROSECONDS = 1_000_000
REACH, STORE, EVICT, DELIVER, CRASH, STOP, START = range(7)
"""The kinds of facts; the page's scripts use the same numbers."""
_CODES = {
    Kind.PUBLISH: REACH,
    Kind.RECEIVE: REACH,
    Kind.STORE: STORE,
    Kind.EVICT: EVICT,
    Kind.DELIVER: DELIVER,
    Kind.CRASH: CRASH,
    Kind.STOP: STOP,
    Kind.START: START,
}
MAX_DROPS = 500_000
"""More drops are summed by second, node and reason."""
FRAME_BINS = 2000
"""The number of equal parts of the run in which frames are counted."""


@dataclass(frozen=True)
class TraceTables:
    """The three tables of a run's trace."""

    trace: "pa.Table"
    events: "pa.Table"
    subscriptions: "pa.Table"


@dataclass(frozen=True)
class Stage:
    """The common nodes, start and duration of the runs on a page."""

    names: Integers
    origin_s: float
    duration_s: float

    def nodes(self, column: "pa.ChunkedArray") -> Integers:
        """The indices of nodes in `names`; -1 for null and unknown nodes."""
        import pyarrow.compute as pc

        given = pc.fill_null(column, -1).to_numpy().astype(np.int64)
        place = np.minimum(np.searchsorted(self.names, given), max(len(self.names) - 1, 0))
        known = self.names[place] == given if len(self.names) else np.zeros(len(given), np.bool_)
        return np.where(known, place, -1)

    def microseconds(self, column: "pa.ChunkedArray") -> Integers:
        """Times since the start in microseconds."""
        since_s: NDArray[np.float64] = column.to_numpy() - self.origin_s
        return np.rint(since_s * MICROSECONDS).astype(np.int64)


def write_story(columns: Columns, prefix: str, tables: TraceTables, stage: Stage) -> dict[str, object]:
    """Add the columns of a run under a prefix; return the texts for the page's header."""
    import pyarrow as pa
    import pyarrow.compute as pc

    events = tables.events.sort_by([("time_s", "ascending")])
    ids = events.column("event").combine_chunks()
    trace = tables.trace
    known = pa.array([kind.value for kind in _CODES])
    place = pc.index_in(trace.column("kind"), known)
    facts = trace.append_column("code", place).filter(pc.is_valid(place))
    _write_facts(columns, prefix, facts, ids, stage)
    drops = trace.filter(pc.equal(trace.column("kind"), Kind.DROP.value))
    reasons = _write_drops(columns, prefix, drops, ids, stage)
    _write_frames(columns, prefix, trace, stage)
    _write_events(columns, prefix, events, tables.subscriptions, stage)
    attributes = [attributes_text(msgspec.json.decode(text)) for text in events.column("attributes").to_pylist()]
    return {"events": ids.to_pylist(), "attributes": attributes, "reasons": reasons}


def attributes_text(table: Mapping[str, object]) -> str:
    """Attributes as text: `topic = 3, place = "north"`."""
    return ", ".join(f"{name} = {msgspec.json.encode(value).decode()}" for name, value in table.items())


def _write_facts(columns: Columns, prefix: str, facts: "pa.Table", ids: "pa.Array", stage: Stage) -> None:
    codes = np.array(list(_CODES.values()), dtype=np.int64)
    code = codes[facts.column("code").to_numpy().astype(np.int64)]
    time, node, event = (
        stage.microseconds(facts.column("time_s")),
        stage.nodes(facts.column("node")),
        _event_places(facts, ids),
    )
    peer = np.where(code == REACH, stage.nodes(facts.column("peer")), -1)
    # Facts of copies need an event: notes and frames without one are about something else.
    real = (node >= 0) & ((event >= 0) | (code >= CRASH))
    # All nodes stop at the end of a run; shown, the last moment would be a network without nodes.
    real &= (code != STOP) | (time < round(stage.duration_s * MICROSECONDS))
    order = np.flatnonzero(real)
    order = order[np.argsort(time[order], kind="stable")]
    time, node, event, code, peer = time[order], node[order], event[order], code[order], peer[order]
    # Only the first arrival and the first delivery of an event at a node are shown.
    key = (code * max(len(ids), 1) + event) * (len(stage.names) + 1) + node
    first = np.zeros(len(order), dtype=np.bool_)
    first[np.unique(key, return_index=True)[1]] = True
    kept = first | ((code != REACH) & (code != DELIVER))
    columns.add(f"{prefix}fact.time", time[kept], rising=True)
    for name, column in (("code", code), ("node", node), ("event", event), ("peer", peer)):
        columns.add(f"{prefix}fact.{name}", column[kept])


def _write_drops(columns: Columns, prefix: str, drops: "pa.Table", ids: "pa.Array", stage: Stage) -> list[str]:
    import pyarrow.compute as pc

    named = pc.fill_null(drops.column("reason"), "unknown")
    reasons = sorted(pc.unique(named).to_pylist())
    reason = _index_words(named, reasons)
    time, node, event = (
        stage.microseconds(drops.column("time_s")),
        stage.nodes(drops.column("node")),
        _event_places(drops, ids),
    )
    many = np.ones(len(time), dtype=np.int64)
    if len(time) > MAX_DROPS:
        second = -(-time // MICROSECONDS)
        key = (second * len(reasons) + reason) * (len(stage.names) + 1) + node
        _, place, many = np.unique(key, return_index=True, return_counts=True)
        time, node, reason = second[place] * MICROSECONDS, node[place], reason[place]
        event = np.full(len(place), -1, dtype=np.int64)
    order = np.argsort(time, kind="stable")
    columns.add(f"{prefix}drop.time", time[order], rising=True)
    for name, column in (("node", node), ("reason", reason), ("event", event), ("many", many)):
        columns.add(f"{prefix}drop.{name}", column[order])
    return reasons


def _write_frames(columns: Columns, prefix: str, trace: "pa.Table", stage: Stage) -> None:
    """Count the frames sent by the end of each equal part of the run, without beacons."""
    sent = np.flatnonzero(TrafficFold().amounts(TraceBatch.of(trace))["transmissions"])
    time = stage.microseconds(trace.column("time_s").take(sent))
    ends = np.arange(1, FRAME_BINS + 1) * stage.duration_s * MICROSECONDS / FRAME_BINS
    columns.add(f"{prefix}frames", np.searchsorted(np.sort(time), ends, side="right"), rising=True)


def _write_events(columns: Columns, prefix: str, events: "pa.Table", subscriptions: "pa.Table", stage: Stage) -> None:
    columns.add(f"{prefix}event.time", stage.microseconds(events.column("time_s")), rising=True)
    columns.add(f"{prefix}event.source", stage.nodes(events.column("source")))
    rows: list[dict[str, Any]] = events.to_pylist()
    eligibility = Eligibility(subscriptions.to_pylist())
    pairs = [(place, node) for place, row in enumerate(rows) for node in eligibility.find_nodes(row).tolist()]
    wanted = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    columns.add(f"{prefix}want.event", wanted[:, 0], rising=True)
    columns.add(f"{prefix}want.node", np.searchsorted(stage.names, wanted[:, 1]))


def _event_places(rows: "pa.Table", ids: "pa.Array") -> Integers:
    """The index of each row's event; -1 without an event."""
    import pyarrow.compute as pc

    found: NDArray[np.int64] = pc.fill_null(pc.index_in(rows.column("event"), ids), -1).to_numpy().astype(np.int64)
    return np.where(rows.column("event").is_null().to_numpy(), -1, found)


def _index_words(column: "pa.ChunkedArray", words: list[str]) -> Integers:
    import pyarrow as pa
    import pyarrow.compute as pc

    found: Integers = pc.index_in(column, pa.array(words, pa.string())).to_numpy().astype(np.int64)
    return found
