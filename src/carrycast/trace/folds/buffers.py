"""How many events nodes store."""

from collections.abc import Mapping
from typing import ClassVar, NamedTuple, Self

import numpy as np

from carrycast.core.model import NodeId
from carrycast.trace.facts import CrashFact, EvictFact, StartFact, StoreFact, TraceFact
from carrycast.trace.folds.batch import Floats, Integers, RunTables, TraceBatch, code_of, latest
from carrycast.trace.folds.fold import MergeableFold, MetricInfo, Metrics
from carrycast.trace.schema import Kind

NEVER = -(2**62)


class _Lives(NamedTuple):
    """Of each node in a piece of a trace: what it stored, from its first such row on."""

    node: Integers
    part: Integers
    place: Integers
    time_s: Floats
    """Where and when the first row is."""
    change: Integers
    """Copies stored less copies evicted."""
    reset: Integers
    """That sum when the node last began with an empty buffer; NEVER if it did not."""
    head: Integers
    """The most before the first such time."""


class BufferFold(MergeableFold):
    """The most events that one node stored at one time. A crash empties its buffer; of a live node that is killed, its
    next start tells."""

    reads = (StoreFact, EvictFact, CrashFact, StartFact)
    metrics: ClassVar[Mapping[str, MetricInfo]] = {
        "buffer_peak": MetricInfo("most events stored at one node at one time"),
    }

    def __init__(self) -> None:
        self._stored: dict[NodeId, int] = {}
        self._peak = 0
        self._lives: list[_Lives] = []

    def on_stored(self, node: NodeId, change: int) -> None:
        """A node keeps a copy more or less."""
        stored = self._stored[node] = self._stored.get(node, 0) + change
        if stored > self._peak:
            self._peak = stored

    def on_reset(self, node: NodeId) -> None:
        """The copies that a node kept in memory are gone."""
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
        # Notes without an event tell of something else than a copy.
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
        emptied = latest((is_crash | is_start)[rows], own)
        in_life = emptied >= 0
        self._peak = max(self._peak, int(np.max(stored - stored[emptied], where=in_life, initial=0)))
        head = np.maximum.reduceat(np.where(in_life, 0, stored), begins)
        last = np.append(begins[1:], len(rows)) - 1
        reset = np.where(emptied[last] >= 0, stored[emptied[last]], NEVER)
        where = (batch.nodes[node[begins]], batch.part[rows[begins]], batch.place[rows[begins]], time_s[begins])
        self._lives.append(_Lives(*where, stored[last], reset, np.maximum(head, 0)))

    def resolve(self, tables: RunTables) -> None:
        if not self._lives:
            return
        lives = _Lives(*(np.concatenate(columns) for columns in zip(*self._lives, strict=True)))
        order = np.lexsort((lives.place, lives.part, lives.time_s, lives.node))
        lives = _Lives(*[column[order] for column in lives])  # type: ignore[arg-type]
        begins = np.flatnonzero(np.append(True, np.diff(lives.node) != 0))
        own = np.repeat(begins, np.diff(np.append(begins, len(order))))
        before = np.cumsum(lives.change) - lives.change
        before -= before[own]
        emptied = latest(lives.reset != NEVER, own)
        # The last piece before this one in which the buffer was emptied.
        earlier = np.append(-1, emptied[:-1])
        earlier = np.where(earlier >= own, earlier, -1)
        stored = before - np.where(earlier >= 0, before[earlier] + lives.reset[earlier], 0)
        self._peak = max(self._peak, int((stored + lives.head).max()))
        self._lives.clear()

    def merge(self, other: Self) -> None:
        self._peak = max(self._peak, other._peak)
        self._lives += other._lives

    def result(self) -> Metrics:
        return {"buffer_peak": self._peak}
