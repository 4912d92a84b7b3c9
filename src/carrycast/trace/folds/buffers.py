"""The number of events in the buffers of nodes."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

import numpy as np

from carrycast.core.model import NodeId
from carrycast.trace.facts import CrashFact, EvictFact, StartFact, StoreFact, TraceFact
from carrycast.trace.folds.batch import Floats, Integers, RunTables, TraceBatch, code_of, find_latest
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics
from carrycast.trace.schema import Kind

NEVER = -(2**62)


class _BufferChanges(NamedTuple):
    """The changes of each node's buffer in a piece of a trace, from its first row of this kind on."""

    node: Integers
    part: Integers
    place: Integers
    time_s: Floats
    """File, index and time of the first row."""
    change: Integers
    """Copies stored less copies evicted."""
    reset: Integers
    """The value of `change` when the buffer was last emptied; NEVER if it was not."""
    head: Integers
    """The maximum of `change` before the buffer was first emptied."""


class BufferFold(MergeableFold):
    """The greatest number of events that one node stored at one time.

    A crash empties the buffer. A live node that is killed records no crash, so its next start counts as one.
    """

    reads = (StoreFact, EvictFact, CrashFact, StartFact)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "buffer_peak": MetricInfo("most events stored at one node at one time"),
    }

    def __init__(self) -> None:
        self._stored: dict[NodeId, int] = {}
        self._peak = 0
        self._changes: list[_BufferChanges] = []

    def on_stored(self, node: NodeId, change: int) -> None:
        """Add `change` copies to the buffer of a node."""
        stored = self._stored[node] = self._stored.get(node, 0) + change
        if stored > self._peak:
            self._peak = stored

    def on_reset(self, node: NodeId) -> None:
        """A node has lost the copies in its memory."""
        self._stored.pop(node, None)

    def on_fact(self, fact: TraceFact) -> None:
        if isinstance(fact, StoreFact):
            self.on_stored(fact.node, 1)
        elif isinstance(fact, EvictFact):
            self.on_stored(fact.node, -1)
        else:
            self.on_reset(fact.node)

    def on_batch(self, batch: TraceBatch) -> None:
        kinds = (Kind.STORE, Kind.EVICT, Kind.CRASH, Kind.START)
        is_store, is_evict, is_crash, is_start = (batch.kind == code_of(kind) for kind in kinds)
        # Notes without an event are not about copies.
        rows = np.flatnonzero(((is_store | is_evict) & (batch.event >= 0)) | is_crash | is_start)
        if not len(rows):
            return
        time_s = batch.rows["time_s"].take(rows).to_numpy()
        order = np.lexsort((batch.place[rows], batch.part[rows], time_s, batch.node[rows]))
        rows, time_s = rows[order], time_s[order]
        node = batch.node[rows]
        begins = np.flatnonzero(np.append(True, np.diff(node) != 0))
        own = np.repeat(begins, np.diff(np.append(begins, len(rows))))
        change = is_store[rows].astype(np.int64) - is_evict[rows]
        stored = np.cumsum(change)
        stored -= (stored - change)[own]
        emptied = find_latest((is_crash | is_start)[rows], own)
        since_emptied = emptied >= 0
        self._peak = max(self._peak, int(np.max(stored - stored[emptied], where=since_emptied, initial=0)))
        head = np.maximum.reduceat(np.where(since_emptied, 0, stored), begins)
        last = np.append(begins[1:], len(rows)) - 1
        reset = np.where(emptied[last] >= 0, stored[emptied[last]], NEVER)
        where = (batch.nodes[node[begins]], batch.part[rows[begins]], batch.place[rows[begins]], time_s[begins])
        self._changes.append(_BufferChanges(*where, stored[last], reset, np.maximum(head, 0)))

    def resolve(self, tables: RunTables) -> None:
        if not self._changes:
            return
        changes = _BufferChanges(*(np.concatenate(columns) for columns in zip(*self._changes, strict=True)))
        order = np.lexsort((changes.place, changes.part, changes.time_s, changes.node))
        changes = _BufferChanges(*[column[order] for column in changes])  # type: ignore[arg-type]
        begins = np.flatnonzero(np.append(True, np.diff(changes.node) != 0))
        own = np.repeat(begins, np.diff(np.append(begins, len(order))))
        before = np.cumsum(changes.change) - changes.change
        before -= before[own]
        emptied = find_latest(changes.reset != NEVER, own)
        # The last earlier piece in which the buffer was emptied.
        earlier = np.append(-1, emptied[:-1])
        earlier = np.where(earlier >= own, earlier, -1)
        stored = before - np.where(earlier >= 0, before[earlier] + changes.reset[earlier], 0)
        self._peak = max(self._peak, int((stored + changes.head).max()))
        self._changes.clear()

    def merge(self, other: Self) -> None:
        self._peak = max(self._peak, other._peak)
        self._changes += other._changes

    def result(self) -> Metrics:
        return {"buffer_peak": self._peak}
